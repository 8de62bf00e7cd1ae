"""The command `train-rllib`."""

from __future__ import annotations

import importlib
import logging
import math
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from rlcatalog.cli import (
    default_folder,
    json_line,
    key_values,
    recorded,
    refuse_taken,
    run_folder,
    write_config,
)
from rlcatalog.errors import ConfigError, UnknownNameError, nearest

#: Name of an algorithm → its config class.
ALGORITHMS = {
    "PPO": "ray.rllib.algorithms.ppo:PPOConfig",
    "APPO": "ray.rllib.algorithms.appo:APPOConfig",
    "IMPALA": "ray.rllib.algorithms.impala:IMPALAConfig",
    "DQN": "ray.rllib.algorithms.dqn:DQNConfig",
    "SAC": "ray.rllib.algorithms.sac:SACConfig",
}
#: Folder of Ray's own checkpoint in a run's.
CHECKPOINT = "checkpoint"
#: What Ray takes elsewhere than in `config.training()`, and where this command does.
OPTIONS = {"num_env_runners": "--env-runners", "num_envs_per_env_runner": "--envs", "seed": "--seed"}


def train_rllib(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")],
    algo: Annotated[str, typer.Option(help="PPO, APPO, IMPALA, DQN or SAC.")] = "PPO",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of config.training(), such as lr=0.0003; repeatable."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps to train for.")] = 100_000,
    env_runners: Annotated[int, typer.Option(min=0, help="Processes that gather experience; 0: this one.")] = 2,
    envs: Annotated[int, typer.Option(min=1, help="Environments in each of them.")] = 4,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of environments, weights and sampling.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; a new one, runs/ENV_ID/TIME-ALGO-seedN, when missing.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")] = False,
) -> None:
    """Train a policy with Ray RLlib; leaves metrics.jsonl, config.json, the saved policy and Ray's checkpoint."""
    given, chosen = key_values(settings or [], "--set"), key_values(model or [], "--model")
    for key, option in OPTIONS.items():
        if key in given:
            raise ConfigError(f"--set {key}: it is no key of config.training(). Say {option} {given[key]}.")
    from rlcatalog_rllib import configure

    if out is not None:
        refuse_taken(out, overwrite)  # before anything is built
    config = _training(_config_class(algo)(), given)
    config.env_runners(num_env_runners=env_runners, num_envs_per_env_runner=envs)
    config.reporting(min_time_s_per_iteration=0).debugging(seed=seed, log_level="ERROR")
    configure(config, env_id, model=chosen)
    algorithm = {"name": algo, "env_config": {}, **given}
    about = {"steps": steps, "framework": "torch", "seed": seed, "algorithm": algorithm, "model": chosen}
    folder = out or default_folder(env_id, algo, seed)
    with run_folder(folder, overwrite), recorded(folder, engine="rllib", packages=("ray",)):
        if (folder / CHECKPOINT / "rllib_checkpoint.json").is_file():  # of the run that is replaced
            shutil.rmtree(folder / CHECKPOINT)
        write_config(folder, env_id, about)
        _train(config, folder, steps)
    print(f"policy: {folder / 'policy'}")


def _train(config: Any, folder: Path, steps: int) -> None:
    """Train to the end; metrics are written as they come, then the policy."""
    import ray

    from rlcatalog_rllib import to_policy

    ours = not ray.is_initialized()
    if ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    trained = None
    try:
        trained = config.build_algo()
        done = 0
        with (folder / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
            while done < steps:
                row = _row(trained.train())
                done = row["timesteps_total"]
                metrics.write(json_line(row))
                metrics.flush()
                print(f"{done} steps, mean return {row['episode_return_mean']}")
        to_policy(trained).save(folder / "policy")
        trained.save_to_path(str((folder / CHECKPOINT).absolute()))
    finally:
        if trained is not None:
            trained.stop()
        if ours:
            ray.shutdown()


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
