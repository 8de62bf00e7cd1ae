"""Environments that give their action masks outside the observation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from masked_env import PAIR, Masked, allowed, random_mask

#: Steps of an episode; about half of the episodes end by themselves, the others are cut.
LENGTH = 4


class Placed(gym.Env):
    """Gives the same masks at each step, wherever a case of docs/mask_places.toml has one.

    The masks of an episode's last step forbid everything. Counts each action that was taken.
    """

    action_space = Discrete(3)

    def __init__(self, case):
        self.case = case
        self.taken = np.zeros(3, int)
        self.observation_space = Dict({"x": PAIR})
        if "observation" in case:
            self.observation_space["action_mask"] = MultiBinary(3)
        if "method" in case:
            self.action_masks = lambda: self._mask("method").astype(bool)

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), self._info()

    def step(self, action):
        """Count the action."""
        self.t += 1
        self.taken[action] += 1
        over = self.t == LENGTH
        terminated = over and self.np_random.random() < 0.5
        return self._observe(), 0.0, terminated, over and not terminated, self._info()

    def _mask(self, place):
        return np.array(self.case[place], np.int8) * (self.t < LENGTH)

    def _observe(self):
        obs = {"x": self.np_random.uniform(-1, 1, 2).astype(np.float32)}
        return obs | (
            {"action_mask": self._mask("observation")} if "observation" in self.case else {}
        )

    def _info(self):
        return {"action_mask": self._mask("info")} if "info" in self.case else {}


class Elsewhere(Masked):
    """`Masked`, which raises at a forbidden action, with its mask in the info or from a method.

    Args:
        name: The name of the action space in `MASKED`.
        place: `"info"`, in Gymnasium's format, or `"method"`, as sb3-contrib's environments.
    """

    def __init__(self, name, place="info"):
        super().__init__(name)
        self.place, self.observation_space = place, Box(-1, 1, (2,), np.float32)
        if place == "method":
            self.action_masks = self._columns

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        obs, _ = super().reset(seed=seed, options=options)
        return obs, self._info()

    def step(self, action):
        """Take a step."""
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self._info()

    def _look(self):
        self.mask = random_mask(self.action_space, self.np_random)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def _info(self):
        return {"action_mask": self.mask} if self.place == "info" else {}

    def _columns(self):
        """Return flat booleans, those of each entry of a MultiDiscrete after one another."""
        return list(np.concatenate([np.ravel(part) for part in _leaves(self.mask)]) == 1)


def _leaves(mask):
    if isinstance(mask, tuple):
        return [leaf for part in mask for leaf in _leaves(part)]
    return [mask]


class Guarded(gym.Wrapper):
    """Counts the steps, and the actions that a mask in the info or `action_masks()` forbids."""

    steps = forbidden = 0

    def reset(self, **options):
        """Begin an episode."""
        obs, info = self.env.reset(**options)
        self._note(info)
        return obs, info

    def step(self, action):
        """Count."""
        Guarded.steps += 1
        Guarded.forbidden += not allowed(self.env.action_space, action, self.mask)
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._note(info)
        return obs, reward, terminated, truncated, info

    def _note(self, info):
        if "action_mask" in info:
            self.mask = info["action_mask"]
        else:
            self.mask = self.env.get_wrapper_attr("action_masks")()
