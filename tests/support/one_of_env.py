"""An environment in which each part of a OneOf action is right in its own states."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, OneOf

#: The number of tools.
TOOLS = 3
STEPS = 8


class MoveOrUse(gym.Env):
    """The first number says whether something lies here, the second one where or what it is.

    Where something lies, one of three tools is right (part 0), and pays 1. Elsewhere, a move to the
    shown place is right (part 1), and pays 1 less twice the distance. The other part pays nothing.
    """

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = OneOf([Discrete(TOOLS), Box(-1, 1, (1,), np.float32)])

    def reset(self, *, seed=None, options=None):
        """Begin an episode of eight steps, each with a new state."""
        super().reset(seed=seed)
        self.left = STEPS
        return self._look(), {}

    def step(self, action):
        """Pay for the action, which must be in the space."""
        assert self.action_space.contains(action), action
        reward = self._pay(*action)
        self.left -= 1
        return self._look(), reward, self.left == 0, False, {}

    def _pay(self, part, action):
        if part != self.right_part:
            return 0.0
        if part == 0:
            return float(action == self.right_tool)
        return max(0.0, 1 - 2 * abs(float(action[0]) - self.shown))

    def _look(self):
        self.right_part = int(self.np_random.integers(2))
        self.shown = float(self.np_random.uniform(-1, 1))
        self.right_tool = int((self.shown + 1) * TOOLS / 2)
        lies_here = 1 if self.right_part == 0 else -1
        return np.array([lies_here, self.shown], np.float32)
