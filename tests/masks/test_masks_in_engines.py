"""Environments of Gymnasium and sb3-contrib as they are: no forbidden action is taken.

`make test` runs 1,000 steps of each case, in which every environment ends an episode, and
`make attack` 100,000.
"""

from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from mask_places_env import Guarded

import rlcatalog
from rlcatalog_ppo import PPO

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SMALL = {"fcnet_hiddens": [16]}


def taxi():
    """`info["action_mask"]`."""
    return Guarded(gym.make("Taxi-v4"))


def invalid_actions():
    """`action_masks()`; 60 of 80 actions are forbidden at each step."""
    envs = pytest.importorskip("sb3_contrib.common.envs", reason="sb3-contrib is not installed")
    return Guarded(envs.InvalidActionEnvDiscrete(dim=80, n_invalid_actions=60))


@pytest.fixture(params=[1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def steps(request):
    Guarded.steps = Guarded.forbidden = 0
    return request.param


makers = pytest.mark.parametrize("make", [taxi, invalid_actions])


def assert_no_forbidden_action(steps):
    """Check the counts of all `Guarded` environments since the test began."""
    assert Guarded.steps >= steps
    assert Guarded.forbidden == 0


@pytest.mark.grid
@makers
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_ppo_takes_no_forbidden_action(make, mode, steps):
    envs = SyncVectorEnv([make] * 4, autoreset_mode=mode)
    algo = PPO(envs, {"rollout_length": 128, "num_epochs": 1, "seed": 0, "model": SMALL})

    while Guarded.steps < steps:  # some steps only begin an episode
        algo.train()

    assert_no_forbidden_action(steps)


@makers
def test_sb3_takes_no_forbidden_action(make, steps):
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    from stable_baselines3.common.env_util import make_vec_env

    from rlcatalog_sb3 import CatalogPolicy, for_sb3

    envs = make_vec_env(lambda: for_sb3(rlcatalog.wrap_env(make()), SMALL), 4, seed=0)
    model = sb3.PPO(CatalogPolicy, envs, n_steps=128, batch_size=256, n_epochs=1, device="cpu")
    model.learn(steps)

    assert_no_forbidden_action(steps)


@makers
@pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-single-agent-env-v0")
def test_rllib_takes_no_forbidden_action(make, steps):
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.tune.registry import register_env

    from rlcatalog_rllib import configure

    register_env("masked", lambda _: rlcatalog.wrap_env(make()))
    config = PPOConfig().debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=4, rollout_fragment_length=250)
    runner = SingleAgentEnvRunner(config=configure(config, "masked", model=SMALL))

    while Guarded.steps < steps:  # `Guarded` wraps the environment, and counts its steps
        runner.sample()

    assert_no_forbidden_action(steps)
