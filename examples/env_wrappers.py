"""Environment wrappers instead of custom preprocessors: they change observations,
rewards and actions.

Run it with `python examples/env_wrappers.py`.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np

from rlcatalog import one_hot
from rlcatalog_ppo import PPO


class OneHotEnv(gym.ObservationWrapper):
    """Wrapper that turns numbers in `[0, depth)` into one-hot vectors."""

    def __init__(self, env: gym.Env, depth: int) -> None:
        super().__init__(env)
        self.depth = depth
        self.observation_space = gym.spaces.Box(0.0, 1.0, (depth,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Return a number as a one-hot vector."""
        return one_hot(observation, depth=self.depth)


class ClipRewardEnv(gym.RewardWrapper):
    """Wrapper that clips rewards to a minimum and a maximum."""

    def __init__(self, env: gym.Env, min_: float, max_: float) -> None:
        super().__init__(env)
        self.min = min_
        self.max = max_

    def reward(self, reward: Any) -> float:
        """Return the clipped reward."""
        return float(np.clip(reward, self.min, self.max))


class NamedMoves(gym.ActionWrapper):
    """Wrapper that offers two of the four moves: 0 goes down, 1 goes right."""

    MOVES = (1, 2)

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(len(self.MOVES))

    def action(self, action: Any) -> int:
        """Return the number that the environment uses for a move."""
        return self.MOVES[int(action)]


def frozen_lake(config: dict[str, Any]) -> gym.Env:
    """Make a FrozenLake environment without slipping, in which going down and right is
    enough.
    """
    env = gym.make("FrozenLake-v1", is_slippery=False, **config)
    return NamedMoves(ClipRewardEnv(OneHotEnv(env, depth=16), min_=-1.0, max_=1.0))


def main() -> None:
    """Train a policy and print its mean return."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    algo = PPO(env=frozen_lake, config={"model": {"fcnet_hiddens": [64]}, "seed": 0})
    for _ in range(arguments.iterations):
        result = algo.train()
        print(
            f"{result['timesteps_total']:7d} steps, mean return"
            f" {result['episode_return_mean']}"
        )
    algo.stop()


if __name__ == "__main__":
    main()
