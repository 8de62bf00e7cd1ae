"""Observations outside the bounds of their space.

The first one gives a warning. They are errors only if every observation is checked.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import ObservationError, ObservationWarning
from rlcatalog_ppo import PPO


class GoalOutsideBounds(gym.Env):
    """Declares that its goal, the second number, is 0, as Meta-World does; shows 0.1."""

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


class LaterGoalOutsideBounds(GoalOutsideBounds):
    """Shows 0 in the first observation, and 0.1 later."""

    first_goal = 0.0


def train_ppo(env_class, *, check_observations):
    """Return the number of steps after an iteration of 16 steps in two environments."""
    config = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 16, "seed": 0}
    model = {"check_observations": check_observations}
    algo = PPO(env_class, {**config, "model": model})
    algo.train()
    algo.stop()
    return algo.steps


def test_first_observation_outside_bounds_gives_a_warning():
    # The warning names the key that turns the check off.
    message = (
        r"obs: expected .* values within \[0.0, 0.0\] at \[1\]; found 0.1 .*check_observations"
    )
    with pytest.warns(ObservationWarning, match=message):
        steps = train_ppo(GoalOutsideBounds, check_observations="first")
    assert steps == 32


def test_later_observation_outside_bounds_is_not_checked():
    steps = train_ppo(LaterGoalOutsideBounds, check_observations="first")

    assert steps == 32


@pytest.mark.parametrize("env_class", [GoalOutsideBounds, LaterGoalOutsideBounds])
def test_check_of_all_observations_refuses_those_outside_bounds(env_class):
    message = r"found 0.1 .* set check_observations='first'"
    with pytest.raises(ObservationError, match=message):
        train_ppo(env_class, check_observations="always")


@pytest.mark.parametrize("env_class", [GoalOutsideBounds, LaterGoalOutsideBounds])
def test_observations_outside_bounds_may_remain_unchecked(env_class):
    steps = train_ppo(env_class, check_observations="never")

    assert steps == 32
