"""Bounds of a Box action space, as arrays for the bounded distributions of both frameworks."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import Array
from rlcatalog.spaces import SpaceInfo

#: With `action_bounds="affine"`, larger bounds count as infinite. Such bounds usually stand for
#: "no bound", and an initial policy would hardly ever act where rewards are.
LARGEST_SCALED_BOUND = 1e6


def is_scaled(low: Array, high: Array, rule: str) -> Array:
    """Return which values of a Box action are scaled from [-1, 1] to their bounds, as booleans.

    The others are only clipped.

    Args:
        low: Lower bounds.
        high: Upper bounds.
        rule: The model config's `action_bounds`.
    """
    scaled: Array = np.isfinite(low) & np.isfinite(high)
    if rule == "clip":
        return np.zeros_like(scaled)
    if rule == "affine":
        # In float16, the comparison would overflow.
        low, high = low.astype(np.float64), high.astype(np.float64)
        scaled &= (low >= -LARGEST_SCALED_BOUND) & (high <= LARGEST_SCALED_BOUND)
    return scaled


class Interval(NamedTuple):
    """Bounds `[d]` of raw actions, and quantities derived from them.

    Attributes:
        low: Lower bounds.
        high: Upper bounds.
        width: `high - low`, rounded down so that `low + width` is at most `high`.
        lowest: The smallest float32 numbers above `low`. The density of an action at the bound is
            computed from them.
        highest: The largest float32 numbers below `high`.
        log_width: Logs of the widths.
        log_volume: Their sum.
    """

    low: Any
    high: Any
    width: Any
    lowest: Any
    highest: Any
    log_width: Any
    log_volume: Any

    def has_bounds_of(self, other: Interval) -> bool:
        """Return whether both bounds equal those of another interval."""
        both = (self.low, other.low), (self.high, other.high)
        return self is other or all(a.shape == b.shape and bool((a == b).all()) for a, b in both)


def read_bounds(action: SpaceInfo, name: str) -> tuple[Array, Array]:
    """Return a float Box's bounds as two float32 arrays `[d]`.

    Args:
        action: The action space.
        name: Name of the distribution, for error messages.

    Raises:
        UnsupportedSpaceError: The space is not a Box of floats, or a dimension lacks finite bounds
            with float32 numbers between them.
    """
    if action.is_empty:
        raise action.without_values(name)
    if action.kind != "box" or not (action.dtype or "").startswith("float"):
        raise UnsupportedSpaceError(
            f"{action.path}: {name} needs a Box of floats, found {action.describe()}."
        )
    with np.errstate(over="ignore"):
        low, high = (np.array(bound, np.float32).reshape(-1) for bound in (action.low, action.high))
    fine = _fine(low, high)
    if not fine.all():
        where = int(np.argmin(fine))
        index = [int(i) for i in np.unravel_index(where, action.shape or (1,))]
        raise UnsupportedSpaceError(
            f"{action.path}: {name} needs finite bounds with low < high (as float32) in every"
            f" dimension; found [{low[where]}, {high[where]}] at {index}. Bound the space, or use"
            " a different distribution."
        )
    return low, high


def hashable_bound(bound: float | bytes | Array) -> bytes | float:
    """Return a bound in hashable form, for the cache of `interval`: a number, or the bytes of a
    float32 array.
    """
    if isinstance(bound, float | int | bytes):
        return bound
    return np.asarray(bound, np.float32).tobytes()


@lru_cache(maxsize=256)
def interval(low: bytes | float, high: bytes | float, size: int, dtype: str) -> Interval:
    """Return the interval between two bounds. The result is cached, because every step needs it.

    Args:
        low: Lower bounds, each a `hashable_bound`.
        high: Upper bounds, each a `hashable_bound`.
        size: Number of values in an action.
        dtype: NumPy dtype name of the constants.

    Raises:
        ConfigError: The bounds are not finite, are in the wrong order, or have the wrong size.
    """
    bounds = [
        np.frombuffer(b, np.float32) if isinstance(b, bytes) else np.float32(b) for b in (low, high)
    ]
    if any(bound.size not in (1, size) for bound in bounds):
        raise ConfigError(
            f"low and high must be numbers or have {size} values; found {[b.size for b in bounds]}."
        )
    below, above = (np.broadcast_to(bound, (size,)).copy() for bound in bounds)
    if not _fine(below, above).all():
        raise ConfigError(
            f"low must be below high and both finite; found low={below.tolist()},"
            f" high={above.tolist()}."
        )
    width = above - below
    width = np.where(below + width > above, np.nextafter(width, np.float32(0)), width)
    logs = np.log(above.astype(np.float64) - below)
    lowest, highest = _inside(below, above)
    arrays = [a.astype(dtype) for a in (below, above, width, lowest, highest, logs)]
    return Interval(*arrays, *[math.fsum(logs)])


def _inside(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the outermost float32 numbers inside the bounds whose distances to the bounds are not
    subnormal.
    """
    tiny = np.finfo(np.float32).tiny
    below, above = np.nextafter(low, high) - low, high - np.nextafter(high, low)
    return low + np.maximum(below, tiny), high - np.maximum(above, tiny)


def _fine(low: Array, high: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        lowest, highest = _inside(low, high)
        fine: Array = (
            np.isfinite(high - low) & (low < lowest) & (lowest <= highest) & (highest < high)
        )
    return fine
