"""Tensor operations in TensorFlow; see `rlcatalog.frameworks.TensorOps` for their documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.frameworks import Tensor, TensorOps, TensorTree
from rlcatalog.spaces import parts_of
from rlcatalog_tf.dtypes import HALF, to_float32_at_least


def flatten_rows(x: Tensor) -> Any:
    """Reshape a tensor or an array `[B]` or `[B, ...]` to `[B, n]`."""
    if len(x.shape) == 1:
        return x[:, None]
    if len(x.shape) == 2:
        return x
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def flat_sample(sample: TensorTree) -> Any:
    """Return a sample in its stored form: a structure's parts as `[B, width]`, or a single tensor
    unchanged.
    """
    parts = parts_of(sample)
    if parts is None:
        return sample
    rows = list(map(flatten_rows, parts))
    dtypes = {part.dtype for part in rows}
    if len(dtypes) > 1:
        # Half precision does not represent all choices, float32 does.
        widest = tf.float64 if tf.float64 in dtypes else tf.float32
        rows = [tf.cast(part, widest) for part in rows]
    return tf.concat(rows, axis=1)


def _alike(values: Sequence[Tensor]) -> list[Any]:
    """Convert tensors to a common type: the widest floating-point type, if any, or otherwise the
    widest type.
    """
    dtypes = [value.dtype for value in values]
    widest = max(dtypes, key=lambda dtype: (dtype.is_floating, dtype.size))
    return [tf.cast(value, widest) for value in values]


class TFOps(TensorOps):
    """The operations in TensorFlow."""

    framework = "tf"

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Any:
        if len(shape) == 1:
            return x
        full_shape = tf.concat([tf.shape(x)[:-1], tf.constant(shape, tf.int32)], axis=0)
        return tf.reshape(x, full_shape)

    def integers(self, x: Tensor) -> Any:
        return tf.cast(x, tf.int64)

    def side_by_side(self, pieces: Sequence[Tensor]) -> Any:
        if len({piece.dtype for piece in pieces}) > 1:
            # Half precision does not represent all integers.
            pieces = _alike([to_float32_at_least(piece) for piece in pieces])
        return tf.concat(pieces, axis=1)

    def fill_forbidden(self, inputs: Tensor, mask: Tensor) -> Any:
        return tf.where(tf.cast(mask, tf.bool), inputs, inputs.dtype.min)

    def array(self, x: Tensor) -> Any:
        # A symbolic tensor of a trace has no values, and no such method.
        if not hasattr(x, "numpy"):
            return None
        return x.numpy()

    def tensor(self, value: Any, like: Tensor | None = None) -> Any:
        return tf.convert_to_tensor(value)

    def booleans(self, value: Any, like: Tensor) -> Any:
        return tf.cast(tf.convert_to_tensor(value), tf.bool)

    def copy(self, x: Tensor) -> Any:
        return tf.identity(x)

    def is_array(self, value: Any) -> bool:
        return tf.is_tensor(value) or isinstance(value, np.ndarray)

    def dtype_name(self, x: Tensor) -> str:
        return str(x.dtype.name)

    def is_float(self, x: Tensor) -> bool:
        return bool(x.dtype.is_floating)

    def is_half(self, x: Tensor) -> bool:
        return x.dtype in HALF

    def cast(self, x: Tensor, dtype: tf.DType) -> Any:
        return tf.cast(x, dtype)

    def as_type(self, x: Tensor, name: str) -> Any:
        return tf.cast(x, name)

    def whole(self, x: Tensor) -> Any:
        if x.dtype.is_floating:
            return tf.cast(tf.round(x), tf.int64)
        return x

    def finite(self, x: Tensor) -> Any:
        return tf.clip_by_value(x, x.dtype.min, x.dtype.max)

    def flat(self, x: Tensor) -> Any:
        return flatten_rows(x)

    def rows(self, x: Tensor, shape: tuple[int, ...]) -> Any:
        return tf.reshape(x, [-1, *shape])

    def in_rows(self, value: Any, like: Tensor, width: int) -> Any:
        """Return values as `[B, width]`, B as in `like`; None if there are too many or too few."""
        value = tf.convert_to_tensor(value)
        rows = like.shape[0]
        count = value.shape.num_elements()
        # Inside a trace, these numbers may be unknown.
        is_known = rows is not None and count is not None
        if is_known and count != rows * width:
            return None
        return tf.reshape(value, [tf.shape(like)[0], width])

    def columns(self, values: Sequence[Tensor]) -> Any:
        return self.side_by_side(list(map(flatten_rows, values)))

    def columns_at(self, x: Tensor, places: Any) -> Any:
        return tf.gather(x, places, axis=1)

    def entries_at(self, x: Tensor, places: Tensor) -> Any:
        return tf.gather(x, places, axis=1, batch_dims=1)

    def cut(self, x: Tensor, how: Any) -> Sequence[Any]:
        if how.order is not None:
            x = tf.gather(x, how.order, axis=1)
        return tf.split(x, how.widths, axis=1)  # type: ignore[no-any-return]

    def each_row(self, x: Tensor, count: int) -> Any:
        return tf.repeat(x, count, axis=0)

    def all_rows(self, x: Tensor, like: Tensor) -> Any:
        return tf.tile(x, [tf.shape(like)[0], 1])

    def padded(self, x: Tensor, width: int) -> Any:
        return tf.pad(x, [[0, 0], [0, width - x.shape[1]]])

    def taken(self, lengths: Tensor, places: int) -> Any:
        return tf.range(places, dtype=tf.float32) < tf.cast(lengths, tf.float32)[:, None]

    def only(self, taken: Tensor, x: Tensor) -> Any:
        missing_axes = [None] * (x.shape.rank - taken.shape.rank)
        return tf.where(taken[(..., *missing_axes)], x, tf.zeros([], x.dtype))

    def concat(self, values: Sequence[Tensor], axis: int = 0) -> Any:
        return tf.concat(values, axis)

    def any(self, x: Tensor) -> Any:
        return tf.reduce_any(x, axis=1)

    def all(self, x: Tensor) -> Any:
        return tf.reduce_all(x)

    def all_finite(self, values: Sequence[Tensor]) -> Any:
        are_finite = tf.constant(True)
        for x in values:
            if x.dtype.is_floating:
                are_finite &= tf.reduce_all(tf.math.is_finite(x))
        return are_finite

    def where(self, condition: Tensor, x: Tensor, y: Tensor) -> Any:
        return tf.where(condition, x, y)

    def expand(self, x: Tensor, rows: int) -> Any:
        return tf.broadcast_to(x, [rows, *x.shape])

    def one_hot(self, x: Tensor, n: int) -> Any:
        return tf.one_hot(x, n, dtype=tf.float32)

    def argmax(self, x: Tensor) -> Any:
        return tf.argmax(x, axis=1)

    def total(self, values: Sequence[Tensor]) -> Any:
        if len({value.dtype for value in values}) > 1:
            values = _alike(values)
        return tf.add_n(values)

    def sum(
        self, x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Any:
        return tf.reduce_sum(x, axis, keepdims)

    def mean(
        self, x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Any:
        return tf.reduce_mean(x, axis, keepdims)

    def std(self, x: Tensor) -> Any:
        n = tf.cast(tf.size(x), x.dtype)
        return tf.math.reduce_std(x) * tf.sqrt(n / (n - 1))

    def exp(self, x: Tensor) -> Any:
        return tf.exp(x)

    def minimum(self, x: Tensor, y: Tensor) -> Any:
        return tf.minimum(x, y)

    def maximum(self, x: Tensor, y: Any) -> Any:
        return tf.maximum(x, tf.cast(y, x.dtype))

    def clip(self, x: Tensor, low: Any, high: Any) -> Any:
        return tf.clip_by_value(x, low, high)

    def scaled(self, x: Tensor, offset: Tensor, factor: Tensor, low: Any, high: Any) -> Any:
        values = (tf.cast(x, offset.dtype) - offset) * factor
        if low is not None:
            low = tf.cast(low, values.dtype)
            high = tf.cast(high, values.dtype)
            values = tf.clip_by_value(values, low, high)
        return tf.cast(values, tf.float32)

    def without_gradient(self, x: Tensor) -> Any:
        return tf.stop_gradient(x)


OPS: TensorOps = TFOps()
