"""The command `rlcatalog evaluate`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from gymnasium.vector import VectorEnv

import rlcatalog
from rlcatalog import Policy
from rlcatalog.errors import ConfigError, UnknownNameError
from rlcatalog_cli import Modules, show_progress
from rlcatalog_policy import read_manifest
from rlcatalog_ppo.optimizer import set_threads
from rlcatalog_runs import import_modules, policy_of
from rlcatalog_runs.evaluation import MOST_ENVS_AT_ONCE, play
from rlcatalog_runs.folders import env_of, unwritten_spaces

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
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result.")] = False,
) -> None:
    """Play episodes with a saved policy and print the mean return."""
    from rlcatalog_ppo.environments import EnvMaker, vector
    from rlcatalog_ppo.video import Film, make_film_envs, make_window_env

    if video is not None and render:
        raise ConfigError(
            "--video and --render: an environment renders either frames or a window. Pass only one."
        )
    module_names = list(modules or [])
    zoo_record: dict[str, Any] = {}
    if str(path).startswith(ZOO_PREFIX):
        path, zoo_record = _find_in_zoo(str(path).removeprefix(ZOO_PREFIX))
        module_names = [*zoo_record["modules"], *module_names]
        env = env or zoo_record["env"]
    source = policy_of(path)
    import_modules(module_names)
    actor: Any = None  # an exported policy is one file, and acts without a framework
    if path.is_file():
        actor = rlcatalog.Actor(path)
    # Both describe the policy and have its model config.
    about = read_manifest(source) if actor is None else actor.interface
    env_config: Mapping[str, Any] = {}
    if env is None:
        env, env_config = env_of(path, module_names)

    def make_env(render_mode: str | None = None) -> Any:
        config = dict(env_config)
        if render_mode is not None:
            config["render_mode"] = render_mode
        maker = EnvMaker(env, config, about.config, rlcatalog.default_catalog())
        return maker()

    mask_key = about.config.get("action_mask_key", "action_mask")
    film = None
    if video is not None:
        film = Film(video)
        envs: Any = make_film_envs(make_env, env, film, episodes, mask_key)
    elif render:
        envs = make_window_env(make_env, env, mask_key)
    else:
        envs = vector(make_env, min(episodes, MOST_ENVS_AT_ONCE), mask_key=mask_key)
    with closing(envs):
        policy = actor
        if actor is None:
            set_threads(about.framework, threads)
            policy = rlcatalog.load(source, **unwritten_spaces(about, make_env))
        with show_progress(f"playing {env}", episodes, unit="episodes", quiet=quiet) as update:
            returns = _play(policy, envs, episodes, seed=seed, explore=explore, update=update)
    if film is not None:
        film.write()
        print(f"video: {film.path} (episodes: {film.episodes}, frames: {film.frames:,})")
    print(f"mean return {statistics.fmean(returns):.2f}")
    if zoo_record:
        _print_zoo_record(zoo_record, explore=explore)


def _play(
    policy: Policy,
    envs: VectorEnv[Any, Any, Any],
    episodes: int,
    *,
    seed: int,
    explore: bool,
    update: Callable[[int, float], None],
) -> list[float]:
    """Play episodes, show the progress, and return the episodes' returns.

    Args:
        policy: The policy, or an actor.
        envs: The environments.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        explore: Whether to sample actions.
        update: Shows the number of episodes so far and their mean return.
    """
    returns: list[float] = []

    def add_return(value: float) -> None:
        returns.append(value)
        update(len(returns), statistics.fmean(returns))

    play(policy, envs, episodes, seed=seed, explore=explore, on_episode=add_return)
    return returns


def _print_zoo_record(record: Mapping[str, Any], *, explore: bool) -> None:
    """Print the mean return that the zoo has on record for a policy."""
    mean, margin = record["sampled_return" if explore else "return"]
    print(f"on record: {mean:.2f} ± {margin:.2f} in {record['episodes']} episodes")


def _find_in_zoo(env: str) -> tuple[Path, dict[str, Any]]:
    """Return the zoo's policy for an environment, and its record."""
    file = ZOO / f"{env.replace('/', '-')}.json"
    if not file.exists():
        names = ", ".join(sorted(path.stem for path in ZOO.glob("*.json")))
        raise UnknownNameError(f"{ZOO_PREFIX}{env}: there is no such policy. The zoo has {names}.")
    return file.with_suffix(".onnx"), json.loads(file.read_text())
