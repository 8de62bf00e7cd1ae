"""Environments that break Gymnasium's habits, not its interface: they train, and a checkpoint says
what it cannot resume.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from odd_environments import (
    FiveSteps,
    OddUnwrapped,
    RaisingAttributes,
    WithoutGenerator,
    WithoutMetadata,
)

import rlcatalog
from rlcatalog.errors import CatalogWarning, ResumeWarning
from rlcatalog_ppo import A2C, PG, PPO

COLLECTING = {"num_envs": 2, "rollout_length": 16, "seed": 0, "model": {"fcnet_hiddens": [4]}}
QUICK = {**COLLECTING, "minibatch_size": 16}


class WithRandomState(FiveSteps):
    """Draws from NumPy's old generator, as environments of the time of gym do."""

    def reset(self, *, seed=None, options=None):
        self.np_random = np.random.RandomState(seed)
        return super().reset()


class WithRandom(FiveSteps):
    def reset(self, *, seed=None, options=None):
        self.np_random = random.Random(seed)
        return super().reset()


class RaisingClose(FiveSteps):
    def close(self):
        raise RuntimeError("the window is gone")


class KnownState(WithRandomState):
    """Has a generator that cannot be read, and reports its state, which is all of it."""

    def get_state(self):
        return {"t": self.t}

    def set_state(self, state):
        self.t = state["t"]


UNREADABLE = {
    WithRandomState: "np_random is a RandomState, not a numpy.random.Generator",
    WithRandom: "np_random is a Random, not a numpy.random.Generator",
    WithoutGenerator: "np_random cannot be read",
    OddUnwrapped: "np_random cannot be read",
}
ODD = [*UNREADABLE, WithoutMetadata, RaisingAttributes]


@pytest.mark.parametrize("env", ODD)
@pytest.mark.parametrize(
    ("algorithm", "config"), [(PPO, QUICK), (A2C, COLLECTING), (PG, COLLECTING)]
)
def test_odd_environment_trains(algorithm, config, env):
    algo = algorithm(env, config)
    algo.train()
    assert algo.steps == 32  # 2 environments, 16 steps each
    assert algo.evaluate(1) == [5.0]
    algo.stop()


def test_random_state_trains_in_processes():
    algo = PPO(WithRandomState, {**QUICK, "vector": "async"})
    algo.train()
    algo.stop()
    assert algo.steps == 32


@pytest.mark.parametrize("env", ODD)
def test_odd_environment_trains_as_an_instance(env):
    algo = PPO(env(), {**QUICK, "num_envs": 1})
    algo.train()
    assert algo.steps == 16
    algo.stop()


@pytest.mark.parametrize(("env", "why"), UNREADABLE.items())
def test_checkpoint_without_a_generator_warns(env, why, tmp_path):
    algo = PPO(env, QUICK)
    algo.train()
    with pytest.warns(ResumeWarning, match=f"2 of 2 environments will begin new .* {why}"):
        algo.save_checkpoint(tmp_path / "run")
    algo.stop()

    with pytest.warns(ResumeWarning, match=f"cannot resume their episodes .* {why}"):
        resumed = PPO.restore(tmp_path / "run", env)
    resumed.train()
    assert resumed.steps == 64
    resumed.stop()


def test_reported_state_needs_no_generator(tmp_path):
    algo = PPO(KnownState, QUICK)
    algo.train()
    algo.save_checkpoint(tmp_path / "run")  # warnings are errors here
    resumed = PPO.restore(tmp_path / "run", KnownState)
    assert resumed.begun_anew == {}
    for one in (algo, resumed):
        one.stop()


def test_close_that_raises_becomes_a_warning():
    algo = PPO(RaisingClose, QUICK)
    algo.train()
    with pytest.warns(CatalogWarning, match=r"RaisingClose.close\(\) raised .*the window is gone"):
        returns = algo.evaluate(1)
    with pytest.warns(CatalogWarning, match="the window is gone"):
        algo.stop()
    assert returns == [5.0]


@pytest.mark.parametrize("env", ODD)
def test_odd_environment_builds_a_policy(env):
    policy = rlcatalog.build(env=env(), config=QUICK["model"], framework="torch")
    wrapped = rlcatalog.wrap_env(env())
    step = policy.act(wrapped.reset(seed=0)[0][None])
    assert step.action.shape == (1,)
