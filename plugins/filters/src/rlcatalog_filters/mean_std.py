"""`MeanStdFilter` and `NoFilter` with RLlib's interface, called on single observations or on
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog_filters.running_stat import Array, Moments, RunningStat, numbers

#: Number added to the standard deviation, so that constant values do not cause a division by zero.
EPSILON = 1e-6


class MeanStdFilter:
    """Filter that subtracts the running mean and divides by the running standard deviation.

    `(x - mean) / (std + 1e-6)`, clipped at `clip`. Before the first value, there are no statistics,
    so values are only clipped. The first value always becomes 0 (see `RunningStat.var`).

    Args:
        shape: Shape of one observation, `()` for a number; or a dict or tuple of shapes, nested to
            any depth, for observations with that structure. A leaf that is None is passed through
            unchanged.
        demean: Whether to subtract the mean.
        destd: Whether to divide by the standard deviation.
        clip: Limit on the results, or None.

    Attributes:
        running_stats: Statistics of all observations: a `RunningStat`, or a structure of such
            objects.
        buffer: Statistics of the observations since the last `reset_buffer`, in the same structure.

    Raises:
        ConfigError: `shape` or `clip` is invalid.
    """

    def __init__(
        self, shape: Any, demean: bool = True, destd: bool = True, clip: float | None = 10.0
    ) -> None:
        if clip is not None and not clip > 0:
            raise ConfigError(
                f"clip must be a number above 0, or None for no limit; found {clip!r}."
            )
        self.shape = shape
        self.demean, self.destd, self.clip = demean, destd, clip
        self.running_stats: Any = _statistics(shape)
        self.buffer: Any = _statistics(shape)

    def __call__(self, x: Any, update: bool = True) -> Any:
        """Filter a single observation, or a batch of observations with an additional leading axis.

        Args:
            x: Array of shape `shape` or `[B, *shape]`; or, if `shape` is a structure, a structure
                of such arrays.
            update: Whether to update the statistics with `x` first. The default is the same as in
                RLlib; `Policy.act` never updates statistics.

        Returns:
            Float32 array of the same shape, for any dtype of `x`; or a structure of such arrays.

        Raises:
            ObservationError: `x` has the wrong shape or structure, or `update` is set and `x` is
                not finite. The filter stays unchanged.
        """
        if update:
            self.observe(x)
        return _map(self._scale, self.running_stats, x)

    def observe(self, x: Any) -> None:
        """Update the statistics with an observation or a batch, without filtering it.

        Args:
            x: See `__call__`.

        Raises:
            ObservationError: `x` has the wrong shape or structure, or is not finite. The filter
                stays unchanged.
        """
        found: list[Moments] = []
        _map(
            lambda stat, value, path: found.append(_moments(stat, value, path)),
            self.running_stats,
            x,
        )
        stats, buffers = _leaves(self.running_stats), _leaves(self.buffer)
        merged = []  # merge all before storing any: an error must not leave half of them changed
        for stat, buffer, new in zip(stats, buffers, found, strict=True):
            both = stat.moments.merged(new)
            same = buffer.moments is stat.moments  # until the buffer is reset
            merged.append((both, both if same else buffer.moments.merged(new)))
        for stat, buffer, (all_of_them, gathered) in zip(stats, buffers, merged, strict=True):
            stat.moments, buffer.moments = all_of_them, gathered

    def reset_buffer(self) -> None:
        """Clear the buffer, for example after its content has been sent."""
        self.buffer = _statistics(self.shape)

    def apply_changes(self, other: MeanStdFilter, with_buffer: bool = False) -> None:
        """Add another filter's buffer to the statistics.

        Args:
            other: A filter of the same shape, such as a worker's.
            with_buffer: Whether to also replace this filter's buffer with a copy of the other
                buffer.

        Raises:
            ObservationError: The other filter has a different shape.
        """
        self._check_same(other)
        merged = [
            one.moments.merged(new.moments)
            for one, new in zip(_leaves(self.running_stats), _leaves(other.buffer), strict=True)
        ]
        for stat, moments in zip(_leaves(self.running_stats), merged, strict=True):
            stat.moments = moments
        if with_buffer:
            _assign(self.buffer, other.buffer)

    def copy(self) -> MeanStdFilter:
        """Return an independent copy."""
        copied = MeanStdFilter(self.shape, self.demean, self.destd, self.clip)
        copied.sync(self)
        return copied

    def sync(self, other: MeanStdFilter) -> None:
        """Copy everything from another filter: settings, statistics and buffer.

        Raises:
            ObservationError: The other filter has a different shape.
        """
        self._check_same(other)
        self.demean, self.destd, self.clip = other.demean, other.destd, other.clip
        _assign(self.running_stats, other.running_stats)
        _assign(self.buffer, other.buffer)

    def as_serializable(self) -> MeanStdFilter:
        """Return a copy that can be pickled and sent."""
        return self.copy()

    def __repr__(self) -> str:
        return (
            f"MeanStdFilter({self.shape!r}, demean={self.demean}, destd={self.destd},"
            f" clip={self.clip}, running_stats={self.running_stats!r})"
        )

    def _check_same(self, other: MeanStdFilter) -> None:
        here, there = (_map(lambda stat, path: stat.shape, f.running_stats) for f in (self, other))
        if here != there:
            raise ObservationError(
                f"expected a filter with shape {here}, found one with shape {there}."
            )

    def _scale(self, stat: RunningStat, value: Any, path: str) -> Array:
        batch, single = _batch(stat, value, path)
        offset, factor = scaling(stat, self.demean, self.destd)
        out = scale(batch, offset, factor, None if self.clip is None else -self.clip, self.clip)
        return out[0, ...] if single else out


class NoFilter:
    """Filter with the interface of `MeanStdFilter` that returns observations unchanged."""

    def __init__(self, *args: Any) -> None:
        """Accept and ignore the arguments that other filters take, such as a shape."""

    def __call__(self, x: Any, update: bool = True) -> Any:
        """Return arrays, dicts and tuples unchanged, and anything else as an array."""
        return x if isinstance(x, np.ndarray | dict | tuple) else np.asarray(x)

    def reset_buffer(self) -> None:
        """Do nothing: there is no buffer."""

    def apply_changes(self, other: Any, with_buffer: bool = False) -> None:
        """Do nothing: there are no statistics."""

    def copy(self) -> NoFilter:
        """Return the filter itself."""
        return self

    def sync(self, other: Any) -> None:
        """Do nothing: there are no statistics."""

    def as_serializable(self) -> NoFilter:
        """Return the filter itself."""
        return self


def scaling(stat: RunningStat, demean: bool = True, destd: bool = True) -> tuple[Array, Array]:
    """Return the offset to subtract and the factor to multiply by: float64 arrays in the
    statistics' shape.

    Args:
        stat: The statistics; if there are none yet, values are unchanged.
        demean: Whether the mean is subtracted.
        destd: Whether to divide by the standard deviation.
    """
    zeros, ones = np.zeros(stat.shape), np.ones(stat.shape)
    if stat.n == 0:
        return zeros, ones
    return stat.mean if demean else zeros, 1.0 / (stat.std + EPSILON) if destd else ones


def scale(batch: Array, offset: Array, factor: Array, low: Any, high: Any) -> Array:
    """Return `(batch - offset) * factor` between `low` and `high`, as float32.

    Args:
        batch: Numbers `[B, *shape]` of any dtype; the computation is in float64, because means may
            be large.
        offset: Array of `shape`.
        factor: Array of `shape`.
        low: Lower limits for the results: a number, an array of shape `shape`, or None for no
            limits.
        high: Upper limits for the results, in the same form.
    """
    out = np.subtract(batch, offset)
    np.multiply(out, factor, out=out)
    if low is not None:
        np.maximum(out, low, out=out)
        np.minimum(out, high, out=out)
    return out.astype(np.float32)


# --- structures -----------------------------------------------------------------------------------


def _statistics(shape: Any) -> Any:
    """Create empty statistics for a shape or a structure of shapes."""
    if shape is None:
        return None
    if isinstance(shape, Mapping):
        return {key: _statistics(part) for key, part in shape.items()}
    # RLlib's form of a leaf.
    if isinstance(shape, np.ndarray) and shape.ndim == 1 and shape.dtype.kind in "iuf":
        shape = tuple(int(n) for n in shape)
    if isinstance(shape, tuple | list):
        if all(isinstance(n, Integral) for n in shape):
            return RunningStat(shape)
        if not any(isinstance(n, Integral) for n in shape):
            return tuple(_statistics(part) for part in shape)
    raise ConfigError(
        f"shape must be a tuple of integers, None, or a dict or tuple of shapes; found {shape!r}."
    )


def _map(function: Callable[..., Any], stats: Any, *values: Any, path: str = "x") -> Any:
    """Map `function(stat, value, path)` over a structure; values without statistics
    stay unchanged.
    """
    if stats is None:
        return values[0] if values else None
    if isinstance(stats, dict):
        for value in values:
            if not isinstance(value, Mapping) or value.keys() != stats.keys():
                found = list(value) if isinstance(value, Mapping) else type(value).__name__
                raise ObservationError(
                    f"{path}: expected a dict with the keys {list(stats)}, found {found}."
                )
        return {
            key: _map(function, part, *(value[key] for value in values), path=f"{path}[{key!r}]")
            for key, part in stats.items()
        }
    if isinstance(stats, tuple):
        for value in values:
            if not isinstance(value, tuple | list) or len(value) != len(stats):
                found = (
                    f"{len(value)} values"
                    if isinstance(value, tuple | list)
                    else type(value).__name__
                )
                raise ObservationError(
                    f"{path}: expected a tuple of {len(stats)} values, found {found}."
                )
        return tuple(
            _map(function, part, *(value[i] for value in values), path=f"{path}[{i}]")
            for i, part in enumerate(stats)
        )
    return function(stats, *values, path)


def _leaves(stats: Any) -> list[RunningStat]:
    found: list[RunningStat] = []
    _map(lambda stat, path: found.append(stat), stats)
    return found


def _assign(stats: Any, others: Any) -> None:
    for stat, other in zip(_leaves(stats), _leaves(others), strict=True):
        stat.moments = other.moments


def _batch(stat: RunningStat, value: Any, path: str) -> tuple[Array, bool]:
    """Return a value as a batch `[B, *shape]`, and whether it was a single observation."""
    try:
        array = numbers(value)
    except ObservationError as error:
        raise ObservationError(f"{path}: {error}") from None
    if array.shape == stat.shape:
        return array[None], True
    if array.ndim and array.shape[1:] == stat.shape:
        return array, False
    raise ObservationError(
        f"{path}: expected shape {stat.shape}, or a batch [B, *{stat.shape}]; found shape"
        f" {array.shape}."
    )


def _moments(stat: RunningStat, value: Any, path: str) -> Moments:
    batch, _ = _batch(stat, value, path)
    try:
        return Moments.of(batch)
    except ObservationError as error:
        raise ObservationError(f"{path}: {error}") from None
