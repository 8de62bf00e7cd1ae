"""Boards of bytes train like boards of floats."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlcatalog_ppo import PPO


class Board(gym.Env):
    """Shows a random one-hot board; the reward asks for the column of its first piece."""

    action_space = Discrete(4)

    def __init__(self, dtype):
        self.observation_space = Box(0, 1, (4, 4, 3), dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.column)
        self.time += 1
        return self._show(), reward, self.time == 8, False, {}

    def _show(self):
        board = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        self.column = int(self.np_random.integers(4))
        board[0, self.column, 0] = 1
        board[2, self.np_random.integers(4), 1] = 1
        return board


def train_weights(dtype, framework):
    """Return the weights after ten updates on boards of this dtype."""
    config = {
        "framework": framework,
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 32,
        "num_epochs": 1,
        "seed": 0,
        "model": {"conv_filters": [[8, 4, 1]]},
    }
    algo = PPO(lambda: Board(dtype), config)
    for _ in range(10):
        algo.train()
    algo.stop()
    return algo.policy.model.get_weights()


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_board_of_bytes_trains_like_one_of_floats(framework):
    of_bytes = train_weights(np.uint8, framework)
    of_floats = train_weights(np.float32, framework)

    for name, array in of_bytes.items():
        np.testing.assert_allclose(array, of_floats[name], rtol=1e-6, atol=1e-7, err_msg=name)
