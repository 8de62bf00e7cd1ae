"""Moments of values that lie on a device: they are updated there, and read only when the host needs
them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog_filters.mean_std import EPSILON, MeanStdFilter
from rlcatalog_filters.running_stat import Moments


class TensorMoments(NamedTuple):
    """Count, mean and sum of squared deviations of a stream of values, as tensors in float64.

    In float32, values with a mean of 10,000 and a deviation of 0.001 would be off by 0.03.

    Attributes:
        n: Number of values, without axes.
        mean: Their mean `[n]`.
        m2: Sum of the values' squared differences from the mean `[n]`.
    """

    n: Any
    mean: Any
    m2: Any

    @classmethod
    def upload(cls, moments: Moments, like: Tensor, ops: TensorOps) -> TensorMoments:
        """Return moments on the device of a tensor."""
        n = ops.tensor(np.array(float(moments.n)), like)
        # Copies, because PyTorch warns of read-only arrays.
        mean = ops.tensor(np.array(moments.mean), like)
        m2 = ops.tensor(np.array(moments.m2), like)
        return cls(n, mean, m2)

    def download(self, ops: TensorOps) -> Moments:
        """Return the moments on the host, which waits for the device."""
        n = int(ops.array(self.n))
        return Moments(n, np.array(ops.array(self.mean)), np.array(ops.array(self.m2)))

    @classmethod
    def of(cls, batch: Tensor, rows: Tensor | None, ops: TensorOps) -> TensorMoments:
        """Return the moments of a batch `[B, n]`, without rows that are not finite.

        Args:
            batch: The batch.
            rows: Booleans `[B]`: which rows count; None for all.
            ops: The operations for tensors.
        """
        values: Any = ops.as_type(batch, "float64")
        # Zero times a number that is not finite is NaN, which differs from 0.
        has_other_numbers: Any = ops.any(values * 0 != 0)
        counts: Any = ~has_other_numbers
        if rows is not None:
            counts = counts & rows
        is_counted = counts[:, None]
        zero = ops.constant(np.array(0.0), values)
        n = ops.sum(ops.as_type(counts, "float64"))
        at_least_1 = ops.maximum(n, 1)
        kept = ops.where(is_counted, values, zero)
        mean = ops.sum(kept, axis=0) / at_least_1
        deviation = ops.where(is_counted, kept - mean, zero)
        return cls(n, mean, ops.sum(deviation * deviation, axis=0))

    def merged(self, other: TensorMoments, ops: TensorOps) -> TensorMoments:
        """Return the moments of both streams combined, as `Moments.merged` does."""
        n = self.n + other.n
        at_least_1 = ops.maximum(n, 1)
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / at_least_1)
        m2 = self.m2 + other.m2 + delta * delta * (self.n * other.n / at_least_1)
        return TensorMoments(n, mean, m2)

    def std(self, ops: TensorOps) -> Any:
        """Return the standard deviation, as `RunningStat.std` does."""
        variance = self.m2 / ops.maximum(self.n - 1, 1)
        return ops.where(self.n > 1, variance, self.mean * self.mean) ** 0.5


class TensorScaling(NamedTuple):
    """The numbers by which filtered values are scaled.

    Attributes:
        offset: What is subtracted `[n]`.
        factor: What the differences are multiplied by `[n]`.
    """

    offset: Any
    factor: Any


class TensorStatistics:
    """The statistics of a `MeanStdFilter` on a device.

    Args:
        statistics: The filter, whose moments are uploaded.
        like: A tensor on the device.
        ops: The operations for it.

    Attributes:
        is_ahead: Whether it has learned something that the filter does not know.
    """

    def __init__(self, statistics: MeanStdFilter, like: Tensor, ops: TensorOps) -> None:
        self._statistics = statistics
        self._ops = ops
        self._like = ops.constant(np.array(0.0), like)
        self.is_ahead = False
        self._upload()

    def _upload(self) -> None:
        self._uploaded_total = self._statistics.running_stats.moments
        self._uploaded_since_reset = self._statistics.buffer.moments
        self.total = TensorMoments.upload(self._uploaded_total, self._like, self._ops)
        #: The moments since the last `reset_buffer`; None if they are those of all observations.
        self._since_reset: TensorMoments | None = None
        if self._uploaded_since_reset is not self._uploaded_total:
            self._since_reset = TensorMoments.upload(
                self._uploaded_since_reset, self._like, self._ops
            )
        self._scaling: TensorScaling | None = None

    def refresh(self) -> None:
        """Upload the filter's moments again if they have changed on the host."""
        has_changed = (
            self._statistics.running_stats.moments is not self._uploaded_total
            or self._statistics.buffer.moments is not self._uploaded_since_reset
        )
        if has_changed:
            self._upload()

    def is_on_device_of(self, tensor: Any) -> bool:
        """Return whether the statistics are on the device of a tensor."""
        return bool(self._like.device == tensor.device)

    def learn(self, values: Tensor, rows: Tensor | None) -> None:
        """Update the moments with the rows of a batch `[B, n]`; see `TensorMoments.of`."""
        new_moments = TensorMoments.of(values, rows, self._ops)
        self.total = self.total.merged(new_moments, self._ops)
        if self._since_reset is not None:
            self._since_reset = self._since_reset.merged(new_moments, self._ops)
        self._scaling = None
        self.is_ahead = True

    def download(self) -> None:
        """Give the moments to the filter, which waits for the device."""
        total = self.total.download(self._ops)
        since_reset = total
        if self._since_reset is not None:
            since_reset = self._since_reset.download(self._ops)
        self._statistics.running_stats.moments = total
        self._statistics.buffer.moments = since_reset
        self._uploaded_total = total
        self._uploaded_since_reset = since_reset
        self.is_ahead = False

    def scaling(self) -> TensorScaling:
        """Return the offset and the factor, computed again after each `learn`."""
        if self._scaling is None:
            ops = self._ops
            one = ops.constant(np.array(1.0), self._like)
            offset = self.total.mean
            if not self._statistics.demean:
                offset = offset * 0
            factor = one / (self.total.std(ops) + EPSILON)
            # Before the first value, there are no statistics: values stay as they are.
            factor = ops.where(self.total.n > 0, factor, one)
            if not self._statistics.destd:
                factor = factor * 0 + 1
            self._scaling = TensorScaling(offset, factor)
        return self._scaling
