"""Environments that break Gymnasium's habits, not its interface.

They train, and a checkpoint warns of what it cannot resume.
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

#: 32 steps in each iteration: 2 environments, 16 steps each.
SMALL = {"num_envs": 2, "rollout_length": 16, "seed": 0, "model": {"fcnet_hiddens": [4]}}
SMALL_PPO = {**SMALL, "minibatch_size": 16}


class WithRandomState(FiveSteps):
    """Draws its rewards from NumPy's old generator, as dm_control and environments for gym do."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = np.random.RandomState(seed)
        return super().reset()

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.np_random.random_sample(), terminated, truncated, info


class WithRandom(FiveSteps):
    """Draws from a generator of the standard library."""

    def reset(self, *, seed=None, options=None):
        self.np_random = random.Random(seed)
        return super().reset()


class RaisingClose(FiveSteps):
    def close(self):
        raise RuntimeError("the window is gone")


class ReportsState(WithRandomState):
    """Reports its state, which does not depend on its generator."""

    def get_state(self):
        return {"t": self.t}

    def set_state(self, state):
        self.t = state["t"]


#: Environments whose generator cannot be saved, and the reason in messages.
UNREADABLE_GENERATORS = {
    WithRandom: "np_random is a Random, not one of NumPy",
    WithoutGenerator: "np_random cannot be read",
    OddUnwrapped: "np_random cannot be read",
}
without_readable_generator = pytest.mark.parametrize(
    ("env_class", "reason"), UNREADABLE_GENERATORS.items()
)
odd_environments = pytest.mark.parametrize(
    "env_class", [*UNREADABLE_GENERATORS, WithoutMetadata, RaisingAttributes]
)


@odd_environments
@pytest.mark.parametrize(
    ("algorithm", "config"), [(PPO, SMALL_PPO), (A2C, SMALL), (PG, SMALL)], ids=["PPO", "A2C", "PG"]
)
def test_odd_environment_trains(algorithm, config, env_class):
    algo = algorithm(env_class, config)

    algo.train()

    assert algo.steps == 32  # 2 environments, 16 steps each
    assert algo.evaluate(1) == [5.0]  # five steps that pay 1
    algo.stop()


def test_environment_with_random_state_trains_in_processes():
    algo = PPO(WithRandomState, {**SMALL_PPO, "vector": "async"})

    algo.train()

    assert algo.steps == 32  # 2 environments, 16 steps each
    algo.stop()


@odd_environments
def test_odd_instance_trains(env_class):
    algo = PPO(env_class(), {**SMALL_PPO, "num_envs": 1})

    algo.train()

    assert algo.steps == 16
    algo.stop()


@without_readable_generator
def test_resumed_run_without_a_generator_begins_new_episodes(env_class, reason, tmp_path):
    algo = PPO(env_class, SMALL_PPO)
    algo.train()
    message = f"2 of 2 environments will begin new .* {reason}"
    with pytest.warns(ResumeWarning, match=message):
        algo.save_checkpoint(tmp_path / "run")
    algo.stop()

    with pytest.warns(ResumeWarning, match=f"cannot resume their episodes .* {reason}"):
        resumed = PPO.restore(tmp_path / "run", env_class)

    resumed.train()
    assert resumed.steps == 64  # 32 before the checkpoint, and 32 after it
    resumed.stop()


def test_run_with_random_state_resumes_its_episodes(tmp_path):
    uninterrupted = PPO(WithRandomState, SMALL_PPO)
    uninterrupted.train()
    uninterrupted.save_checkpoint(tmp_path / "run")  # pytest makes a warning an error
    uninterrupted.train()

    resumed = PPO.restore(tmp_path / "run", WithRandomState)
    resumed.train()

    assert resumed.new_episode_reasons == {}
    expected = uninterrupted.state()["collector"]["episodes"]
    assert resumed.state()["collector"]["episodes"] == expected
    uninterrupted.stop()
    resumed.stop()


def test_reported_state_needs_no_generator(tmp_path):
    algo = PPO(ReportsState, SMALL_PPO)
    algo.train()
    algo.save_checkpoint(tmp_path / "run")  # pytest makes a warning an error

    resumed = PPO.restore(tmp_path / "run", ReportsState)

    assert resumed.new_episode_reasons == {}
    algo.stop()
    resumed.stop()


def test_error_in_close_becomes_a_warning():
    algo = PPO(RaisingClose, SMALL_PPO)

    # An evaluation closes its environments.
    with pytest.warns(CatalogWarning, match=r"close\(\) raised .*the window is gone"):
        returns = algo.evaluate(1)
    with pytest.warns(CatalogWarning, match="the window is gone"):
        algo.stop()
    assert returns == [5.0]


@odd_environments
def test_odd_environment_builds_a_policy(env_class):
    policy = rlcatalog.build(env=env_class(), config={"fcnet_hiddens": [4]}, framework="torch")
    env = rlcatalog.wrap_env(env_class())
    obs, _ = env.reset(seed=0)

    step = policy.act(obs[None])

    assert step.action.shape == (1,)
