"""Tensor operations in TensorFlow; see `rlcatalog.frameworks.TensorOps` for their documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog.frameworks import TensorOps
from rlcatalog.spaces import parts_of
from rlcatalog_tf.dtypes import HALF, to_float32_at_least


def _reshape_last(x: Any, shape: tuple[int, ...]) -> Any:
    return (
        x
        if len(shape) == 1
        else tf.reshape(x, tf.concat([tf.shape(x)[:-1], tf.constant(shape, tf.int32)], axis=0))
    )


def flatten_rows(x: Any) -> Any:
    """Reshape a tensor or an array `[B]` or `[B, ...]` to `[B, n]`."""
    if len(x.shape) == 1:
        return x[:, None]
    if len(x.shape) == 2:
        return x
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def flat_sample(sample: Any) -> Any:
    """Return a sample in its stored form: a structure's parts as `[B, width]`, or a single tensor
    unchanged.
    """
    if (parts := parts_of(sample)) is None:
        return sample
    rows = [flatten_rows(part) for part in parts]
    # float32 represents integers that half precision does not.
    if len({part.dtype for part in rows}) > 1:
        wide = tf.float64 if any(part.dtype == tf.float64 for part in rows) else tf.float32
        rows = [tf.cast(part, wide) for part in rows]
    return tf.concat(rows, axis=1)


def _side_by_side(pieces: list[Any]) -> Any:
    if len({piece.dtype for piece in pieces}) > 1:  # half precision does not represent all integers
        pieces = _alike([to_float32_at_least(piece) for piece in pieces])
    return tf.concat(pieces, axis=1)


def _alike(values: list[Any]) -> list[Any]:
    """Convert tensors to a common type: the widest floating-point type, if any, or otherwise the
    widest type.
    """
    dtype = max(
        (value.dtype for value in values), key=lambda dtype: (dtype.is_floating, dtype.size)
    )
    return [tf.cast(value, dtype) for value in values]


def _in_rows(value: Any, like: Any, width: int) -> Any:
    value = tf.convert_to_tensor(value)
    rows, count = like.shape[0], value.shape.num_elements()
    # Inside a trace they may be unknown.
    if rows is not None and count is not None and count != rows * width:
        return None
    return tf.reshape(value, [tf.shape(like)[0], width])


def _cut(x: Any, how: Any) -> Sequence[Any]:
    if how.order is not None:
        x = tf.gather(x, how.order, axis=1)
    return tf.split(x, how.widths, axis=1)  # type: ignore[no-any-return]


def _total(values: list[Any]) -> Any:
    return tf.add_n(_alike(values) if len({value.dtype for value in values}) > 1 else values)


def _std(x: Any) -> Any:
    n = tf.cast(tf.size(x), x.dtype)
    return tf.math.reduce_std(x) * tf.sqrt(n / (n - 1))


OPS = TensorOps(
    "tf",
    reshape=_reshape_last,
    integers=lambda x: tf.cast(x, tf.int64),
    side_by_side=_side_by_side,
    fill_forbidden=lambda inputs, mask: tf.where(tf.cast(mask, tf.bool), inputs, inputs.dtype.min),
    array=lambda x: x.numpy() if hasattr(x, "numpy") else None,  # None while tracing
    tensor=lambda value, like=None: tf.convert_to_tensor(value),
    booleans=lambda value, like: tf.cast(tf.convert_to_tensor(value), tf.bool),
    is_array=lambda value: tf.is_tensor(value) or isinstance(value, np.ndarray),
    is_float=lambda x: bool(x.dtype.is_floating),
    is_half=lambda x: x.dtype in HALF,
    cast=tf.cast,
    whole=lambda x: tf.cast(tf.round(x), tf.int64) if x.dtype.is_floating else x,
    finite=lambda x: tf.clip_by_value(x, x.dtype.min, x.dtype.max),
    rows=lambda x, shape: tf.reshape(x, [-1, *shape]),
    in_rows=_in_rows,
    columns=lambda values: _side_by_side([flatten_rows(value) for value in values]),
    cut=_cut,
    each_row=lambda x, count: tf.repeat(x, count, axis=0),
    all_rows=lambda x, like: tf.tile(x, [tf.shape(like)[0], 1]),
    padded=lambda x, width: tf.pad(x, [[0, 0], [0, width - x.shape[1]]]),
    taken=lambda lengths, places: (
        tf.range(places, dtype=tf.float32) < tf.cast(lengths, tf.float32)[:, None]
    ),
    only=lambda taken, x: tf.where(
        taken[(..., *[None] * (x.shape.rank - taken.shape.rank))], x, tf.zeros([], x.dtype)
    ),
    total=_total,
    sum=tf.reduce_sum,
    mean=tf.reduce_mean,
    std=_std,
    exp=tf.exp,
    minimum=tf.minimum,
    clip=tf.clip_by_value,
    without_gradient=tf.stop_gradient,
    concat=tf.concat,
    as_type=tf.cast,
    flat=flatten_rows,
    maximum=lambda x, y: tf.maximum(x, tf.cast(y, x.dtype)),
    columns_at=lambda x, places: tf.gather(x, places, axis=1),
    one_hot=lambda x, n: tf.one_hot(x, n, dtype=tf.float32),
    argmax=lambda x: tf.argmax(x, axis=1),
)
