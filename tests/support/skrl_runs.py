"""Environments and agents of skrl for tests and benchmarks."""

from __future__ import annotations

from typing import Any

import torch
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from torch import Tensor

from rlcatalog_skrl import PPO, PPO_RNN, CatalogEnv, CatalogModel


class SkrlEnv:
    """An environment of `tensor_envs` with the interface that `CatalogEnv` takes.

    Args:
        env: The environment.
        reward_scale: Factor for the rewards.
    """

    def __init__(self, env: Any, reward_scale: float = 1.0) -> None:
        self.tensor_env = env
        self.num_envs = env.num_envs
        self.device = env.device
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self._reward_scale = reward_scale

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self.tensor_env.observe(), {}

    def step(self, actions: Any) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]:
        obs, rewards, terminated, truncated = self.tensor_env.step(actions)
        return obs, rewards * self._reward_scale, terminated, truncated, {}

    def close(self) -> None:
        """Do nothing."""


def settings_of(steps: int, **settings: Any) -> dict[str, Any]:
    """Return an agent's settings, which write no files.

    Args:
        steps: Steps of each environment in a rollout.
        settings: Other settings.
    """
    experiment = {"write_interval": 0, "checkpoint_interval": 0}
    return {"rollouts": steps, "experiment": experiment, **settings}


def make_agent(env: Any, model: Any, agent_class: Any, steps: int, **settings: Any) -> Any:
    """Return an agent for a model that is both its policy and its value function."""
    return agent_class(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=steps, num_envs=env.num_envs, device=env.device),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device=env.device,
        cfg=settings_of(steps, **settings),
    )


def make_catalog_agent(
    tensor_env: Any,
    model_config: dict[str, Any],
    steps: int = 8,
    seed: int = 0,
    sequence_length: int | None = None,
    reward_scale: float = 1.0,
    **settings: Any,
) -> tuple[Any, CatalogEnv]:
    """Return an agent with a catalog policy, and its environment."""
    torch.manual_seed(seed)
    env = CatalogEnv(SkrlEnv(tensor_env, reward_scale), model_config)
    model = CatalogModel(env, sequence_length)
    agent_class = PPO_RNN if env.policy.memory else PPO
    return make_agent(env, model, agent_class, steps, **settings), env


def make_trainer(agent: Any, env: Any, updates: int) -> SequentialTrainer:
    """Return a trainer for a number of updates."""
    options = {
        "timesteps": updates * agent.cfg.rollouts,
        "headless": True,
        "disable_progressbar": True,
    }
    return SequentialTrainer(env=env, agents=agent, cfg=options)
