"""Long runs: CartPole whose actions stand elsewhere at every step, with the head for parametric actions."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]

FRAMEWORKS = ["torch", "tf"]


@pytest.mark.parametrize("filtered", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ppo_learns_what_an_embedding_means(framework, filtered):
    from parametric_actions_cartpole import ParametricCartPole

    from rlcatalog_ppo import PPO

    config = {"framework": framework, "model": {"fcnet_hiddens": [64, 64]}, "observation_filter": filtered}
    algo = PPO(ParametricCartPole, {"seed": 0, "lr": 3e-3, "total_steps": 150_000, **config})
    while algo.train()["timesteps_total"] < 150_000:
        pass
    assert np.mean(algo.evaluate(100, seed=10_000)) >= 450


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_learns_what_an_embedding_is_worth(framework):
    import dqn
    from parametric_actions_cartpole import ParametricCartPole

    hyper = dqn.Hyper(steps=50_000)
    assert np.mean(dqn.train(ParametricCartPole, framework, 0, dueling=False, hyper=hyper)) >= 400
