"""Observations that tell which of five actions are allowed, by masks and embeddings."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import Repeated

FOUR_NUMBERS = spaces.Box(-1, 1, (4,), np.float32)
MASK = spaces.MultiBinary(5)
#: An embedding of three numbers for each of five actions, and a list of up to five of them.
EMBEDDINGS = spaces.Box(-1, 1, (5, 3), np.float32)
EMBEDDING_LIST = Repeated(spaces.Box(-1, 1, (3,), np.float32), 5)
KINDS = {
    "mask": {"action_mask": MASK},
    "embeddings": {"avail_actions": EMBEDDINGS},
    "embeddings and mask": {"action_mask": MASK, "avail_actions": EMBEDDINGS},
    "list": {"avail_actions": EMBEDDING_LIST},
    "list and mask": {"action_mask": MASK, "avail_actions": EMBEDDING_LIST},
}


def make_space(kind, real_obs=FOUR_NUMBERS):
    """Return a Dict space with the entries of a kind, and `real_obs`."""
    return spaces.Dict({**KINDS[kind], "real_obs": real_obs})


def draw_observations(kind, rows, seed=0, real_obs=FOUR_NUMBERS):
    """Draw observations of a kind that each allow action 0, and others at random."""
    space = make_space(kind, real_obs)
    space.seed(seed)
    random = np.random.default_rng(seed)
    observations = [space.sample() for _ in range(rows)]
    for obs in observations:
        if "list" in kind:
            count = 1 + random.integers(5)
            obs["avail_actions"] = list(random.uniform(-1, 1, (count, 3)).astype(np.float32))
        if "mask" in kind:
            obs["action_mask"] = (random.random(5) < 0.4).astype(np.int8)
            obs["action_mask"][0] = 1
    return observations


def find_allowed(observations):
    """Return which of the five actions each observation allows, booleans [rows, 5]."""
    rows = []
    for obs in observations:
        allowed = np.asarray(obs.get("action_mask", np.ones(5))).astype(bool)
        embeddings = obs.get("avail_actions")
        if isinstance(embeddings, list | tuple):
            allowed = allowed & (np.arange(5) < len(embeddings))
        rows.append(allowed)
    return np.stack(rows)


def stack_embeddings(observations):
    """Return the embeddings of the actions, [rows, 5, 3]; lists are padded with zeros."""
    padded = np.zeros((len(observations), 5, 3), np.float32)
    for row, obs in zip(padded, observations, strict=True):
        row[: len(obs["avail_actions"])] = obs["avail_actions"]
    return padded
