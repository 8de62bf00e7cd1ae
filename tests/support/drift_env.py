"""`Drift-v0`, a small environment with two choices at each step; importing this module registers
it.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete


class Drift(gym.Env):
    """Drifts with the actions and at random; pays for staying near 0; half its episodes end by
    themselves.
    """

    observation_space = Box(-10, 10, (3,), np.float32)
    action_space = MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=3).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        self.x = (
            self.x + 0.3 * (np.sum(action) - 1.0) + 0.1 * self.np_random.normal(size=3)
        ).astype(np.float32)
        return (
            self.x.copy(),
            -float(np.abs(self.x).mean()),
            bool(np.abs(self.x).max() > 3),
            self.t == 17,
            {},
        )


gym.register("Drift-v0", Drift)
