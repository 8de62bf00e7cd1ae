"""Random numbers of a process: their states, read and set again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlcatalog import Policy


def get_state(policy: Policy) -> dict[str, Any]:
    """Return the states of Python's and NumPy's generators, and of what the policy draws from."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "policy": policy.random_state()}


def set_state(policy: Policy, state: Mapping[str, Any]) -> None:
    """Set the states that `get_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    policy.set_random_state(state["policy"])


@contextmanager
def kept(policy: Policy) -> Iterator[None]:
    """Leave all generators behind as they were."""
    state = get_state(policy)
    try:
        yield
    finally:
        set_state(policy, state)
