"""Environment whose values depend on something that the policy need not see."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

#: Steps of an episode.
STEPS = 10


class HiddenLevel(gym.Env):
    """An episode's level is drawn at its start, and is part of every reward; the action earns 1 if
    it names the sign of `x[0]`. The policy needs no level, but the value depends on it.
    """

    observation_space = Dict(
        {"level": Box(-1, 1, (1,), np.float32), "x": Box(-1, 1, (2,), np.float32)}
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = self.np_random.uniform(-1, 1)
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        is_right = int(action) == int(self.x[0] > 0)
        self.t += 1
        reward = 2 * self.level + float(is_right)
        return self.observe(), reward, self.t == STEPS, False, {}

    def observe(self):
        place = 2 * self.t / STEPS - 1  # from -1 to 1
        self.x = np.array([self.np_random.uniform(-1, 1), place], np.float32)
        return {"level": np.array([self.level], np.float32), "x": self.x}
