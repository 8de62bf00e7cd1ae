"""skrl's PPO with hand-written nets.

`examples/skrl_ppo.py` is the same script with the catalog's nets. Run this one with
`python examples/hand_written/skrl_ppo.py`, where skrl is installed.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

NUM_ENVS = 8
LENGTH = 128


def net_of(inputs: int, outputs: int) -> nn.Sequential:
    """Return a net of two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, outputs),
    )


class ActorCritic(CategoricalMixin, DeterministicMixin, Model):
    """Policy and value function in one model of skrl."""

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, device: Any
    ) -> None:
        Model.__init__(
            self,
            observation_space=observation_space,
            action_space=action_space,
            device=device,
        )
        CategoricalMixin.__init__(self, role="policy")
        DeterministicMixin.__init__(self, role="value")
        inputs = self.num_observations
        actions = self.num_actions
        self.actor = net_of(inputs, actions)
        self.critic = net_of(inputs, 1)

    def act(self, inputs, *, role=""):
        """Return actions, or values."""
        mixin = CategoricalMixin if role == "policy" else DeterministicMixin
        return mixin.act(self, inputs, role=role)

    def compute(self, inputs, role=""):
        """Return logits, or values."""
        return (self.actor if role == "policy" else self.critic)(
            inputs["observations"]
        ), {}


def main() -> None:
    """Train, and print the mean return of recent episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument(
        "--iterations", type=int, default=60, help=f"of {NUM_ENVS * LENGTH} steps"
    )
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    autoreset = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec(
        arguments.env, NUM_ENVS, vectorization_mode="sync", vector_kwargs=autoreset
    )
    episodes = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    env = wrap_env(episodes, wrapper="gymnasium")

    model = ActorCritic(env.observation_space, env.action_space, env.device).to(
        env.device
    )
    settings = {
        "rollouts": LENGTH,
        "learning_epochs": 10,
        "mini_batches": 4,
        "learning_rate": 1e-3,
        "value_loss_scale": 0.5,
        "value_clip": 0.0,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    agent = PPO(
        models={"policy": model, "value": model},
        memory=RandomMemory(memory_size=LENGTH, num_envs=NUM_ENVS, device=env.device),
        observation_space=env.observation_space,
        action_space=env.action_space,
        device=env.device,
        cfg=settings,
    )
    options = {
        "timesteps": arguments.iterations * LENGTH,
        "headless": True,
        "disable_progressbar": True,
    }
    SequentialTrainer(env=env, agents=agent, cfg=options).train()
    returns = list(episodes.return_queue)[-20:]
    print(
        f"{arguments.iterations * NUM_ENVS * LENGTH:7d} steps, mean return"
        f" {np.mean(returns):.1f}"
    )


if __name__ == "__main__":
    main()
