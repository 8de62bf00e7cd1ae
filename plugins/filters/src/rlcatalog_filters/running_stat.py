"""Running mean and variance that can be merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
        for name in ("mean", "m2"):
            array = np.asarray(getattr(self, name), np.float64)  # 0-d results of NumPy are scalars
            array.setflags(write=False)
            object.__setattr__(self, name, array)

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
        deviation = batch.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.add.reduce(deviation, axis=0) / n
            deviation -= mean
            np.multiply(deviation, deviation, out=deviation)
            m2 = np.add.reduce(deviation, axis=0)
            usable = _usable(n, mean, m2)
        if not usable:
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
        if self.n == 0 or other.n == 0:
            return self if other.n == 0 else other
        n = self.n + other.n
        with np.errstate(over="ignore", invalid="ignore"):
            delta = other.mean - self.mean
            mean = self.mean + delta * (other.n / n)
            m2 = self.m2 + other.m2 + delta * delta * (self.n * other.n / n)
            usable = _usable(n, mean, m2)
        if not usable:
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
        self.moments = Moments.empty(tuple(int(n) for n in shape))

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
        n, mean, m2 = self.moments.n, self.moments.mean, self.moments.m2
        return np.asarray(m2 / (n - 1) if n > 1 else np.square(mean))

    @property
    def std(self) -> Array:
        """Standard deviation of the values: the square root of `var`."""
        return np.asarray(np.sqrt(self.var))

    def push(self, x: Any) -> None:
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

    def push_batch(self, x: Any) -> None:
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
        if missing := [name for name in ("n", "mean", "m2") if name not in state]:
            raise SavedPolicyError(
                f"these statistics are incomplete: missing {missing}, found {sorted(state)}."
            )
        n, mean, m2 = (np.array(state[name]) for name in ("n", "mean", "m2"))
        fits = n.shape == () and n.dtype.kind in "iu" and mean.shape == m2.shape
        if (
            fits := fits
            and mean.dtype == m2.dtype == np.float64
            and bool(n >= 0)
            and bool((m2 >= 0).all())
        ):
            with np.errstate(over="ignore", invalid="ignore"):
                fits = _usable(int(n), mean, m2)
        if not fits:
            raise SavedPolicyError(
                "expected an integer n >= 0 and finite float64 arrays mean and m2 of the same"
                f" shape, with m2 >= 0; found n {n.dtype} {n.shape}, mean {mean.dtype}"
                f" {mean.shape}, m2 {m2.dtype} {m2.shape}."
            )
        found = cls()
        found.moments = Moments(int(n), mean, m2)
        return found

    def __repr__(self) -> str:
        return f"RunningStat(n={self.n}, shape={self.shape})"


def _usable(n: int, mean: Any, m2: Any) -> bool:
    """Return whether the sum of squares is finite; if so, all results computed from these moments
    are too.
    """
    return bool(np.isfinite(m2 + n * (mean * mean)).all())


def numbers(x: Any) -> Array:
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
    wrong = np.argwhere(~np.isfinite(batch))
    place = wrong[0] if len(wrong) else np.unravel_index(int(np.argmax(np.abs(batch))), batch.shape)
    return tuple(int(i) for i in place)
