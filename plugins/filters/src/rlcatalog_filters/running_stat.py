"""Running mean and variance that can be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlcatalog.errors import ObservationError, SavedPolicyError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations for a stream of values; immutable.

    Attributes:
        n: Number of values.
        mean: Their mean, float64, read-only.
        m2: Sum of the values' squared differences from the mean, float64, read-only.
    """

    n: int
    mean: Array
    m2: Array

    def __post_init__(self) -> None:
        # The class is frozen, so it cannot assign to its fields in the usual way.
        object.__setattr__(self, "mean", _read_only(self.mean))
        object.__setattr__(self, "m2", _read_only(self.m2))

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Moments:
        """Return the moments of an empty stream of values with this shape."""
        return cls(0, np.zeros(shape), np.zeros(shape))

    @classmethod
    def of(cls, batch: Array) -> Moments:
        """Return the moments of a batch `[B, *shape]` along its first axis.

        Raises:
            ObservationError: A value is not finite, or too large to be squared.
        """
        n = len(batch)
        if n == 0:
            return cls.empty(batch.shape[1:])
        deviation = batch.astype(np.float64)  # a copy, which becomes the squared deviation
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.add.reduce(deviation, axis=0) / n
            deviation -= mean
            np.multiply(deviation, deviation, out=deviation)
            m2 = np.add.reduce(deviation, axis=0)
            are_finite = _are_finite(n, mean, m2)
        if not are_finite:
            place = worst_place(batch)
            where = ", ".join(map(str, place))
            raise ObservationError(
                f"expected finite values for the statistics, found {batch[place]} at [{where}] of"
                f" an array of shape {batch.shape}; nothing was changed. Keep such values out of"
                " the observations."
            )
        return cls(n, mean, m2)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both streams combined.

        This is the pairwise update of Chan, Golub and LeVeque, "Algorithms for computing the sample
        variance: analysis and recommendations" (The American Statistician 37, 1983).

        Raises:
            ObservationError: The result is not finite.
        """
        if other.n == 0:
            return self
        if self.n == 0:
            return other
        n = self.n + other.n
        with np.errstate(over="ignore", invalid="ignore"):
            delta = other.mean - self.mean
            mean = self.mean + delta * (other.n / n)
            m2 = self.m2 + other.m2 + delta * delta * (self.n * other.n / n)
            are_finite = _are_finite(n, mean, m2)
        if not are_finite:
            raise ObservationError(
                f"the values are too large for statistics (up to {np.abs(other.mean).max()}, with "
                f"{np.abs(self.mean).max()} before); nothing was changed."
            )
        return Moments(n, mean, m2)


class RunningStat:
    """Elementwise mean and variance of arrays that arrive one by one or in batches.

    The computation is in float64 and uses differences from the mean, so that a large mean does not
    swamp a small variance.

    Args:
        shape: Shape of one value.

    Attributes:
        moments: The current moments; the object is replaced but never modified.
    """

    def __init__(self, shape: Sequence[int] = ()) -> None:
        self.moments = Moments.empty(tuple(map(int, shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of each value, and of the mean, variance and standard deviation."""
        return tuple(self.moments.mean.shape)

    @property
    def n(self) -> int:
        """Number of values so far."""
        return self.moments.n

    num_pushes = n  # RLlib's name for it

    @property
    def mean(self) -> Array:
        """Mean of the values, float64; zeros before the first value."""
        return self.moments.mean

    @property
    def var(self) -> Array:
        """Variance of the values, with n - 1 in the denominator; for a single value, its square, as
        in RLlib.
        """
        moments = self.moments
        if moments.n > 1:
            return np.asarray(moments.m2 / (moments.n - 1))
        return np.asarray(np.square(moments.mean))

    @property
    def std(self) -> Array:
        """Standard deviation of the values: the square root of `var`."""
        return np.asarray(np.sqrt(self.var))

    def push(self, x: ArrayLike) -> None:
        """Add one value.

        Args:
            x: Array of shape `shape` and of any numeric dtype.

        Raises:
            ObservationError: `x` has the wrong shape, or is not finite.
        """
        array = numbers(x)
        if array.shape != self.shape:
            raise ObservationError(
                f"expected a single value of shape {self.shape}, found shape {array.shape}."
            )
        self.moments = self.moments.merged(Moments.of(array[None]))

    def push_batch(self, x: ArrayLike) -> None:
        """Add a batch of values in one step.

        Args:
            x: Array `[B, *shape]` of any numeric dtype.

        Raises:
            ObservationError: `x` has the wrong shape, or is not finite.
        """
        array = numbers(x)
        if array.ndim == 0 or array.shape[1:] != self.shape:
            raise ObservationError(
                f"expected a batch of shape [B, *{self.shape}], found shape {array.shape}."
            )
        self.moments = self.moments.merged(Moments.of(array))

    def update(self, other: RunningStat) -> None:
        """Add the values of another instance.

        Raises:
            ObservationError: The other instance has a different shape.
        """
        if other.shape != self.shape:
            raise ObservationError(
                f"expected statistics of shape {self.shape} to merge, found shape {other.shape}."
            )
        self.moments = self.moments.merged(other.moments)

    def copy(self) -> RunningStat:
        """Return an independent copy."""
        copied = RunningStat()
        copied.moments = self.moments
        return copied

    def to_state(self) -> dict[str, Array]:
        """Return new arrays: `n` (int64), and `mean` and `m2` (float64, of shape `shape`)."""
        return {
            "n": np.array(self.n, np.int64),
            "mean": self.mean.copy(),
            "m2": self.moments.m2.copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> RunningStat:
        """Return the object whose state `to_state` returned.

        Raises:
            SavedPolicyError: The arrays are not a valid filter state.
        """
        missing = [name for name in ("n", "mean", "m2") if name not in state]
        if missing:
            raise SavedPolicyError(
                f"these statistics are incomplete: missing {missing}, found {sorted(state)}."
            )
        n = np.array(state["n"])
        mean = np.array(state["mean"])
        m2 = np.array(state["m2"])
        if not _is_valid(n, mean, m2):
            raise SavedPolicyError(
                "expected an integer n >= 0 and finite float64 arrays mean and m2 of the same"
                f" shape, with m2 >= 0; found n {n.dtype} {n.shape}, mean {mean.dtype}"
                f" {mean.shape}, m2 {m2.dtype} {m2.shape}."
            )
        stat = cls()
        stat.moments = Moments(int(n), mean, m2)
        return stat

    def __repr__(self) -> str:
        return f"RunningStat(n={self.n}, shape={self.shape})"


def _read_only(values: Array) -> Array:
    """Return values as a read-only float64 array."""
    array = np.asarray(values, np.float64)  # NumPy's results without axes are no arrays
    array.setflags(write=False)
    return array


def _are_finite(n: int, mean: Array, m2: Array) -> bool:
    """Return whether the sum of squares is finite; if so, all results computed from these moments
    are too.
    """
    return bool(np.isfinite(m2 + n * (mean * mean)).all())


def _is_valid(n: Array, mean: Array, m2: Array) -> bool:
    """Return whether saved arrays can be moments."""
    is_count = n.shape == () and n.dtype.kind in "iu" and bool(n >= 0)
    have_one_shape = mean.shape == m2.shape
    are_float64 = mean.dtype == np.float64 and m2.dtype == np.float64
    if not (is_count and have_one_shape and are_float64):
        return False
    if (m2 < 0).any():
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return _are_finite(int(n), mean, m2)


def numbers(x: ArrayLike) -> Array:
    """Convert a value to a numeric array.

    Raises:
        ObservationError: The value is not numeric.
    """
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise ObservationError(
            f"expected numbers, found {type(x).__name__} of dtype {array.dtype}."
        )
    return array


def worst_place(batch: Array) -> tuple[int, ...]:
    """Return the index of the first value that is not finite, or of the largest value."""
    not_finite = np.argwhere(~np.isfinite(batch))
    if len(not_finite):
        return tuple(not_finite[0].tolist())
    largest = int(np.argmax(np.abs(batch)))
    return tuple(map(int, np.unravel_index(largest, batch.shape)))
