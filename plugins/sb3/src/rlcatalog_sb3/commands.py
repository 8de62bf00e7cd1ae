"""The command `train-sb3`."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

import rlcatalog
from rlcatalog.config import plain
from rlcatalog.errors import ConfigError
from rlcatalog_cli import (
    CheckpointEvery,
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
from rlcatalog_runs import (
    Interrupted,
    KeptRun,
    Resumed,
    default_folder,
    import_modules,
    interruptible,
    new_run,
    prune_checkpoints,
    recorded,
    refuse_fixed,
    refuse_taken,
    resumed_run,
    run_folder,
    write_config,
)

COMMAND = "train-sb3"


class Run(KeptRun, kw_only=True, frozen=True):
    """How a run is kept, and what it was begun with.

    Attributes:
        threads: Threads of one operation.
        model: The model config, as it was typed.
        settings: Arguments of the algorithm, as they were typed.
    """

    threads: int = 1
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


def train_sb3(
    env_id: EnvId = None,
    algo: Annotated[
        str | None,
        typer.Option(help="PPO, A2C, DQN, SAC or TD3; with sb3-contrib MaskablePPO or RecurrentPPO. PPO when missing."),
    ] = None,
    model: ModelKeys = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An argument of the algorithm, such as gamma=0.9; repeatable."),
    ] = None,
    steps: Steps = None,
    envs: Annotated[int | None, typer.Option(min=1, help="Environments stepped side by side; 1 when missing.")] = None,
    seed: Seed = None,
    frozen: Annotated[
        str | None,
        typer.Option(help="Collect with a frozen policy, which acts faster: auto (where it pays), always or never."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; a new one, runs/ENV_ID/TIME-ALGO-seedN, when missing.")
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Go on with the run in this folder, or from this checkpoint of one. That reads pickles, which run"
            " whatever their writer put in them: name a run of your own.",
        ),
    ] = None,
    modules: Modules = None,
    checkpoint_every: CheckpointEvery = None,
    keep_checkpoints: KeepCheckpoints = None,
    threads: Threads = None,
) -> None:
    """Train a policy with Stable-Baselines3; its folder holds the policy, the algorithm, checkpoints and progress."""
    import_modules(modules or [])
    given: dict[str, Any] = {"steps": steps, "checkpoint_every": checkpoint_every,
                             "keep_checkpoints": keep_checkpoints, "threads": threads}  # fmt: skip
    if resume is not None:
        refuse_fixed(resume, {"ENV_ID": env_id, "--algo": algo, "--model": model, "--set": settings, "--envs": envs,
                              "--seed": seed, "--frozen": frozen, "--out": out,
                              "--overwrite": overwrite or None})  # fmt: skip
        _resume(resumed_run(Run, COMMAND, resume, given, modules or [], "algorithm.zip"))
        return
    if env_id is None:
        raise ConfigError(f"{COMMAND}: name an environment, such as CartPole-v1, or a run to go on with: --resume DIR.")
    typed = {"model": key_values(model or [], "--model"), "settings": key_values(settings or [], "--set")}
    kept = new_run(Run, {"command": COMMAND, **given, **typed})
    if clash := sorted(set(kept.settings) & {"seed", "policy_kwargs"}):
        raise ConfigError(f"--set: {clash[0]!r} is set by --{'seed' if clash == ['seed'] else 'model'}.")
    if out is not None:
        refuse_taken(out, overwrite)  # before anything is built
    algo, envs, seed = algo or "PPO", 1 if envs is None else envs, 0 if seed is None else seed
    vec_env = _environments(env_id, kept, envs, seed)
    from rlcatalog_sb3.algorithms import make

    arguments = {"device": "cpu", **kept.settings, "seed": seed}
    algorithm = make(algo, vec_env, kept.model, frozen=frozen, **arguments)
    about = _resolved(kept, algo, envs, seed, algorithm)
    _run(algorithm, env_id, out or default_folder(env_id, algo, seed), kept, about, overwrite=overwrite)


def _resume(run: Resumed[Run]) -> None:
    """Go on with a run."""
    told, kept = run.config["algorithm"], run.kept
    algo, envs, seed = told.get("name", "PPO"), told.get("num_envs", 1), told.get("seed", 0)
    later = (seed + run.steps) % 2**32  # else its environments would begin as they did at first
    vec_env = _environments(run.env_id, kept, envs, later)
    from rlcatalog_sb3.keeping import restore

    device = kept.settings.get("device", "cpu")
    algorithm = restore(algo, run.checkpoint, vec_env, device=device, seed=later)
    print(
        f"going on after {run.steps} steps; Stable-Baselines3 restores neither environments nor random generators, so"
        " this is not, number for number, the run that would not have stopped"
    )
    about = _resolved(kept, algo, envs, seed, algorithm)
    _run(algorithm, run.env_id, run.folder, kept, about, after=run.steps)


def _environments(env_id: str, kept: Run, envs: int, seed: int) -> Any:
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3.flattening import for_sb3

    torch.set_num_threads(kept.threads)
    return make_vec_env(lambda: for_sb3(env_id, kept.model), n_envs=envs, seed=seed)


def _run(
    algorithm: Any,
    env_id: str,
    folder: Path,
    kept: Run,
    about: dict[str, Any],
    *,
    overwrite: bool = False,
    after: int | None = None,
) -> None:
    """Train to the end, or to an interrupt, and say what is where.

    Args:
        algorithm: The algorithm.
        env_id: The environment, as it was typed.
        folder: The run's folder.
        kept: How it is kept.
        about: Its resolved config.
        overwrite: Replace the run that the folder holds.
        after: A run that goes on: the steps it goes on from.
    """
    from rlcatalog_sb3.keeping import POLICY, Keeping, progress

    resumed, packages = after is not None, ("stable_baselines3", "sb3_contrib")
    try:
        with (
            run_folder(folder, overwrite, resume=resumed),
            recorded(folder, engine="sb3", packages=packages, resumed=resumed),
            interruptible(later=True) as interrupts,
        ):
            if after is not None:
                prune_checkpoints(folder, kept.keep_checkpoints, after)
            write_config(folder, env_id, about)
            algorithm.set_logger(progress(folder, after))
            keeping = Keeping(folder, kept.checkpoint_every, kept.keep_checkpoints, interrupts)
            try:
                algorithm.learn(kept.steps - (after or 0), keeping, reset_num_timesteps=not resumed)
            except BaseException:
                keeping.save_early()
                raise
            finally:
                algorithm.logger.close()
            keeping.finish()
    except Interrupted as interrupt:
        print(
            f"{interrupt}: stopped after {algorithm.num_timesteps} steps. Go on with: rlcatalog {COMMAND} --resume"
            f" {folder}",
            file=sys.stderr,
        )
        raise typer.Exit(interrupt.exit_status) from None
    finally:
        algorithm.get_env().close()
    if algorithm.ep_info_buffer:
        print(f"mean return of the last episodes: {statistics.fmean(e['r'] for e in algorithm.ep_info_buffer):.2f}")
    print(f"policy: {folder / POLICY}")


def _resolved(kept: Run, algo: str, envs: int, seed: int, algorithm: Any) -> dict[str, Any]:
    """Return the resolved config of a run, for its `config.json`; what could not be converted is refused here."""
    import stable_baselines3
    import torch

    from rlcatalog_sb3.exporting import to_policy

    with torch.random.fork_rng(devices=[]):  # a policy that is converted is built anew: its draws are not the run's
        policy = to_policy(algorithm)
    return {
        "steps": kept.steps,
        "framework": policy.framework,
        "algorithm": {"name": algo, "env_config": {}, "num_envs": envs, "seed": seed, **kept.settings},
        "model": plain(policy.config),
        "parts": {slot: choice.component.name for slot, choice in policy.resolution.choices.items()
                  if choice.component is not None},
        "run": msgspec.structs.asdict(kept),
        "rlcatalog": rlcatalog.__version__,
        "stable_baselines3": stable_baselines3.__version__,
    }  # fmt: skip
