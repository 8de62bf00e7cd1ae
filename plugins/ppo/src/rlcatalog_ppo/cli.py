"""The commands `train` and `evaluate`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import rlcatalog
from rlcatalog.cli import (
    import_modules,
    json_line,
    key_values,
    read_config,
    refuse_taken,
    run_folder,
    write_config,
)
from rlcatalog.config import plain
from rlcatalog.errors import ConfigError, NonFiniteError, SavedPolicyError
from rlcatalog.policy import Manifest, read_manifest
from rlcatalog_ppo.learning_curve import draw
from rlcatalog_ppo.progress import Display

#: What a run's folder holds beside its config.
METRICS, CURVE, POLICY = "metrics.jsonl", "learning_curve.png", "policy"


def train(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")],
    framework: Annotated[str | None, typer.Option(help="torch or tf; a custom class decides when missing.")] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of PPO, such as lr=0.0003; repeatable."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps to train for.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of environments, weights and sampling.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; runs/ENV_ID-SEED when missing.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")] = False,
    record: Annotated[Path | None, typer.Option(help="Folder to write all experience into, for a Reader.")] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads; small networks are fastest with one.")] = 1,
) -> None:
    """Train a policy with PPO; leaves learning_curve.png, metrics.jsonl, config.json and the saved policy."""
    from rlcatalog_ppo.ppo import PPO, set_threads

    given = key_values(settings or [], "--set")
    clash = sorted(set(given) & {"model", "framework", "seed"})
    if clash:
        raise ConfigError(f"--set: {clash[0]!r} has an option of its own: --{clash[0]}.")
    config: dict[str, Any] = {"total_steps": steps, **given, "model": key_values(model or [], "--model"), "seed": seed}
    if framework is not None:
        config["framework"] = framework
    folder = out or Path("runs") / f"{env_id.replace('/', '_')}-{seed}"
    refuse_taken(folder, overwrite)  # before anything is built
    set_threads(framework, threads)
    algo = PPO(env_id, config, record=record)
    with run_folder(folder, overwrite):
        write_config(folder, env_id, _resolved(steps, algo))
        results = _trained(env_id, steps, algo, folder)
        algo.save(folder / POLICY)
        algo.stop()
        draw(folder / CURVE, results, f"PPO on {env_id}, seed {seed}")
    print(f"policy: {folder / POLICY}")
    print(f"learning curve: {folder / CURVE}")


def _trained(env_id: str, steps: int, algo: Any, folder: Path) -> list[dict[str, Any]]:
    """Train to the end and return the results, which are written as they come."""
    results: list[dict[str, Any]] = []
    with _progress() as progress, (folder / METRICS).open("w", encoding="utf-8") as metrics:
        task = progress.add_task(f"training on {env_id}", total=steps, value="-")
        while not results or results[-1]["timesteps_total"] < steps:
            try:
                results.append(algo.train())
            except NonFiniteError as error:
                algo.save(folder / POLICY)
                raise NonFiniteError(f"{error} The policy as it was before is in {folder / POLICY}.") from error
            metrics.write(json_line(results[-1]))
            metrics.flush()
            mean = results[-1]["episode_return_mean"]
            progress.update(
                task, completed=results[-1]["timesteps_total"], value="-" if mean is None else f"{mean:.1f}"
            )
    return results


def evaluate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that train wrote, or a saved policy.")],
    episodes: Annotated[int, typer.Option(min=1, help="Fresh episodes to play.")] = 100,
    env: Annotated[str | None, typer.Option(help="Environment, for a policy saved without a run.")] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a module that registers environments; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the environments.")] = 10_000,
    explore: Annotated[bool, typer.Option(help="Sample actions instead of taking the most likely ones.")] = False,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads; small networks are fastest with one.")] = 1,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Film the first episodes into FILE.mp4 or FILE.gif.")
    ] = None,
    render: Annotated[bool, typer.Option("--render", help="Show the episodes in a window, one after another.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result alone.")] = False,
) -> None:
    """Play episodes with a saved policy and print the mean return."""
    from rlcatalog_ppo.environments import maker, vector
    from rlcatalog_ppo.evaluation import SIDE_BY_SIDE, play
    from rlcatalog_ppo.ppo import set_threads
    from rlcatalog_ppo.video import Film, filmed, windowed

    if video is not None and render:
        raise ConfigError("--video and --render: an environment renders frames or a window, not both; give one.")
    source = directory / POLICY if (directory / POLICY).is_dir() else directory
    import_modules(modules or [])
    manifest, env_config = read_manifest(source), {}
    if env is None:
        if source == directory:
            raise SavedPolicyError(
                f"{directory}: a policy without its run does not say its environment; pass --env ID."
            )
        saved = read_config(directory, modules or [])
        env, env_config = saved["env"], saved["algorithm"]["env_config"]

    def make(mode: str | None = None) -> Any:
        config = env_config if mode is None else {**env_config, "render_mode": mode}
        return maker(env, config, manifest.config, rlcatalog.default_catalog())()

    film = None if video is None else Film(video)
    if film is not None:
        envs = filmed(make, env, film, episodes)
    else:
        envs = windowed(make, env) if render else vector(make, min(episodes, SIDE_BY_SIDE))
    returns: list[float] = []
    with closing(envs):
        set_threads(manifest.framework, threads)
        policy = rlcatalog.load(source, **_unwritten_spaces(manifest, make))
        with Display(f"playing {env}", episodes, unit="episodes", quiet=quiet) as display:

            def note(value: float) -> None:
                returns.append(value)
                display.update(len(returns), statistics.fmean(returns))

            play(policy, envs, episodes, seed=seed, explore=explore, on_episode=note)
    if film is not None:
        film.write()
        print(f"video: {film.path} (episodes: {film.episodes}, frames: {film.frames:,})")
    print(f"mean return {statistics.fmean(returns):.2f}")


def _unwritten_spaces(manifest: Manifest, make: Callable[[], Any]) -> dict[str, Any]:
    """Return the environment's spaces that a saved policy could not write down."""
    names = [name for name in ("observation_space", "action_space") if getattr(manifest, name) is None]
    if not names:
        return {}
    env = make()
    env.close()
    return {name: getattr(env, name) for name in names}


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("mean return {task.fields[value]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )


def _resolved(steps: int, algo: Any) -> dict[str, Any]:
    from msgspec.structs import asdict

    algorithm = plain({**asdict(algo.config), "model": None})
    algorithm.pop("model")
    return {
        "steps": steps,
        "framework": algo.policy.framework,
        "algorithm": algorithm,
        "model": algo.policy.config,
        "parts": {slot: choice.component.name for slot, choice in algo.policy.resolution.choices.items()
                  if choice.component is not None},
        "rlcatalog": rlcatalog.__version__,
    }  # fmt: skip
