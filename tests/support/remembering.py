"""Environments that need a memory."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete


class PositionOnly(gym.ObservationWrapper):
    """CartPole without velocities: cart position and pole angle."""

    def __init__(self, env):
        super().__init__(env)
        keep = [0, 2]
        self.observation_space = Box(
            env.observation_space.low[keep], env.observation_space.high[keep], dtype=np.float32
        )

    def observation(self, observation):
        return observation[[0, 2]]


def position_only():
    """Make CartPole-v1 without velocities."""
    return PositionOnly(gym.make("CartPole-v1"))


class Recall(gym.Env):
    """A cue, a gap, a question: which cue was it? Before the cue passes a time of random length.

    Observations `[cues + 1]`: a one-hot of the cue when it is shown, and 1 at the end when it is
    asked for; zeros in between. The answer pays 1 or nothing and ends the episode.

    Args:
        gap: Steps between cue and question.
        wait: Longest time before the cue.
        cues: Number of different cues; guessing pays one in that many.
    """

    def __init__(self, gap, wait, cues=4):
        self.gap, self.wait, self.cues = gap, wait, cues
        self.observation_space, self.action_space = (
            Box(0, 1, (cues + 1,), np.float32),
            Discrete(cues),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.shown = 0, int(self.np_random.integers(self.wait + 1))
        self.cue = int(self.np_random.integers(self.cues))
        return self._obs(), {}

    def step(self, action):
        asked = self.t == self.shown + self.gap
        self.t += 1
        return self._obs(), float(asked and action == self.cue), asked, False, {}

    def _obs(self):
        obs = np.zeros(self.cues + 1, np.float32)
        if self.t == self.shown:
            obs[self.cue] = 1
        if self.t == self.shown + self.gap:
            obs[-1] = 1
        return obs
