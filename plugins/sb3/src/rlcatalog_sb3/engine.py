"""The engine `sb3` for `rlcatalog train`: Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
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

        env_id, options = plan.env_id, plan.options
        # A resumed run has a different seed, so that its environments do not repeat their first
        # episodes.
        seed = derive_seed(plan.seed, SeedStream.ENGINE, plan.steps)
        torch.set_num_threads(options.threads)
        kind = SubprocVecEnv if options.vector == "async" else DummyVecEnv
        env = make_vec_env(
            lambda: for_sb3(env_id, options.model), n_envs=options.envs, seed=seed, vec_env_cls=kind
        )
        given: dict[str, Any] = {"env": env, "device": options.device, "seed": seed}
        if plan.checkpoint is None:
            self.algorithm = make(
                plan.algorithm,
                model=options.model,
                frozen=options.frozen,
                **options.settings,
                **given,
            )
        else:
            self.algorithm = restore(plan.algorithm, plan.checkpoint, **given)
        # Rejects policies that cannot be converted.
        self._policy = describe_policy(policy_of(self.algorithm))

    @property
    def steps(self) -> int:
        return int(self.algorithm.num_timesteps)

    def describe(self) -> Mapping[str, Any]:
        plan, options = self.plan, self.plan.options
        begun = {
            "name": plan.algorithm,
            "env_config": {},
            "num_envs": options.envs,
            "seed": plan.seed,
        }
        return {"algorithm": {**begun, **options.settings}, **self._policy}

    def learn(self, session: Session) -> None:
        from stable_baselines3.common.logger import Logger

        from rlcatalog_sb3.checkpoints import CheckpointCallback, RowWriter, Stopped

        steps = session.options.steps - self.plan.steps
        self.algorithm.set_logger(Logger(None, [RowWriter(session, self.algorithm)]))
        callback = CheckpointCallback(session)
        try:
            self.algorithm.learn(steps, callback, reset_num_timesteps=self.plan.checkpoint is None)
        except Stopped:
            pass
        except BaseException:
            callback.save_early()
            raise
        callback.save()

    def close(self) -> None:
        close_env(self.algorithm.get_env())
