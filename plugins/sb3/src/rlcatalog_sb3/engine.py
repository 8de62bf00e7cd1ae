"""The engine `sb3` for `rlcatalog train`: Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog.catalog import close_env
from rlcatalog_runs import (
    Engine,
    RunOptions,
    RunPlan,
    SeedStream,
    Session,
    derive_seed,
    describe_policy,
)
from rlcatalog_sb3.algorithms import ALGORITHMS, make

#: Losses of algorithms that learn from rollouts, and of those with an actor and critics.
_ROLLOUT_LOSSES = {
    "policy loss": "train/policy_gradient_loss",
    "value loss": "train/value_loss",
    "KL": "train/approx_kl",
}
_ACTOR_AND_CRITIC_LOSSES = {"actor loss": "train/actor_loss", "critic loss": "train/critic_loss"}
#: Algorithm → title of a column of `rlcatalog train` → the logger's column that it shows.
_COLUMNS = {
    "PPO": _ROLLOUT_LOSSES,
    "MaskablePPO": _ROLLOUT_LOSSES,
    "RecurrentPPO": _ROLLOUT_LOSSES,
    "A2C": {"policy loss": "train/policy_loss", "value loss": "train/value_loss"},
    "DQN": {"loss": "train/loss"},
    "SAC": _ACTOR_AND_CRITIC_LOSSES,
    "TD3": _ACTOR_AND_CRITIC_LOSSES,
}


class SB3Options(RunOptions, kw_only=True, frozen=True):
    """Options for the engine, in addition to the common ones, and run settings."""

    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    device: str = "cpu"
    envs: Annotated[int, Meta(ge=1)] = 1
    vector: Literal["sync", "async"] = "sync"
    frozen: str | None = None
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class SB3Engine(Engine):
    """Engine for Stable-Baselines3. Creating an instance imports PyTorch."""

    options = SB3Options
    algorithms = tuple(ALGORITHMS)
    checkpoint = "algorithm.zip"
    packages = ("stable_baselines3", "sb3_contrib")
    fixed = frozenset({"settings", "envs", "vector", "frozen"})
    reserved = {"seed": "--seed", "policy_kwargs": "--model", "device": "--device"}  # noqa: RUF012
    trusts_checkpoints = True
    not_restored = (
        "Stable-Baselines3 restores neither environments nor random generators, so this run"
        " differs from an uninterrupted one"
    )

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan)
        import torch
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        from rlcatalog_sb3.checkpoints import policy_of, restore
        from rlcatalog_sb3.flat_spaces import for_sb3

        options = plan.options
        # A resumed run has a different seed, so that its environments do not repeat their first
        # episodes.
        seed = derive_seed(plan.seed, SeedStream.ENGINE, plan.steps)
        torch.set_num_threads(options.threads)
        env = make_vec_env(
            partial(for_sb3, plan.env_id, options.model),
            n_envs=options.envs,
            seed=seed,
            vec_env_cls=SubprocVecEnv if options.vector == "async" else DummyVecEnv,
        )
        if plan.checkpoint is None:
            self.algorithm = make(
                plan.algorithm,
                env=env,
                model=options.model,
                frozen=options.frozen,
                device=options.device,
                seed=seed,
                **options.settings,
            )
        else:
            self.algorithm = restore(
                plan.algorithm, plan.checkpoint, env=env, device=options.device, seed=seed
            )
        # A policy that cannot be converted raises an error here, before the run begins.
        policy = policy_of(self.algorithm)
        self._policy_description = describe_policy(policy)

    @property
    def steps(self) -> int:
        return int(self.algorithm.num_timesteps)

    @property
    def columns(self) -> Mapping[str, str]:
        return _COLUMNS[self.plan.algorithm]

    def describe(self) -> Mapping[str, Any]:
        options = self.plan.options
        algorithm = {
            "name": self.plan.algorithm,
            "env_config": {},  # this engine passes no arguments to the environment
            "num_envs": options.envs,
            "seed": self.plan.seed,
            **options.settings,
        }
        return {"algorithm": algorithm, **self._policy_description}

    def learn(self, session: Session) -> None:
        from stable_baselines3.common.logger import Logger

        from rlcatalog_sb3.checkpoints import CheckpointCallback, RowWriter, Stopped, policy_of

        session.begin(policy_of(self.algorithm), str(self.algorithm.device))
        remaining_steps = session.options.steps - self.plan.steps
        logger = Logger(folder=None, output_formats=[RowWriter(session, self.algorithm)])
        self.algorithm.set_logger(logger)
        callback = CheckpointCallback(session)
        is_new_run = self.plan.checkpoint is None
        try:
            self.algorithm.learn(remaining_steps, callback, reset_num_timesteps=is_new_run)
        except Stopped:
            pass  # the run has reached its target, and is saved below
        except BaseException:  # also a signal that ends the run
            callback.save_early()
            raise
        callback.save()

    def close(self) -> None:
        close_env(self.algorithm.get_env())
