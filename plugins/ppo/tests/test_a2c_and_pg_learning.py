"""Long learning runs of A2C and plain policy gradient, with nothing but their defaults.

The record beside this file says what each must reach.
"""

import gymnasium as gym
import numpy as np
import pytest
from learning import random_play

from rlcatalog_ppo import A2C, PG

# Several runs share the machine.
pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]


def cartpole():
    return gym.make("CartPole-v1")


def train_on_cartpole(algorithm, *, steps, **config):
    """Train for some steps and return the mean return of 100 new episodes."""
    algo = algorithm(cartpole, {"total_steps": steps, **config})
    algo.learn(steps)
    mean_return = float(np.mean(algo.evaluate(100, seed=10_000)))
    algo.stop()
    return mean_return


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a2c_learns_cartpole(over_seeds, framework):
    def train(seed):
        return train_on_cartpole(A2C, steps=100_000, seed=seed, framework=framework)

    over_seeds(train, chance=lambda: random_play(cartpole))


def test_plain_policy_gradient_learns_cartpole(over_seeds):
    def train(seed):
        return train_on_cartpole(PG, steps=100_000, seed=seed, framework="torch")

    over_seeds(train, chance=lambda: random_play(cartpole))
