"""The command `rlcatalog evaluate`."""

from __future__ import annotations

import json
import statistics
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

import rlcatalog
from rlcatalog.errors import ConfigError, UnknownNameError
from rlcatalog_cli import Modules, show_progress
from rlcatalog_policy import read_manifest
from rlcatalog_ppo.learner import set_threads
from rlcatalog_runs import import_modules, policy_of
from rlcatalog_runs.evaluation import SIDE_BY_SIDE, play
from rlcatalog_runs.folders import env_of, unwritten_spaces

#: The zoo: exported policies `NAME.onnx`, each with a `NAME.json` that says how it was trained and
#: what it reached.
ZOO = Path(__file__).with_name("zoo")
IN_ZOO = "zoo:"


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
        bool, typer.Option(help="Sample actions instead of taking the most likely ones.")
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
    record: dict[str, Any] = {}
    if str(path).startswith(IN_ZOO):
        path, record = _find_in_zoo(str(path).removeprefix(IN_ZOO))
        env, modules = env or record["env"], [*record["modules"], *(modules or [])]
    source, env_config = policy_of(path), dict[str, Any]()
    import_modules(modules or [])
    policy: Any = rlcatalog.Actor(path) if path.is_file() else None
    about = read_manifest(source) if policy is None else policy.interface
    if env is None:
        env, env_config = env_of(path, modules)

    def make(mode: str | None = None) -> Any:
        config = env_config if mode is None else {**env_config, "render_mode": mode}
        return EnvMaker(env, config, about.config, rlcatalog.default_catalog())()

    mask_key = about.config.get("action_mask_key", "action_mask")
    film = None if video is None else Film(video)
    if film is not None:
        envs = make_film_envs(make, env, film, episodes, mask_key)
    elif render:
        envs = make_window_env(make, env, mask_key)
    else:
        envs = vector(make, min(episodes, SIDE_BY_SIDE), mask_key=mask_key)
    returns: list[float] = []
    with closing(envs):
        if policy is None:
            set_threads(about.framework, threads)
            policy = rlcatalog.load(source, **unwritten_spaces(about, make))
        with show_progress(f"playing {env}", episodes, unit="episodes", quiet=quiet) as update:

            def note(value: float) -> None:
                returns.append(value)
                update(len(returns), statistics.fmean(returns))

            play(policy, envs, episodes, seed=seed, explore=explore, on_episode=note)
    if film is not None:
        film.write()
        print(f"video: {film.path} (episodes: {film.episodes}, frames: {film.frames:,})")
    print(f"mean return {statistics.fmean(returns):.2f}")
    if record:
        mean, margin = record["sampled_return" if explore else "return"]
        print(f"on record: {mean:.2f} ± {margin:.2f} in {record['episodes']} episodes")


def _find_in_zoo(env: str) -> tuple[Path, dict[str, Any]]:
    """Return the zoo's policy for an environment, and its record."""
    file = ZOO / f"{env.replace('/', '-')}.json"
    if not file.exists():
        names = ", ".join(sorted(path.stem for path in ZOO.glob("*.json")))
        raise UnknownNameError(f"{IN_ZOO}{env}: there is no such policy. The zoo has {names}.")
    return file.with_suffix(".onnx"), json.loads(file.read_text())
