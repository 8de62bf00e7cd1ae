"""An environment of random observations, for tests that say what its steps pay."""

from __future__ import annotations

import gymnasium as gym


class RandomObservations(gym.Env):
    """Random observations of a space, and `steps`, the number of steps in this episode.

    Subclasses define `step`. A mask among the observations allows at least the first action.
    """

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][0] = 1
        return obs
