"""The command `train-sb3`."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

import rlcatalog
from rlcatalog.cli import default_folder, key_values, recorded, refuse_taken, run_folder, write_config
from rlcatalog.config import plain
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import before_tensorflow

#: What a run's folder holds beside its config.
POLICY, ALGORITHM = "policy", "algorithm.zip"


def train_sb3(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A Gymnasium environment, such as CartPole-v1.")],
    algo: Annotated[
        str, typer.Option(help="PPO, A2C, DQN, SAC or TD3; with sb3-contrib MaskablePPO or RecurrentPPO.")
    ] = "PPO",
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="KEY=VALUE", help="A key of the model config; repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An argument of the algorithm, such as gamma=0.9; repeatable."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps to train for.")] = 100_000,
    envs: Annotated[int, typer.Option(min=1, help="Environments stepped side by side.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of environments, weights and sampling.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; a new one, runs/ENV_ID/TIME-ALGO-seedN, when missing.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")] = False,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads; small networks are fastest with one.")] = 1,
) -> None:
    """Train a policy with Stable-Baselines3; leaves progress.csv, config.json, the algorithm and the saved policy."""
    before_tensorflow()  # see rlcatalog_sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import configure

    from rlcatalog_sb3.algorithms import make
    from rlcatalog_sb3.exporting import to_policy
    from rlcatalog_sb3.flattening import for_sb3

    config, given = key_values(model or [], "--model"), key_values(settings or [], "--set")
    if clash := sorted(set(given) & {"seed", "policy_kwargs"}):
        raise ConfigError(f"--set: {clash[0]!r} is set by --{'seed' if clash == ['seed'] else 'model'}.")
    if out is not None:
        refuse_taken(out, overwrite)  # before anything is built
    torch.set_num_threads(threads)
    vec_env = make_vec_env(lambda: for_sb3(env_id, config), n_envs=envs, seed=seed)
    algorithm = make(algo, vec_env, config, **{"device": "cpu", **given, "seed": seed})
    with torch.random.fork_rng(devices=[]):  # a policy that is converted is built anew: its draws are not the run's
        policy = to_policy(algorithm)
    folder = out or default_folder(env_id, algo, seed)
    engine, packages = "sb3", ("stable_baselines3", "sb3_contrib")
    with run_folder(folder, overwrite), recorded(folder, engine=engine, packages=packages):
        write_config(folder, env_id, _resolved(steps, algo, envs, given, seed, policy))
        algorithm.set_logger(configure(str(folder), ["csv"]))
        try:
            algorithm.learn(steps)
        finally:
            algorithm.logger.close()
        to_policy(algorithm).save(folder / POLICY)
        algorithm.save(folder / ALGORITHM)
    vec_env.close()
    if algorithm.ep_info_buffer:
        print(f"mean return of the last episodes: {statistics.fmean(e['r'] for e in algorithm.ep_info_buffer):.2f}")
    print(f"policy: {folder / POLICY}")


def _resolved(steps: int, algo: str, envs: int, given: dict[str, Any], seed: int, policy: Any) -> dict[str, Any]:
    import stable_baselines3

    return {
        "steps": steps,
        "framework": policy.framework,
        "algorithm": {"name": algo, "env_config": {}, "num_envs": envs, "seed": seed, **given},
        "model": plain(policy.config),
        "parts": {slot: choice.component.name for slot, choice in policy.resolution.choices.items()
                  if choice.component is not None},
        "rlcatalog": rlcatalog.__version__,
        "stable_baselines3": stable_baselines3.__version__,
    }  # fmt: skip
