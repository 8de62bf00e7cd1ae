"""A catalog policy in skrl's PPO, with skrl's own trainer and memory.

`CatalogEnv` builds the policy for the environment's spaces. skrl's agent takes a model
for the policy and a model for the value, and `CatalogModel` serves as both. Any model
config works here. With a memory, use `rlcatalog_skrl.PPO_RNN` instead of `PPO`.

Run the script with `python examples/skrl_ppo.py`, in a Python environment that contains
skrl.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer

from rlcatalog_skrl import PPO, CatalogEnv, CatalogModel

NUM_ENVS = 8
LENGTH = 128


def main() -> None:
    """Train, and print the mean return of recent episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument(
        "--iterations", type=int, default=120, help=f"of {NUM_ENVS * LENGTH} steps"
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

    env = CatalogEnv(env, {"fcnet_hiddens": [64, 64]})
    model = CatalogModel(env)
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
