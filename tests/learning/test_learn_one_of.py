"""Learning with a OneOf action of which each part is right in its own states, under our PPO."""

from __future__ import annotations

import numpy as np
import pytest
from learning import random_play
from one_of_env import MoveOrUse

from rlcatalog_ppo import PPO

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


def test_ppo_learns_when_to_use_which_part(over_seeds):
    def train(seed):
        config = {
            "model": {"fcnet_hiddens": [32]},
            "num_envs": 32,
            "rollout_length": 16,
            "minibatch_size": 128,
            "num_epochs": 6,
            "lr": 3e-3,
            "gamma": 0.5,
            "seed": seed,
        }
        algo = PPO(MoveOrUse, config)
        while algo.train()["timesteps_total"] < 20_000:
            pass
        mean_return = float(np.mean(algo.evaluate(100)))
        algo.stop()
        return mean_return

    over_seeds(train, chance=lambda: random_play(MoveOrUse))
