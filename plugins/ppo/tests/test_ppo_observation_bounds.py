"""Observations outside the bounds of their space: a warning for the first one, and no error unless
every observation is checked.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import ObservationError, ObservationWarning
from rlcatalog_ppo import PPO

CONFIG = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 16, "seed": 0}


class Goal(gym.Env):
    """Declares 0 for its goal, as Meta-World does, and shows 0.1."""

    observation_space = spaces.Box(np.float64([-1, 0]), np.float64([1, 0]), dtype=np.float64)
    action_space = spaces.Discrete(2)
    first_goal = 0.1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0, self.first_goal]), {}

    def step(self, action):
        self.t += 1
        return np.array([0, 0.1]), 1.0, False, self.t == 5, {}


class LateGoal(Goal):
    """Shows the goal only after the first observation."""

    first_goal = 0.0


def train(env, check):
    algo = PPO(env, {**CONFIG, "model": {"check_observations": check}})
    algo.train()
    algo.stop()
    return algo.steps


def test_early_fault_trains_with_a_warning_that_names_the_key():
    expected = (
        r"obs: expected .* values within \[0.0, 0.0\] at \[1\]; found 0.1 .*check_observations"
    )
    with pytest.warns(ObservationWarning, match=expected):
        assert train(Goal, "first") == 32


def test_late_fault_trains():
    assert train(LateGoal, "first") == 32


@pytest.mark.parametrize("env", [Goal, LateGoal])
def test_always_refuses_early_and_late_faults(env):
    with pytest.raises(ObservationError, match=r"found 0.1 .* set check_observations='first'"):
        train(env, "always")


@pytest.mark.parametrize("env", [Goal, LateGoal])
def test_never_says_nothing(env):
    assert train(env, "never") == 32
