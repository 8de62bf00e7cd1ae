"""The command `train-rllib`."""

from __future__ import annotations

import importlib
import logging
import math
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from rlcatalog.errors import ConfigError, SavedPolicyError, UnknownNameError, nearest, reason
from rlcatalog_cli import (
    CheckpointEvery,
    EnvId,
    KeepCheckpoints,
    ModelKeys,
    Modules,
    Overwrite,
    Seed,
    Steps,
    key_values,
)
from rlcatalog_runs import (
    CHECKPOINTS,
    Interrupted,
    KeptRun,
    Resumed,
    checkpoint_name,
    cut_rows,
    default_folder,
    import_modules,
    interruptible,
    json_line,
    new_checkpoint,
    new_run,
    prune_checkpoints,
    recorded,
    refuse_fixed,
    refuse_taken,
    resumed_run,
    run_folder,
    write_config,
)

COMMAND = "train-rllib"
#: Name of an algorithm → its config class.
ALGORITHMS = {
    "PPO": "ray.rllib.algorithms.ppo:PPOConfig",
    "APPO": "ray.rllib.algorithms.appo:APPOConfig",
    "IMPALA": "ray.rllib.algorithms.impala:IMPALAConfig",
    "DQN": "ray.rllib.algorithms.dqn:DQNConfig",
    "SAC": "ray.rllib.algorithms.sac:SACConfig",
}
#: Folder of Ray's own checkpoint in a run's, and in each of its checkpoints.
CHECKPOINT, ALGORITHM = "checkpoint", "algorithm"
METRICS, POLICY = "metrics.jsonl", "policy"
#: What Ray takes elsewhere than in `config.training()`, and where this command does.
OPTIONS = {"num_env_runners": "--env-runners", "num_envs_per_env_runner": "--envs", "seed": "--seed"}


class Run(KeptRun, kw_only=True, frozen=True):
    """How a run is kept, and what it was begun with.

    Attributes:
        env_runners: Processes that gather experience.
        envs: Environments in each of them.
    """

    env_runners: int = 2
    envs: int = 4


def train_rllib(
    env_id: EnvId = None,
    algo: Annotated[str | None, typer.Option(help="PPO, APPO, IMPALA, DQN or SAC; PPO when missing.")] = None,
    model: ModelKeys = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of config.training(), such as lr=0.0003; repeatable."),
    ] = None,
    steps: Steps = None,
    env_runners: Annotated[
        int | None, typer.Option(min=0, help="Processes that gather experience, 0: this one; 2 when missing.")
    ] = None,
    envs: Annotated[int | None, typer.Option(min=1, help="Environments in each of them; 4 when missing.")] = None,
    seed: Seed = None,
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
) -> None:
    """Train a policy with Ray RLlib; its folder holds the policy, metrics, checkpoints and Ray's last one."""
    import_modules(modules or [])
    kept: dict[str, Any] = {"steps": steps, "checkpoint_every": checkpoint_every, "keep_checkpoints": keep_checkpoints}
    if resume is not None:
        refuse_fixed(resume, {"ENV_ID": env_id, "--algo": algo, "--model": model, "--set": settings,
                              "--env-runners": env_runners, "--envs": envs, "--seed": seed, "--out": out,
                              "--overwrite": overwrite or None})  # fmt: skip
        _resume(resumed_run(Run, COMMAND, resume, kept, modules or [], ALGORITHM))
        return
    if env_id is None:
        raise ConfigError(f"{COMMAND}: name an environment, such as CartPole-v1, or a run to go on with: --resume DIR.")
    given, chosen = key_values(settings or [], "--set"), key_values(model or [], "--model")
    for key, option in OPTIONS.items():
        if key in given:
            raise ConfigError(f"--set {key}: it is no key of config.training(). Say {option} {given[key]}.")
    if out is not None:
        refuse_taken(out, overwrite)  # before anything is built
    algo, seed = algo or "PPO", 0 if seed is None else seed
    run = new_run(Run, {"command": COMMAND, **kept, "env_runners": env_runners, "envs": envs})
    config = _configured(env_id, algo, given, chosen, run, seed)
    about = _about(run, algo, given, chosen, seed)
    _run(config, env_id, out or default_folder(env_id, algo, seed), run, about, overwrite=overwrite)


def _resume(run: Resumed[Run]) -> None:
    """Go on with a run."""
    told = dict(run.config["algorithm"])
    algo, chosen, seed = told.pop("name", "PPO"), run.config.get("model", {}), run.config.get("seed", 0)
    del told["env_config"]
    later = (seed + run.steps) % 2**32  # else its environments would begin as they did at first
    config = _configured(run.env_id, algo, told, chosen, run.kept, later)
    print(
        f"going on after {run.steps} steps; RLlib restores neither environments, random generators nor replay buffers,"
        " so this is not, number for number, the run that would not have stopped"
    )
    about = _about(run.kept, algo, told, chosen, seed)
    _run(config, run.env_id, run.folder, run.kept, about, resumed=run)


def _configured(env_id: str, algo: str, given: dict[str, Any], chosen: dict[str, Any], kept: Run, seed: int) -> Any:
    from rlcatalog_rllib import configure

    config = _training(_config_class(algo)(), given)
    config.env_runners(num_env_runners=kept.env_runners, num_envs_per_env_runner=kept.envs)
    config.reporting(min_time_s_per_iteration=0).debugging(seed=seed, log_level="ERROR")
    return configure(config, env_id, model=chosen)


