"""The only random generator of the framework: weights and actions are drawn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tape import Numbers

_BITS = np.random.MT19937(0)

GENERATOR = np.random.Generator(_BITS)


def seed(value: int) -> None:
    """Begin the sequence of random numbers that belongs to a seed."""
    _BITS.state = np.random.MT19937(value).state


def state() -> dict[str, Numbers]:
    """Return where the generator is in its sequence, as arrays by name."""
    inner: Any = _BITS.state["state"]
    return {"key": inner["key"].copy(), "pos": np.array(inner["pos"])}


def set_state(arrays: Mapping[str, Numbers]) -> None:
    """Return to a place in the sequence; see `state`."""
    inner: Any = {"key": arrays["key"], "pos": int(arrays["pos"])}
    _BITS.state = {"bit_generator": "MT19937", "state": inner}
