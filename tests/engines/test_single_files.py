"""The PPO scripts of one file: one algorithm in two frameworks, and what is read before a reset.

Crosses: policy, torch, tf.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import ppo_single_file
import ppo_single_file_tf

pytestmark = pytest.mark.usefixtures("one_thread", "seeded", "default")

SCRIPTS = {"torch": ppo_single_file, "tf": ppo_single_file_tf}
CONFIG = {"fcnet_hiddens": [8]}


class Counts(gym.Env):
    """Counts to five in one array, pays 1 per step, and is cut."""

    observation_space, action_space = Box(-10, 10, (1,), np.float32), Discrete(2)

    def __init__(self):
        self.obs = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = 0
        return self.obs, {}

    def step(self, action):
        self.obs += 1
        return self.obs, 1.0, False, bool(self.obs[0] == 5), {}


def batch_of(policy, rows=64):
    obs = np.random.default_rng(0).uniform(-1, 1, (rows, 1)).astype(np.float32)
    step, rng = policy.act(obs), np.random.default_rng(1)
    advantage, target, noise = rng.normal(size=(3, rows)).astype(np.float32)
    return {
        "obs": obs,
        "raw_action": step.raw_action,
        "logp": step.logp + 0.2 * noise,
        "advantage": advantage,
        "target": target,
    }


def test_scripts_take_the_same_gradient_steps():
    policies = {f: rlcatalog.build(env=Counts(), config=CONFIG, framework=f) for f in SCRIPTS}
    weights = policies["torch"].model.get_weights()
    policies["tf"].model.set_weights(weights)
    batch, moved = batch_of(policies["torch"]), {}
    for framework, policy in policies.items():
        learner = SCRIPTS[framework].Learner(policy, SCRIPTS[framework].Hyper(entropy_weight=0.01))
        for lr in (1e-3, 5e-4):
            learner.step(batch, lr)
        after = policy.model.get_weights()
        moved[framework] = np.concatenate(
            [(after[name] - weights[name]).ravel() for name in sorted(weights)]
        )
    difference = np.linalg.norm(moved["tf"] - moved["torch"])
    assert difference <= 1e-4 * np.linalg.norm(moved["torch"])


@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_rollout_reads_the_last_observation_before_a_reset(framework):
    script = SCRIPTS[framework]
    envs = gym.vector.SyncVectorEnv(
        [Counts] * 2, copy=False, autoreset_mode=gym.vector.AutoresetMode.DISABLED
    )
    policy = rlcatalog.build(env=Counts(), config=CONFIG, framework=framework)
    player = script.Player(policy, envs, script.Hyper(num_envs=2, length=12, gamma=0.5), 0)
    found = player.rollout()["reward"].reshape(12, 2)
    last = policy.act(np.array([[5.0]], np.float32)).value[0]
    expected = np.ones((12, 2))
    expected[[4, 9]] += 0.5 * last
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert player.returns == [5.0] * 4
