"""Environments and runners of rsl_rl for tests and benchmarks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import Tensor


class RslEnv(VecEnv):
    """An environment of `tensor_envs` with rsl_rl's interface.

    Args:
        env: The environment. If its observations are a dict, each entry is a group; otherwise they
            are the group `"policy"`.
        num_actions: Number of raw values of an action.
        reward_scale: Factor for the rewards.
    """

    def __init__(self, env: Any, num_actions: int = 1, reward_scale: float = 1.0) -> None:
        self.tensor_env = env
        self.num_envs = env.num_envs
        self.num_actions = num_actions
        self.max_episode_length = env.limit
        self.device = env.device
        self.cfg: dict[str, Any] = {}
        self._reward_scale = reward_scale

    @property
    def episode_length_buf(self) -> Tensor:
        return self.tensor_env.steps

    @episode_length_buf.setter
    def episode_length_buf(self, steps: Tensor) -> None:
        self.tensor_env.steps = steps

    def get_observations(self) -> TensorDict:
        return self._in_groups(self.tensor_env.observe())

    def step(self, actions: Any) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        obs, rewards, terminated, truncated = self.tensor_env.step(actions)
        dones = (terminated | truncated).long()
        return self._in_groups(obs), rewards * self._reward_scale, dones, {"time_outs": truncated}

    def _in_groups(self, obs: Tensor | dict[str, Tensor]) -> TensorDict:
        groups = obs if isinstance(obs, dict) else {"policy": obs}
        return TensorDict(groups, [self.num_envs])


def catalog_config(
    model_config: Mapping[str, Any] | None = None,
    obs_groups: Mapping[str, list[str]] | None = None,
    steps: int = 24,
    **algorithm: Any,
) -> dict[str, Any]:
    """Return the config of a runner with a catalog policy.

    Args:
        model_config: The model config.
        obs_groups: The groups of each side; None means the group `"policy"` for both.
        steps: Steps of each environment in a rollout.
        algorithm: Settings of PPO.
    """
    groups = {"actor": ["policy"], "critic": ["policy"]}
    return {
        "num_steps_per_env": steps,
        "save_interval": 1000,
        "obs_groups": dict(obs_groups or groups),
        "actor": {
            "class_name": "rlcatalog_rsl_rl:CatalogActor",
            "model_config": dict(model_config or {}),
        },
        "critic": {"class_name": "rlcatalog_rsl_rl:CatalogCritic"},
        "algorithm": {"class_name": "rlcatalog_rsl_rl:CatalogPPO", **algorithm},
    }


def make_runner(
    env: VecEnv, config: dict[str, Any], seed: int = 0, log_dir: str | None = None
) -> OnPolicyRunner:
    """Return a runner, without what it prints."""
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return OnPolicyRunner(env, config, log_dir)


def learn(runner: OnPolicyRunner, iterations: int) -> None:
    """Train, without what the runner prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        runner.learn(iterations)
