"""An environment that observes the numbers of its episode and step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete


class NumberedEpisodes(gym.Env):
    """Observes [episode, step] / 10, and pays 1, 2, 3, … for the steps of an episode.

    Episodes take 6, 3, 9 and 1 steps in turn. Those of 6 and 9 steps terminate, the others are
    truncated.

    Args:
        first_episode: Number of the first episode.
    """

    observation_space = Box(-1e3, 1e3, (2,), np.float32)
    action_space = Discrete(3)
    lengths = (6, 3, 9, 1)

    def __init__(self, first_episode=0):
        self.episode = first_episode - 1

    def reset(self, *, seed=None, options=None):
        """Begin the next episode."""
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        """Take a step."""
        self.t += 1
        is_over = self.t == self.lengths[self.episode % 4]
        is_even = self.episode % 2 == 0
        return self._observe(), float(self.t), is_over and is_even, is_over and not is_even, {}

    def _observe(self):
        return np.array([self.episode, self.t], np.float32) / 10


def read_numbers(obs):
    """Return the numbers of episodes and steps in observations `[..., 2]`."""
    numbers = (obs * 10).round().astype(int)
    return numbers[..., 0], numbers[..., 1]


def find_ends(episode, step):
    """Return whether the next step terminates the episode, and whether it truncates it."""
    is_last = step + 1 == np.array(NumberedEpisodes.lengths)[episode % 4]
    return is_last & (episode % 2 == 0), is_last & (episode % 2 == 1)