def _about(kept: Run, algo: str, given: dict[str, Any], chosen: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return what a run's `config.json` says."""
    return {
        "steps": kept.steps,
        "framework": "torch",
        "seed": seed,
        "algorithm": {"name": algo, "env_config": {}, **given},
        "model": chosen,
        "run": msgspec.structs.asdict(kept),
    }


def _run(
    config: Any,
    env_id: str,
    folder: Path,
    kept: Run,
    about: dict[str, Any],
    *,
    overwrite: bool = False,
    resumed: Resumed[Run] | None = None,
) -> None:
    """Train to the end, or to an interrupt, and say what is where."""
    try:
        with (
            run_folder(folder, overwrite, resume=resumed is not None),
            recorded(folder, engine="rllib", packages=("ray",), resumed=resumed is not None),
        ):
            if resumed is None:
                _forget(folder / CHECKPOINT)
            else:
                prune_checkpoints(folder, kept.keep_checkpoints, resumed.steps)
            write_config(folder, env_id, about)
            _train(config, folder, kept, resumed)
    except Interrupted as interrupt:
        print(f"{interrupt}: stopped. Go on with: rlcatalog {COMMAND} --resume {folder}", file=sys.stderr)
        raise typer.Exit(interrupt.exit_status) from None
    print(f"policy: {folder / POLICY}")


def _forget(checkpoint: Path) -> None:
    """Remove Ray's checkpoint of a run that was replaced; of a link, the link alone."""
    if checkpoint.is_symlink():
        checkpoint.unlink()
    elif (checkpoint / "rllib_checkpoint.json").is_file():
        shutil.rmtree(checkpoint)


def _train(config: Any, folder: Path, kept: Run, resumed: Resumed[Run] | None) -> None:
    """Train to the end; metrics are written as they come, and the run is kept between iterations."""
    import ray

    ours = not ray.is_initialized()
    if ours:
        hook = {"worker_process_setup_hook": "rlcatalog_rllib.prepare_worker"}
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, runtime_env=hook)
    trained = None
    try:
        with interruptible(later=True) as interrupts:  # within Ray, whose own handlers would end the process at once
            trained = config.build_algo()
            done = 0
            if resumed is not None:
                _restore(trained, resumed.checkpoint)
                done = resumed.steps
                cut_rows(folder / METRICS, "timesteps_total", done)
            last = done
            _keep(trained, folder, done, kept.keep_checkpoints)
            with (folder / METRICS).open("w" if resumed is None else "a", encoding="utf-8") as metrics:
                while done < kept.steps and interrupts.pending is None:
                    row = _row(trained.train())
                    done = row["timesteps_total"]
                    metrics.write(json_line(row))
                    metrics.flush()
                    print(f"{done} steps, mean return {row['episode_return_mean']}")
                    if kept.checkpoint_every and done // kept.checkpoint_every > last // kept.checkpoint_every:
                        _keep(trained, folder, done, kept.keep_checkpoints)
                        last = done
            _keep(trained, folder, done, kept.keep_checkpoints)
            if done < kept.steps:
                interrupts.check()
            trained.save_to_path(str((folder / CHECKPOINT).absolute()))
    finally:
        if trained is not None:
            trained.stop()
        if ours:
            ray.shutdown()


def _keep(trained: Any, folder: Path, steps: int, keep: int) -> None:
    """Write the policy and a checkpoint."""
    from rlcatalog_rllib import to_policy

    policy = to_policy(trained)
    policy.save(folder / POLICY)
    path = folder / CHECKPOINTS / checkpoint_name(steps)
    if not path.is_dir():
        with new_checkpoint(path) as new:
            policy.save(new / POLICY)
            trained.save_to_path(str((new / ALGORITHM).absolute()))
        prune_checkpoints(folder, keep)


def _restore(trained: Any, checkpoint: Path) -> None:
    try:
        trained.restore_from_path(str((checkpoint / ALGORITHM).absolute()))
    except SavedPolicyError:
        raise
    except Exception as error:
        raise SavedPolicyError(f"{checkpoint}: no checkpoint, or damaged: {reason(error)}") from error


def _config_class(algo: str) -> Any:
    if algo not in ALGORITHMS:
        raise UnknownNameError(
            f"--algo: unknown algorithm {algo!r}.{nearest(algo, ALGORITHMS)} Served: {', '.join(ALGORITHMS)}."
        )
    module, _, name = ALGORITHMS[algo].partition(":")
    return getattr(importlib.import_module(module), name)


def _training(config: Any, given: dict[str, Any]) -> Any:
    """Return the config with `config.training(**given)`."""
    try:
        return config.training(**given)
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"--set: {type(config).__name__}.training() takes no such key: {error}") from error


def _row(result: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a result: steps so far, and the mean return of the last episodes or None."""
    mean = result.get("env_runners", {}).get("episode_return_mean")
    mean = None if mean is None or math.isnan(mean) else round(float(mean), 3)
    return {"timesteps_total": int(result["num_env_steps_sampled_lifetime"]), "episode_return_mean": mean}
