"""The command `rlcatalog evaluate`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from gymnasium.vector import VectorEnv

import rlcatalog
from rlcatalog import Policy
from rlcatalog.errors import ConfigError, UnknownNameError
from rlcatalog_cli import AS_JSON, Modules, import_modules, print_json, show_progress
from rlcatalog_policy import read_manifest
from rlcatalog_ppo.optimizer import set_threads
from rlcatalog_runs import policy_of
from rlcatalog_runs.evaluation import (
    EpisodeResult,
    describe_episodes,
    play_episodes,
)
from rlcatalog_runs.folders import env_of, unwritten_spaces
from rlcatalog_runs.import_hints import hint_at_imports

if TYPE_CHECKING:  # Filming needs packages that few evaluations use.
    from rlcatalog_ppo.video import Film

#: The zoo: exported policies `NAME.onnx`, each with a `NAME.json` that says how it was trained and
#: what it reached.
ZOO = Path(__file__).with_name("zoo")
ZOO_PREFIX = "zoo:"


def evaluate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A run's folder, a saved or exported policy, or zoo:ENV_ID."
        ),
    ],
    episodes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Fresh episodes to play.")
    ] = 100,
    env: Annotated[
        str | None, typer.Option(metavar="ENV_ID", help="Environment, for a policy without a run.")
    ] = None,
    modules: Modules = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of the episodes.")
    ] = 10_000,
    explore: Annotated[
        bool, typer.Option(help="Sample actions instead of taking the deterministic ones.")
    ] = False,
    threads: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1024, help="Threads; small networks are fastest with one."
        ),
    ] = 1,
    video: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Film the first episodes to PATH, an .mp4 or .gif file."),
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Show the episodes in a window, one at a time.")
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result.")] = False,
) -> None:
    """Play episodes with a saved policy, and print their returns and lengths."""
    if video is not None and render:
        raise ConfigError(
            "--video and --render: an environment renders either frames or a window. Pass only one."
        )
    module_names = list(modules or [])
    folder = path
    zoo_record: dict[str, Any] = {}
    if str(path).startswith(ZOO_PREFIX):
        folder, zoo_record = _find_in_zoo(str(path).removeprefix(ZOO_PREFIX))
        module_names = [*zoo_record["modules"], *module_names]
        env = env or zoo_record["env"]
    with hint_at_imports(folder, module_names):
        evaluation = _evaluate(
            folder,
            env,
            module_names,
            episodes=episodes,
            seed=seed,
            explore=explore,
            threads=threads,
            video=video,
            render=render,
            quiet=quiet,
        )
    if as_json:
        answer = evaluation.as_dict() | {"policy": str(path), "seed": seed, "explore": explore}
        if zoo_record:
            answer["on_record"] = _recorded_return(zoo_record, explore=explore)
        print_json(answer)
        return
    for line in evaluation.lines(explore=explore):
        print(line)
    if zoo_record:
        recorded = _recorded_return(zoo_record, explore=explore)
        print(
            f"on record    {recorded['return_mean']:.2f} ± {recorded['margin']:.2f} in"
            f" {recorded['episodes']} episodes"
        )


class _Evaluation(NamedTuple):
    """What an evaluation has played.

    Attributes:
        env: The environment.
        results: The result of each episode.
        film: The film, or None.
    """

    env: str
    results: Sequence[EpisodeResult]
    film: Film | None

    def lines(self, *, explore: bool) -> list[str]:
        """Return the lines that the command prints."""
        figures = describe_episodes(self.results)
        lines = []
        if self.film is not None:
            film = self.film
            lines.append(f"video: {film.path} (episodes: {film.episodes}, frames: {film.frames:,})")
        actions = "sampled" if explore else "deterministic"
        return [
            *lines,
            f"mean return  {figures['return_mean']:.2f} ± {figures['return_std']:.2f}"
            " (standard deviation)",
            f"median       {figures['return_median']:.2f}",
            f"mean length  {figures['length_mean']:,.1f} steps",
            f"episodes     {figures['episodes']:,}, with {actions} actions",
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain data."""
        data: dict[str, Any] = {"env": self.env, **describe_episodes(self.results)}
        data["returns"] = [result.episode_return for result in self.results]
        data["lengths"] = [result.length for result in self.results]
        if self.film is not None:
            data["video"] = str(self.film.path)
        return data


