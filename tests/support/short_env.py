"""Environments of three and of five steps, and a small config of PPO for them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

NET = {"fcnet_hiddens": [3]}
SMALL = {"num_envs": 2, "rollout_length": 4, "seed": 0, "framework": "torch", "model": NET}
QUICK = {**SMALL, "minibatch_size": 8, "num_epochs": 1}


class Short(gym.Env):
    """Episodes of three steps.

    The reward is the action. The class counts its instances and how many were closed.
    """

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    made = 0
    closed = 0

    def __init__(self):
        Short.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        return (
            self.np_random.normal(size=2).astype(np.float32),
            float(action),
            self.t == 3,
            False,
            {},
        )

    def close(self):
        Short.closed += 1


class CountsToFive(gym.Env):
    """Pays 1 per step, observes the step's number, and is truncated after five.

    It reuses one array for all observations.
    """

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.obs = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = 0
        return self.obs, {}

    def step(self, action):
        self.obs += 1
        return self.obs, 1.0, False, bool(self.obs[0] == 5), {}


def weights_of(algo):
    """Return a copy of an algorithm's weights, by name."""
    return {name: np.array(array) for name, array in algo.policy.model.get_weights().items()}


def same(one, other):
    """Return whether the arrays of two dicts are equal."""
    return all(np.array_equal(array, other[name]) for name, array in one.items())
