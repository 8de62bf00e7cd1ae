"""Environments that break Gymnasium's habits train in Stable-Baselines3 after `for_sb3`."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
from gymnasium import spaces

from rlcatalog_sb3 import CatalogPolicy, for_sb3


class FiveSteps(gym.Env):
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


@pytest.mark.parametrize(
    "env", [WithoutGenerator, OddUnwrapped, WithoutMetadata, RaisingAttributes]
)
def test_odd_environment_trains_in_sb3(env):
    algo = stable_baselines3.PPO(CatalogPolicy, for_sb3(env()), n_steps=16, batch_size=16)
    algo.learn(16)
    assert algo.num_timesteps == 16
