"""Long runs with parametric actions: in each step, CartPole's actions have another order."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from learning import random_play

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    ("framework", "filtered"),
    [("torch", "NoFilter"), ("tf", "NoFilter"), ("torch", "MeanStdFilter")],
)
def test_ppo_learns_what_an_embedding_means(over_seeds, framework, filtered):
    from parametric_actions_cartpole import ParametricCartPole

    from rlcatalog_ppo import PPO

    def train(seed):
        config = {
            "framework": framework,
            "model": {"fcnet_hiddens": [64, 64]},
            "observation_filter": filtered,
        }
        algo = PPO(ParametricCartPole, {"seed": seed, "lr": 3e-3, "total_steps": 150_000, **config})
        while algo.train()["timesteps_total"] < 150_000:
            pass
        return np.mean(algo.evaluate(100, seed=10_000))

    over_seeds(train, chance=lambda: random_play(ParametricCartPole))


def test_dqn_learns_what_an_embedding_is_worth(over_seeds):
    import dqn
    from parametric_actions_cartpole import ParametricCartPole

    def train(seed):
        hyper = dqn.Hyper(steps=50_000)
        return np.mean(dqn.train(ParametricCartPole, "torch", seed, dueling=False, hyper=hyper))

    over_seeds(train, chance=lambda: random_play(ParametricCartPole))
