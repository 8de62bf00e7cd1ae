"""The commands `train` and `evaluate`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

import rlcatalog
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_cli import (
    CheckpointEvery,
    Display,
    EnvId,
    KeepCheckpoints,
    ModelKeys,
    Modules,
    Overwrite,
    Seed,
    Steps,
    Threads,
    key_values,
)
from rlcatalog_policy import read_manifest
from rlcatalog_ppo import training
from rlcatalog_ppo.algorithms import ALGORITHMS, algorithm_class
from rlcatalog_ppo.backends import set_threads
from rlcatalog_ppo.checkpoints import TRAINING
from rlcatalog_ppo.config import parse
from rlcatalog_ppo.logs import LOGS, log_names
from rlcatalog_ppo.training import COMMAND, CURVE, POLICY, RunOptions
from rlcatalog_runs import (
    Interrupted,
    Resumed,
    default_folder,
    import_modules,
    new_run,
    policy_of,
    read_config,
    refuse_fixed,
    refuse_taken,
    resumed_run,
)


def train(
    context: typer.Context,
    env_id: EnvId = None,
    algorithm: Annotated[
        str | None, typer.Option("--algo", help=f"One of {', '.join(ALGORITHMS)}; PPO when missing.")
    ] = None,
    framework: Annotated[str | None, typer.Option(help="torch or tf; a custom class decides when missing.")] = None,
    model: ModelKeys = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of the algorithm, such as lr=0.0003; repeatable."),
    ] = None,
    steps: Steps = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="Several runs side by side, one for each: 0,1,2 or 0-4.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where the model computes: cpu, cuda, cuda:1, …, or auto; cpu when missing.")
    ] = None,
    vector: Annotated[
        str | None, typer.Option(help="Environments: sync, in turn, or async, each in a process; sync when missing.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; a new one in runs/ENV_ID when missing.")
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the run in this folder, or from this checkpoint of one."),
    ] = None,
    modules: Modules = None,
    checkpoint_every: CheckpointEvery = None,
    keep_checkpoints: KeepCheckpoints = None,
    eval_every: Annotated[
        int | None,
        typer.Option(min=0, metavar="STEPS", help="Steps between evaluations, in other environments; 0: none."),
    ] = None,
    eval_episodes: Annotated[int | None, typer.Option(min=1, help="Episodes of each; 10 when missing.")] = None,
    stop_at: Annotated[
        float | None, typer.Option(metavar="RETURN", help="End at this mean return, of evaluations if there are any.")
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Logs beside metrics.jsonl: {', '.join(LOGS)}.")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Folder to write all experience into, for a Reader.")] = None,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a policy; its folder holds the policy, the best one, checkpoints to go on from, metrics and a picture."""
    import_modules(modules or [])
    given = key_values(settings or [], "--set")
    if clash := sorted(set(given) & {"model", "framework", "seed", "device", "vector"}):
        raise ConfigError(f"--set: {clash[0]!r} has an option of its own: --{clash[0]}.")
    chosen: dict[str, Any] = {
        "steps": steps, "checkpoint_every": checkpoint_every, "keep_checkpoints": keep_checkpoints,
        "eval_every": eval_every, "eval_episodes": eval_episodes, "stop_at": stop_at, "threads": threads,
        "log": None if log is None else list(log_names(log)),
    }  # fmt: skip
    where = {name: value for name, value in (("device", device), ("vector", vector)) if value is not None}
    if resume is not None:
        fixed = {"ENV_ID": env_id, "--seeds": seeds, "--algo": algorithm, "--framework": framework, "--model": model,
                 "--seed": seed, "--out": out, "--overwrite": overwrite or None}  # fmt: skip
        refuse_fixed(resume, fixed)
        run = resumed_run(RunOptions, COMMAND, resume, chosen, modules or [], TRAINING)
        _resume(run, given | where, record, quiet)
        return
    if env_id is None:
        raise ConfigError("train: name an environment, such as CartPole-v1, or a run to go on with: --resume DIR.")
    options = new_run(RunOptions, chosen)
    config: dict[str, Any] = {
        "total_steps": options.steps, **given, "model": key_values(model or [], "--model"),
        "seed": 0 if seed is None else seed, **where, **({} if framework is None else {"framework": framework}),
    }  # fmt: skip
    if seeds is not None:
        from rlcatalog_runs.commands.several_seeds import parse_seeds, refuse_with_seeds, train_seeds

        refuse_with_seeds(context)
        wanted = parse_seeds(seeds)
        checked = parse(config, algorithm_class(algorithm or "PPO").config_class)  # once, before there are many runs
        rlcatalog.default_catalog().parse_config(checked.model)
        folder = out or default_folder(env_id, algorithm, seed=wanted)
        train_seeds(context, wanted, folder, threads=options.threads, overwrite=overwrite)
        return
    if out is not None:
        refuse_taken(out, overwrite)  # before anything is built
    set_threads(framework, options.threads)
    algo = algorithm_class(algorithm or "PPO")(env_id, config, record=record)
    folder = out or default_folder(env_id, algorithm, seed=config["seed"])
    _run(algo, env_id, folder, options, quiet, overwrite=overwrite)


