"""The PPO scripts of one file, one in each framework.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from short_env import CountsToFive

import rlcatalog

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import ppo_single_file
import ppo_single_file_tf

pytestmark = pytest.mark.usefixtures("one_thread", "seeded", "default")

SCRIPTS = {"torch": ppo_single_file, "tf": ppo_single_file_tf}


def make_minibatch(policy, rows=64):
    obs = np.random.default_rng(0).uniform(-1, 1, (rows, 1)).astype(np.float32)
    step = policy.act(obs)
    rng = np.random.default_rng(1)
    advantage, target, noise = rng.normal(size=(3, rows)).astype(np.float32)
    return {
        "obs": obs,
        "raw_action": step.raw_action,
        "logp": step.logp + 0.2 * noise,  # as if older weights had sampled the actions
        "advantage": advantage,
        "target": target,
    }


def take_two_steps(framework, policy, minibatch):
    """Return how far two gradient steps move the weights."""
    script = SCRIPTS[framework]
    before = policy.model.get_weights()
    learner = script.Learner(policy, script.Hyper(entropy_weight=0.01))
    learner.step(minibatch, 1e-3)
    learner.step(minibatch, 5e-4)
    after = policy.model.get_weights()
    return np.concatenate([(after[name] - before[name]).ravel() for name in sorted(before)])


def test_scripts_take_the_same_gradient_steps():
    torch_policy = rlcatalog.build(
        env=CountsToFive(), config={"fcnet_hiddens": [8]}, framework="torch"
    )
    tf_policy = rlcatalog.build(env=CountsToFive(), config={"fcnet_hiddens": [8]}, framework="tf")
    tf_policy.model.set_weights(torch_policy.model.get_weights())
    minibatch = make_minibatch(torch_policy)

    # How far two steps move the weights.
    torch_change = take_two_steps("torch", torch_policy, minibatch)
    tf_change = take_two_steps("tf", tf_policy, minibatch)

    # The frameworks round differently.
    difference = np.linalg.norm(tf_change - torch_change)
    assert difference <= 1e-4 * np.linalg.norm(torch_change)


@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_rollout_reads_the_last_observation_before_a_reset(framework):
    script = SCRIPTS[framework]
    # Observations are 0, 1, ..., 5. Then the episode is cut, and with copy=False, a reset
    # overwrites the array of the last observation.
    envs = gym.vector.SyncVectorEnv(
        [CountsToFive] * 2, copy=False, autoreset_mode=gym.vector.AutoresetMode.DISABLED
    )
    policy = rlcatalog.build(env=CountsToFive(), config={"fcnet_hiddens": [8]}, framework=framework)
    player = script.Player(policy, envs, script.Hyper(num_envs=2, length=12, gamma=0.5), seed=0)

    rewards = player.rollout()["reward"].reshape(12, 2)

    # The rewards are 1. At a cut, after steps 5 and 10, the discounted value of the last
    # observation is added.
    value_of_last_observation = policy.act(np.array([[5.0]], np.float32)).value[0]
    expected = np.ones((12, 2))
    expected[[4, 9]] += 0.5 * value_of_last_observation
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)
    # Two episodes end in each of two environments.
    assert player.returns == [5.0, 5.0, 5.0, 5.0]
