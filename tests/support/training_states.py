"""Training states of PPO, as checkpoints contain them."""

from __future__ import annotations

import numpy as np


def make_state(**changes):
    """Return the smallest valid state of an algorithm with one environment, with some changes."""
    return {
        "algorithm": "PPO",
        "env": None,
        "config": {"num_envs": 1, "env_config": {}},
        "steps": 0,
        "iterations": 0,
        "seconds": 0.0,
        "generator": {},
        "randomness": {
            "python": (3, (1, 2), None),
            "numpy": ("MT19937", np.zeros(624, np.uint32), 624, 0, 0.0),
            "policy": {},
        },
        "learner": {
            "kl_coeff": 0.0,
            "optimizer": {"step": 0, "first": {}, "second": {}, "behind": {}},
        },
        "collector": {"episodes": {"returns": [], "lengths": [], "total": 0}, "state": None},
        "environments": [{"generator": {}}],
        "callbacks": {},
        **changes,
    }
