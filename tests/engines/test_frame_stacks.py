"""Every engine reads Gymnasium's stack of Atari frames as the same image."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

pytest.importorskip("ale_py", reason="ale-py is not installed")
pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import stable_baselines3
from ray.rllib.algorithms.ppo import PPOConfig

import rlcatalog_rllib
import rlcatalog_sb3
from rlcatalog_ppo import PPO

SETTINGS = {"num_envs": 1, "rollout_length": 8, "minibatch_size": 8, "num_epochs": 1}


def make_pong():
    env = gym.make("ALE/Pong-v5", frameskip=1)
    return FrameStackObservation(AtariPreprocessing(env), 4)


def build_ppo():
    algo = PPO(make_pong, SETTINGS)
    algo.stop()
    return algo.policy


def build_sb3():
    algo = stable_baselines3.PPO("CatalogPolicy", make_pong(), n_steps=8, batch_size=8)
    return rlcatalog_sb3.to_policy(algo)


def build_rllib():
    config = rlcatalog_rllib.configure(PPOConfig(), make_pong)
    env = config.env(config.env_config)
    module = config.get_multi_rl_module_spec(env=env).build()["default_policy"]
    return rlcatalog_rllib.to_policy(module)


@pytest.fixture(scope="module")
def stacks():
    """Two stacks of frames from Pong, `[2, 4, 84, 84]`."""
    env = make_pong()
    first, _ = env.reset(seed=0)
    for _ in range(20):
        second = env.step(2)[0]
    env.close()
    return np.stack([first, second])


@pytest.mark.parametrize("build", [build_sb3, build_rllib], ids=["SB3", "RLlib"])
def test_engines_build_the_same_net_for_a_frame_stack(stacks, build):
    ppo_policy = build_ppo()
    ppo_weights = ppo_policy.model.get_weights()
    # Kernels have the four frames as channels.
    assert ppo_weights["convs.layers.0.weight"].shape[1] == 4

    policy = build()
    own_weights = policy.model.get_weights()  # has more layers, for a separate value
    policy.model.set_weights({**own_weights, **ppo_weights})  # raises an error at other shapes

    outputs = policy.act(stacks, explore=False).dist_inputs
    expected = ppo_policy.act(stacks, explore=False).dist_inputs
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
