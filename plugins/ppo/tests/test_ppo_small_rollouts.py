"""Rollouts and minibatches of one or two rows, whose advantages may have no deviation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.learner import minibatches


class FiveSteps(gym.Env):
    """Pays 1 per step and is truncated after five."""

    observation_space = Box(-10, 10, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, False, self.t == 5, {}


@pytest.mark.parametrize(
    ("rows", "size", "sizes"),
    [(33, 16, [16, 16]), (33, 11, [11, 11, 11])],
    ids=["one row too many", "no row too many"],
)
def test_minibatch_of_one_row_is_left_out(rows, size, sizes):
    batch = {"logp": np.zeros(rows), "obs": np.zeros((rows, 2))}

    parts = list(minibatches(batch, size, np.random.default_rng(0)))

    assert [len(part["logp"]) for part in parts] == sizes


def test_sequence_of_one_row_is_left_out_as_a_minibatch():
    batch = {
        "logp": np.zeros(17),
        "obs": np.zeros((17, 2)),
        "seq_lens": np.array([4, 4, 4, 4, 1]),
        "state": [np.zeros((5, 3))],
    }
    rng = np.random.default_rng(0)
    times_left_out = 0

    for _ in range(20):  # in 20 random orders
        parts = list(minibatches(batch, 16, rng))
        assert [1] not in [part["seq_lens"].tolist() for part in parts]
        rows = sum(len(part["logp"]) for part in parts)
        if rows == 16:  # the sequence of one row came last, after a minibatch of 16 rows
            times_left_out += 1

    assert times_left_out > 1


def test_training_survives_a_last_minibatch_of_one_row():
    """Normalised by its deviation, 0, the advantage of one row would make all weights NaN."""
    # 2 environments with 13 steps: minibatches of 25 rows and of 1.
    config = {"num_envs": 2, "rollout_length": 13, "minibatch_size": 25, "num_epochs": 1, "seed": 0}
    algo = PPO(FiveSteps, config)

    result = algo.train()

    assert np.isfinite(result["info"]["learner"]["policy_loss"])
    for weight in algo.policy.model.get_weights().values():
        assert np.isfinite(weight).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"minibatch_size": 1}, r"minibatch_size = 1: advantages are normalised .* Set 2 or more"),
        ({"num_envs": 1, "rollout_length": 1, "minibatch_size": 1}, "Set 2 or more"),
        (
            {"num_envs": 1, "rollout_length": 1},
            r"num_envs \* rollout_length = 1: advantages are normalised",
        ),
    ],
    ids=["minibatches of one row", "one row in minibatches", "one row"],
)
def test_single_row_is_refused_before_environments_are_made(config, message):
    with pytest.raises(ConfigError, match=message):
        PPO("Unregistered-v0", config)


def test_two_rows_are_enough():
    config = {"num_envs": 2, "rollout_length": 1, "minibatch_size": 2, "num_epochs": 1, "seed": 0}

    result = PPO(FiveSteps, config).train()

    assert np.isfinite(result["info"]["learner"]["policy_loss"])
