"""Long learning runs of A2C and plain policy gradient; what each must reach stands in the record
beside this file.
"""

import gymnasium as gym
import numpy as np
import pytest
import torch
from learning import random_play

from rlcatalog_ppo import A2C, PG

pytestmark = pytest.mark.learn


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks are fastest with one thread, and several runs share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cartpole():
    return gym.make("CartPole-v1")


def trained(algorithm, config, steps):
    """Train for some steps and return the mean return of 100 fresh episodes."""
    algo = algorithm(cartpole, {"total_steps": steps, **config})
    algo.learn(steps)
    found = float(np.mean(algo.evaluate(100, seed=10_000)))
    algo.stop()
    return found


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a2c_learns_cartpole(over_seeds, framework):
    """With nothing but defaults."""

    def train(seed):
        return trained(A2C, {"seed": seed, "framework": framework}, 100_000)

    over_seeds(train, chance=lambda: random_play(cartpole))


def test_plain_policy_gradient_learns_cartpole(over_seeds):
    """With nothing but defaults."""

    def train(seed):
        return trained(PG, {"seed": seed, "framework": "torch"}, 100_000)

    over_seeds(train, chance=lambda: random_play(cartpole))
