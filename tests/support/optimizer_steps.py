"""A policy and batches of random numbers, for tests of single steps of an optimiser."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

import rlcatalog


def build_policy(framework, **model):
    """Return a policy for 3 numbers and 2 actions, with weights that do not depend on a seed."""
    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    config = {"fcnet_hiddens": [4], **model}
    policy = rlcatalog.build(observation_space, gym.spaces.Discrete(2), config, framework)
    rng = np.random.default_rng(1)
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = rng.normal(size=array.shape)
    policy.model.set_weights(weights)
    return policy


def make_batch(rows=8, **columns):
    """Return a batch of random numbers, in which some columns may be replaced."""
    rng = np.random.default_rng(rows)
    batch = {}
    for name in ("logp", "advantage", "target", "reward"):
        batch[name] = rng.normal(size=rows).astype(np.float32)
    batch["obs"] = rng.normal(size=(rows, 3)).astype(np.float32)
    batch["raw_action"] = rng.integers(0, 2, (rows, 1))
    return {**batch, **columns}
