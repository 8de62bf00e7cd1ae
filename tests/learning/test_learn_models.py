"""Long runs of the examples. The record beside this file has the return that each must reach."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from learning import random_play

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]
both = pytest.mark.parametrize("framework", ["torch", "tf"])


@both
def test_dqn_learns_cartpole_with_a_dueling_api(over_seeds, framework):
    import dqn

    def train(seed):
        return np.mean(dqn.train("CartPole-v1", framework, seed))

    over_seeds(train, chance=lambda: random_play(lambda: gym.make("CartPole-v1")))


@both
def test_sac_learns_pendulum_with_a_single_q_api(over_seeds, framework):
    import sac

    def train(seed):
        return np.mean(sac.train("Pendulum-v1", framework, seed))

    over_seeds(train, chance=lambda: random_play(lambda: gym.make("Pendulum-v1")))


@both
def test_ppo_in_a_single_file_learns_cartpole(over_seeds, framework):
    script = importlib.import_module(
        "ppo_single_file" if framework == "torch" else "ppo_single_file_tf"
    )

    def train(seed):
        return np.mean(script.play(script.train("CartPole-v1", seed), "CartPole-v1", 100, 10_000))

    over_seeds(train, chance=lambda: random_play(lambda: gym.make("CartPole-v1")))
