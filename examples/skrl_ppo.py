"""The catalog's nets in skrl's PPO, with skrl's own agent and trainer.

skrl's mixins draw and score actions themselves, so skrl only needs nets.
`rlcatalog_torch.actor_critic(policy)` returns them: an actor, whose outputs are logits
for a `CategoricalMixin`, and a critic. If you use a `GaussianMixin`, split the outputs
with `mean, log_std = outputs.chunk(2, -1)`.

Run the script with `python examples/skrl_ppo.py`, in a Python environment that contains
skrl.
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

import rlcatalog
from rlcatalog_torch import actor_critic

NUM_ENVS = 8
LENGTH = 128


class ActorCritic(CategoricalMixin, DeterministicMixin, Model):
    """Policy and value function in one skrl model."""

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
        config = {"fcnet_hiddens": [64, 64], "vf_share_layers": False}
        policy = rlcatalog.build(
            observation_space, action_space, config, framework="torch"
        )
        self.actor, self.critic, _ = actor_critic(policy)

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
