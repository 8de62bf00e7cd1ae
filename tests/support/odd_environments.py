"""Environments that break Gymnasium's habits, not its interface."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class FiveSteps(gym.Env):
    """Ends after five steps; subclasses break one habit each."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, self.t == 5, {}


class WithoutGenerator(FiveSteps):
    @property
    def np_random(self):
        raise NotImplementedError("this environment has no generator")


class OddUnwrapped(FiveSteps):
    @property
    def unwrapped(self):
        return object()


class WithoutMetadata(FiveSteps):
    metadata = None


class RaisingAttributes(FiveSteps):
    def __getattr__(self, name):
        raise RuntimeError(f"the simulator has no {name}")
