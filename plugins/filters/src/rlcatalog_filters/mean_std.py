"""`MeanStdFilter` and `NoFilter` with RLlib's interface, called on single observations or on
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from rlcatalog.errors import ConfigError, ObservationError
from rlcatalog_filters.running_stat import Array, Moments, RunningStat, numbers

#: A shape, or a structure of shapes; None for a leaf that is not filtered.
Shapes: TypeAlias = "Sequence[int] | Array | Mapping[str, Shapes] | Sequence[Shapes] | None"
#: Statistics for a shape or a structure of shapes.
Statistics: TypeAlias = "RunningStat | dict[str, Statistics] | tuple[Statistics, ...] | None"
#: An observation, or a batch of them.
Values: TypeAlias = "ArrayLike | Mapping[str, Values] | Sequence[Values]"

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
        self, shape: Shapes, demean: bool = True, destd: bool = True, clip: float | None = 10.0
    ) -> None:
        if clip is not None and not clip > 0:
            raise ConfigError(
                f"clip must be a number above 0, or None for no limit; found {clip!r}."
            )
        self.shape = shape
        self.demean = demean
        self.destd = destd
        self.clip = clip
        self.running_stats: Any = _empty_statistics(shape)
        self.buffer: Any = _empty_statistics(shape)

    def __call__(self, x: Values, update: bool = True) -> Any:
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
        return _map_leaves(self._scale, self.running_stats, x)

    def observe(self, x: Values) -> None:
        """Update the statistics with an observation or a batch, without filtering it.

        Args:
            x: See `__call__`.

        Raises:
            ObservationError: `x` has the wrong shape or structure, or is not finite. The filter
                stays unchanged.
        """
        new_moments: list[Moments] = []

        def collect(stat: RunningStat, value: Values, path: str) -> None:
            new_moments.append(_moments(stat, value, path))

        _map_leaves(collect, self.running_stats, x)
        stats = _leaves(self.running_stats)
        buffers = _leaves(self.buffer)
        # Merge all before storing any, because an error must not leave half of them changed.
        totals: list[Moments] = []
        totals_since_reset: list[Moments] = []
        for stat, buffer, moments in zip(stats, buffers, new_moments, strict=True):
            total = stat.moments.merged(moments)
            # Until the buffer is first reset, both hold the same moments, and are merged once.
            if buffer.moments is stat.moments:
                since_reset = total
            else:
                since_reset = buffer.moments.merged(moments)
            totals.append(total)
            totals_since_reset.append(since_reset)
        for stat, total in zip(stats, totals, strict=True):
            stat.moments = total
        for buffer, since_reset in zip(buffers, totals_since_reset, strict=True):
            buffer.moments = since_reset

    def reset_buffer(self) -> None:
        """Clear the buffer, for example after its content has been sent."""
        self.buffer = _empty_statistics(self.shape)

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
        stats = _leaves(self.running_stats)
        changes = _leaves(other.buffer)
        # Merge all before storing any, because an error must not leave half of them changed.
        results = []
        for stat, change in zip(stats, changes, strict=True):
            results.append(stat.moments.merged(change.moments))
        for stat, moments in zip(stats, results, strict=True):
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
        self.demean = other.demean
        self.destd = other.destd
        self.clip = other.clip
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
        here = _shapes(self.running_stats)
        there = _shapes(other.running_stats)
        if here != there:
            raise ObservationError(
                f"expected a filter with shape {here}, found one with shape {there}."
            )

    def _scale(self, stat: RunningStat, value: Values, path: str) -> Array:
        """Filter the value of one leaf."""
        batch = _as_batch(stat, value, path)
        offset, factor = scaling(stat, self.demean, self.destd)
        low = None if self.clip is None else -self.clip
        result = scale(batch.array, offset, factor, low, self.clip)
        # The ellipsis returns an array, not a number, for an observation without axes.
        return result[0, ...] if batch.is_single else result


class NoFilter:
    """Filter with the interface of `MeanStdFilter` that returns observations unchanged."""

    def __init__(self, *args: Any) -> None:
        """Accept and ignore the arguments that other filters take, such as a shape."""

    def __call__(self, x: Values, update: bool = True) -> Any:
        """Return arrays, dicts and tuples unchanged, and anything else as an array."""
        if isinstance(x, np.ndarray | dict | tuple):
            return x
        return np.asarray(x)

    def reset_buffer(self) -> None:
        """Do nothing: there is no buffer."""

    def apply_changes(self, other: NoFilter, with_buffer: bool = False) -> None:
        """Do nothing: there are no statistics."""

    def copy(self) -> NoFilter:
        """Return the filter itself."""
        return self

    def sync(self, other: NoFilter) -> None:
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
    offset = np.zeros(stat.shape)
    factor = np.ones(stat.shape)
    if stat.n == 0:
        return offset, factor
    if demean:
        offset = stat.mean
    if destd:
        factor = 1.0 / (stat.std + EPSILON)
    return offset, factor


def scale(
    batch: Array,
    offset: Array,
    factor: Array,
    low: float | Array | None,
    high: float | Array | None,
) -> Array:
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
    if low is not None and high is not None:
        np.maximum(out, low, out=out)
        np.minimum(out, high, out=out)
    return out.astype(np.float32)


# --- structures -----------------------------------------------------------------------------------


def _empty_statistics(shape: Shapes) -> Statistics:
    """Create empty statistics for a shape or a structure of shapes.

    Raises:
        ConfigError: It is neither.
    """
    if shape is None:
        return None
    if isinstance(shape, Mapping):
        return {key: _empty_statistics(part) for key, part in shape.items()}
    parts: Any = shape
    # RLlib writes the shape of a leaf as an array of numbers; an empty array has floats.
    if isinstance(shape, np.ndarray) and shape.ndim == 1 and shape.dtype.kind in "iuf":
        parts = tuple(map(int, shape))
    if isinstance(parts, tuple | list):
        are_integers = [isinstance(part, Integral) for part in parts]
        if all(are_integers):
            return RunningStat(parts)
        if not any(are_integers):
            return tuple(map(_empty_statistics, parts))
    raise ConfigError(
        f"shape must be a tuple of integers, None, or a dict or tuple of shapes; found {parts!r}."
    )


def _map_leaves(
    function: Callable[[RunningStat, Values, str], Any],
    stats: Statistics,
    value: Values,
    path: str = "x",
) -> Any:
    """Return a structure of `function(stat, value, path)` for each leaf of an observation; a leaf
    without statistics stays unchanged.

    Raises:
        ObservationError: The observation does not have the structure of the statistics.
    """
    if stats is None:
        return value
    if isinstance(stats, RunningStat):
        return function(stats, value, path)
    if isinstance(stats, dict):
        entries = _entries(stats, value, path)
        return {
            key: _map_leaves(function, part, entries[key], f"{path}[{key!r}]")
            for key, part in stats.items()
        }
    items = _items(stats, value, path)
    parts = []
    for i, part in enumerate(stats):
        parts.append(_map_leaves(function, part, items[i], f"{path}[{i}]"))
    return tuple(parts)


def _entries(stats: dict[str, Statistics], value: Values, path: str) -> Mapping[str, Any]:
    """Return a dict of an observation.

    Raises:
        ObservationError: It has another type, or other keys than the statistics.
    """
    expected = f"a dict with the keys {list(stats)}"
    if not isinstance(value, Mapping):
        raise ObservationError(f"{path}: expected {expected}, found {type(value).__name__}.")
    if value.keys() != stats.keys():
        raise ObservationError(f"{path}: expected {expected}, found {list(value)}.")
    return value


def _items(stats: tuple[Statistics, ...], value: Values, path: str) -> Sequence[Any]:
    """Return a tuple or list of an observation.

    Raises:
        ObservationError: It is neither, or has another length than the statistics.
    """
    expected = f"a tuple of {len(stats)} values"
    if not isinstance(value, tuple | list):
        raise ObservationError(f"{path}: expected {expected}, found {type(value).__name__}.")
    if len(value) != len(stats):
        raise ObservationError(f"{path}: expected {expected}, found {len(value)} values.")
    return value


def _shapes(stats: Statistics) -> Any:
    """Return the shape, or the structure of shapes, of statistics."""
    if isinstance(stats, dict):
        return {key: _shapes(part) for key, part in stats.items()}
    if isinstance(stats, tuple):
        return tuple(map(_shapes, stats))
    if stats is None:
        return None
    return stats.shape


def _leaves(stats: Statistics) -> list[RunningStat]:
    """Return the statistics of all leaves, depth first."""
    if stats is None:
        return []
    if isinstance(stats, RunningStat):
        return [stats]
    parts = stats.values() if isinstance(stats, dict) else stats
    leaves: list[RunningStat] = []
    for part in parts:
        leaves += _leaves(part)
    return leaves


def _assign(stats: Statistics, others: Statistics) -> None:
    """Copy the moments of other statistics."""
    for stat, other in zip(_leaves(stats), _leaves(others), strict=True):
        stat.moments = other.moments


class _Batch(NamedTuple):
    """Values as a batch `[B, *shape]`, and whether they were a single observation."""

    array: Array
    is_single: bool


def _as_batch(stat: RunningStat, value: Values, path: str) -> _Batch:
    """Return the value of one leaf as a batch.

    Raises:
        ObservationError: It is not numeric, or has the wrong shape.
    """
    leaf: Any = value
    try:
        array = numbers(leaf)
    except ObservationError as error:
        # `numbers` does not know the leaf's path.
        raise ObservationError(f"{path}: {error}") from None
    if array.shape == stat.shape:
        return _Batch(array[None], is_single=True)
    if array.ndim and array.shape[1:] == stat.shape:
        return _Batch(array, is_single=False)
    raise ObservationError(
        f"{path}: expected shape {stat.shape}, or a batch [B, *{stat.shape}]; found shape"
        f" {array.shape}."
    )


def _moments(stat: RunningStat, value: Values, path: str) -> Moments:
    """Return the moments of one leaf's values.

    Raises:
        ObservationError: They are not numeric or not finite, or have the wrong shape.
    """
    batch = _as_batch(stat, value, path)
    try:
        return Moments.of(batch.array)
    except ObservationError as error:
        raise ObservationError(f"{path}: {error}") from None