def _evaluate(
    path: Path,
    env: str | None,
    module_names: Sequence[str],
    *,
    episodes: int,
    seed: int,
    explore: bool,
    threads: int,
    video: Path | None,
    render: bool,
    quiet: bool,
) -> _Evaluation:
    """Load a policy and play; the arguments are those of `evaluate`.

    Args:
        path: A run's folder, or a saved or exported policy.
        env: The environment; None for that of the run.
        module_names: The modules to import.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        explore: Whether to sample actions.
        threads: Number of threads.
        video: File for a film, or None.
        render: Whether to show a window.
        quiet: Whether to show no progress.
    """
    from rlcatalog_ppo.environments import EnvMaker
    from rlcatalog_ppo.video import Film, make_film_envs, make_window_env

    source = policy_of(path)
    import_modules(module_names)
    actor: Any = None  # an exported policy is one file, and acts without a framework
    if path.is_file():
        actor = rlcatalog.Actor(path)
    # Both describe the policy and have its model config.
    about = read_manifest(source) if actor is None else actor.interface
    model = about.config if actor is None else actor.interface.config_for_wrappers()
    env_config: Mapping[str, Any] = {}
    if env is None:
        env, env_config = env_of(path, module_names)

    def make_env(render_mode: str | None = None) -> Any:
        config = dict(env_config)
        if render_mode is not None:
            config["render_mode"] = render_mode
        maker = EnvMaker(env, config, model, rlcatalog.default_catalog())
        return maker()

    mask_key = about.config.get("action_mask_key", "action_mask")
    film = None
    if video is not None:
        film = Film(video)
        envs: Any = make_film_envs(make_env, env, film, episodes, mask_key)
    elif render:
        envs = make_window_env(make_env, env, mask_key)
    else:
        maker = EnvMaker(env, env_config, model, rlcatalog.default_catalog())
        envs = maker.evaluation_vector(episodes, seed)
    with closing(envs):
        policy = actor
        if actor is None:
            set_threads(about.framework, threads)
            policy = rlcatalog.load(source, **unwritten_spaces(about, make_env))
        with show_progress(f"playing {env}", episodes, unit="episodes", quiet=quiet) as progress:
            results = _play(
                policy, envs, episodes, seed=seed, explore=explore, update=progress.update
            )
    if film is not None:
        film.write()
    return _Evaluation(env, results, film)


def _play(
    policy: Policy,
    envs: VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int,
    explore: bool,
    update: Callable[[int, float], None],
) -> list[EpisodeResult]:
    """Play episodes, show the progress, and return the results of the episodes.

    Args:
        policy: The policy, or an actor.
        envs: The environments.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        explore: Whether to sample actions.
        update: Shows the number of episodes so far and their mean return.
    """
    returns: list[float] = []

    def show_result(result: EpisodeResult) -> None:
        returns.append(result.episode_return)
        update(len(returns), statistics.fmean(returns))

    return play_episodes(policy, envs, episodes, seed=seed, explore=explore, on_episode=show_result)


def _recorded_return(record: Mapping[str, Any], *, explore: bool) -> dict[str, Any]:
    """Return the mean return that the zoo has on record for a policy, with its margin."""
    mean, margin = record["sampled_return" if explore else "return"]
    return {"return_mean": mean, "margin": margin, "episodes": record["episodes"]}


def _find_in_zoo(env: str) -> tuple[Path, dict[str, Any]]:
    """Return the zoo's policy for an environment, and its record."""
    file = ZOO / f"{env.replace('/', '-')}.json"
    if not file.exists():
        names = ", ".join(sorted(path.stem for path in ZOO.glob("*.json")))
        raise UnknownNameError(f"{ZOO_PREFIX}{env}: there is no such policy. The zoo has {names}.")
    return file.with_suffix(".onnx"), json.loads(file.read_text())
