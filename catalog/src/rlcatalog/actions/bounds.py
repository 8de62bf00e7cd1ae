"""Bounds of a Box action space, as arrays for the bounded distributions of both frameworks."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.frameworks.ops import Array, Tensor
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
    has_finite_bounds: Array = np.isfinite(low) & np.isfinite(high)
    if rule == "clip":
        return np.zeros_like(has_finite_bounds)
    if rule == "affine":
        # In float16, the comparison would overflow.
        is_low_moderate = low.astype(np.float64) >= -LARGEST_SCALED_BOUND
        is_high_moderate = high.astype(np.float64) <= LARGEST_SCALED_BOUND
        return has_finite_bounds & is_low_moderate & is_high_moderate
    return has_finite_bounds


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
        if self is other:
            return True
        return _are_equal(self.low, other.low) and _are_equal(self.high, other.high)


def _are_equal(bound: Tensor, other: Tensor) -> bool:
    return bound.shape == other.shape and bool((bound == other).all())  # type: ignore[attr-defined]


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
        raise action.error_without_values(name)
    if action.kind != "box" or not (action.dtype or "").startswith("float"):
        raise UnsupportedSpaceError(
            f"{action.path}: {name} needs a Box of floats, found {action.describe()}."
        )
    with np.errstate(over="ignore"):
        low = np.array(action.low, np.float32).reshape(-1)
        high = np.array(action.high, np.float32).reshape(-1)
    is_usable = _has_numbers_between(low, high)
    if not is_usable.all():
        where = int(np.argmin(is_usable))  # the first unusable dimension of the flat bounds
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
    below = _as_float32(low)
    above = _as_float32(high)
    sizes = [below.size, above.size]
    # One number holds for every value of the action.
    if not set(sizes) <= {1, size}:
        raise ConfigError(f"low and high must be numbers or have {size} values; found {sizes}.")
    below = np.broadcast_to(below, (size,)).copy()
    above = np.broadcast_to(above, (size,)).copy()
    if not _has_numbers_between(below, above).all():
        raise ConfigError(
            f"low must be below high and both finite; found low={below.tolist()},"
            f" high={above.tolist()}."
        )
    width = above - below
    # The width may have been rounded up; the next smaller number keeps `low + width` within `high`.
    is_too_wide = below + width > above
    width = np.where(is_too_wide, np.nextafter(width, np.float32(0)), width)
    log_width = np.log(above.astype(np.float64) - below)
    lowest, highest = _numbers_beside_bounds(below, above)
    return Interval(
        low=below.astype(dtype),
        high=above.astype(dtype),
        width=width.astype(dtype),
        lowest=lowest.astype(dtype),
        highest=highest.astype(dtype),
        log_width=log_width.astype(dtype),
        log_volume=math.fsum(log_width),
    )


def _as_float32(bound: bytes | float) -> Array | np.float32:
    """Return the bound that `hashable_bound` made hashable."""
    if isinstance(bound, bytes):
        return np.frombuffer(bound, np.float32)
    return np.float32(bound)


def _numbers_beside_bounds(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the outermost float32 numbers inside the bounds whose distances to the bounds are not
    subnormal.
    """
    smallest_normal = np.finfo(np.float32).tiny
    step_up = np.nextafter(low, high) - low
    step_down = high - np.nextafter(high, low)
    lowest = low + np.maximum(step_up, smallest_normal)
    highest = high - np.maximum(step_down, smallest_normal)
    return lowest, highest


def _has_numbers_between(low: Array, high: Array) -> Array:
    """Return which pairs of bounds are finite and have float32 numbers between them."""
    with np.errstate(over="ignore", invalid="ignore"):
        lowest, highest = _numbers_beside_bounds(low, high)
        is_ordered = (low < lowest) & (lowest <= highest) & (highest < high)
        has_numbers: Array = np.isfinite(high - low) & is_ordered
    return has_numbers
