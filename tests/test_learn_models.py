"""Long runs: models from the catalog, trained until a known return is reached."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

pytestmark = [pytest.mark.learn, pytest.mark.usefixtures("one_thread")]

FRAMEWORKS, SEEDS = ["torch", "tf"], [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dqn_learns_cartpole_with_a_dueling_api(framework, seed):
    import dqn

    assert np.mean(dqn.train("CartPole-v1", framework, seed)) >= 450


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_sac_learns_pendulum_with_a_single_q_api(framework, seed):
    import sac

    assert np.mean(sac.train("Pendulum-v1", framework, seed)) >= -250


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ppo_in_a_single_file_learns_cartpole(framework, seed):
    script = importlib.import_module("ppo_single_file" if framework == "torch" else "ppo_single_file_tf")
    returns = script.play(script.train("CartPole-v1", seed), "CartPole-v1", 100, seed + 10_000)
    assert np.mean(returns) >= 475
