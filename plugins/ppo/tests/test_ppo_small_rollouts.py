"""Rollouts and minibatches of one or two rows, whose advantages may have no deviation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcatalog.errors import ConfigError
from rlcatalog_ppo import PPO
from rlcatalog_ppo.minibatches import minibatches


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


def test_sequence_of_one_row_is_left_out_as_a_minibatch():
    # Five sequences. Minibatches of at least 16 rows take whole ones, in a random order.
    batch = {
        "logp": np.zeros(17),
        "obs": np.zeros((17, 2)),
        "seq_lens": np.array([4, 4, 4, 4, 1]),
        "state": [np.zeros((5, 3))],
    }
    rng = np.random.default_rng(0)

    all_lengths = []
    for _ in range(20):  # orders of the sequences
        all_lengths.append([part["seq_lens"].tolist() for part in minibatches(batch, 16, rng)])

    # Where the sequence of one row comes last, it would be a minibatch of its own.
    assert [[4, 4, 4, 4]] in all_lengths
    assert [[4, 4, 4, 4], [1]] not in all_lengths


def test_training_survives_a_last_minibatch_of_one_row():
    # 2 environments with 13 steps: minibatches of 25 rows and of 1.
    config = {"num_envs": 2, "rollout_length": 13, "minibatch_size": 25, "num_epochs": 1, "seed": 0}
    algo = PPO(FiveSteps, config)

    result = algo.train()

    # Divided by its deviation, 0, the advantage of one row would make all weights NaN.
    assert np.isfinite(result["info"]["learner"]["policy_loss"])
    for weight in algo.policy.model.get_weights().values():
        assert np.isfinite(weight).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"minibatch_size": 1}, "minibatch_size = 1: .* Set 2 or more"),
        ({"num_envs": 1, "rollout_length": 1, "minibatch_size": 1}, "Set 2 or more"),
        (
            {"num_envs": 1, "rollout_length": 1},
            r"\* rollout_length = 1: advantages are",
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
