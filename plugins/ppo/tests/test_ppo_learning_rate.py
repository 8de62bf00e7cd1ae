"""The learning rate: how it falls during a run, and that the optimiser uses it."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog_ppo import PPO
from rlcatalog_ppo.learner import optimizer_of
from rlcatalog_ppo.loss import Rates

pytestmark = pytest.mark.twins

#: 24 steps in each iteration.
SMALL = {"num_envs": 2, "rollout_length": 12, "minibatch_size": 8, "num_epochs": 1, "seed": 0}


def train_learning_rates(iterations, **config):
    """Return the learning rate of each iteration of 24 steps."""
    algo = PPO("CartPole-v1", {**SMALL, **config})
    return [algo.train()["info"]["learner"]["lr"] for _ in range(iterations)]


def test_learning_rate_falls_to_zero_over_all_steps():
    rates = train_learning_rates(5, lr=0.5, total_steps=96)

    assert rates == [0.5, 0.375, 0.25, 0.125, 0.0]  # 96 steps are 4 iterations


@pytest.mark.parametrize(
    "config",
    [{"total_steps": 96, "anneal_lr": False}, {"total_steps": None}],
    ids=["not annealed", "unknown total"],
)
def test_learning_rate_stays(config):
    assert train_learning_rates(3, lr=0.5, **config) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("lr", [1e-3, 1e-4])
def test_optimiser_uses_the_learning_rate_of_the_step(framework, lr):
    """The first step of Adam changes weights by the learning rate."""
    model = {"fcnet_hiddens": [4]}
    config = {**SMALL, "framework": framework, "lr": 1e-2, "grad_clip": None, "model": model}
    algo = PPO("CartPole-v1", config)
    batch = algo._collector.collect(12).batch(0.9, 0.9)
    before = algo.policy.model.get_weights()

    optimizer = optimizer_of(framework)(algo.policy, algo.config, algo.objective)
    optimizer.step(batch, Rates(lr))

    after = algo.policy.model.get_weights()
    changes = [np.abs(after[name] - before[name]).max() for name in before]
    np.testing.assert_allclose(max(changes), lr, rtol=0.05)