def _resume(run: Resumed[RunOptions], given: dict[str, Any], record: Path | None, quiet: bool) -> None:
    """Go on with a run."""
    saved, options = run.config, run.kept
    log_names(",".join(options.log) or None)  # those of the file are no better than typed ones
    if "total_steps" not in given and saved["algorithm"].get("total_steps") == saved.get("steps"):
        given["total_steps"] = options.steps  # schedules are over the whole run, also where it is longer now
    given.setdefault("env_config", saved["algorithm"]["env_config"])
    framework = read_manifest(run.checkpoint / POLICY).framework
    set_threads(framework, options.threads)
    cls = algorithm_class(saved["algorithm"].get("name", "PPO"))
    algo = cls.restore(run.checkpoint, saved["env"], config=given, record=record)
    print(f"going on after {algo.steps} steps")
    _run(algo, run.env_id, run.folder, options, quiet, resumed=True)


def _run(algo: Any, env_id: str, folder: Path, options: RunOptions, quiet: bool, **how: Any) -> None:
    """Train, show it, and say what is where."""
    try:
        with Display(f"training on {env_id}", options.steps, done=algo.steps, quiet=quiet) as display:

            def show(row: Mapping[str, Any]) -> None:
                display.update(row["timesteps_total"], row["episode_return_mean"])

            training.run(algo, env_id, folder, options, show, **how)
    except Interrupted as interrupt:
        print(
            f"{interrupt}: stopped; kept is the run after {algo.steps} steps. Go on with:"
            f" rlcatalog train --resume {folder}",
            file=sys.stderr,
        )
        raise typer.Exit(interrupt.exit_status) from None
    if algo.stopping is not None:
        print(f"ended after {algo.steps} steps: {algo.stopping}")
    print(f"policy: {folder / POLICY}")
    print(f"learning curve: {folder / CURVE}")


def evaluate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that train wrote, or a saved policy.")],
    episodes: Annotated[int, typer.Option(min=1, help="Fresh episodes to play.")] = 100,
    env: Annotated[str | None, typer.Option(help="Environment, for a policy saved without a run.")] = None,
    modules: Modules = None,
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
    from rlcatalog_ppo.environments import maker, unwritten_spaces, vector
    from rlcatalog_ppo.evaluation import SIDE_BY_SIDE, play
    from rlcatalog_ppo.video import Film, filmed, windowed

    if video is not None and render:
        raise ConfigError("--video and --render: an environment renders frames or a window, not both; give one.")
    source = policy_of(directory)
    import_modules(modules or [])
    manifest, env_config = read_manifest(source), {}
    if env is None:
        if source == directory:
            raise SavedPolicyError(
                f"{directory}: a policy without its run does not say its environment; pass the folder of its run, or"
                " --env ID."
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
        policy = rlcatalog.load(source, **unwritten_spaces(manifest, make))
        with Display(f"playing {env}", episodes, unit="episodes", quiet=quiet) as display:

            def note(value: float) -> None:
                returns.append(value)
                display.update(len(returns), statistics.fmean(returns))

            play(policy, envs, episodes, seed=seed, explore=explore, on_episode=note)
    if film is not None:
        film.write()
        print(f"video: {film.path} (episodes: {film.episodes}, frames: {film.frames:,})")
    print(f"mean return {statistics.fmean(returns):.2f}")
