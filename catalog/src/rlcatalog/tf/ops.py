"""Operations that TensorFlow spells differently from NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.frameworks import TensorOps


def reshape_last(x: Any, shape: tuple[int, ...]) -> Any:
    """Give the last axis of `x` the given shape; other axes may be unknown while tracing."""
    if len(shape) == 1:
        return x
    return tf.reshape(x, tf.concat([tf.shape(x)[:-1], tf.constant(shape, tf.int32)], axis=0))


def integers(x: Any) -> Any:
    """Return `x` as int64."""
    return tf.cast(x, tf.int64)


def side_by_side(pieces: list[Any]) -> Any:
    """Join `[B, n]` tensors along their columns."""
    return tf.concat(pieces, axis=1)


def flatten_rows(x: Any) -> Any:
    """Return a tensor or an array `[B]` or `[B, ...]` as `[B, n]`."""
    if len(x.shape) == 1:
        return x[:, None]
    if len(x.shape) == 2:
        return x
    size = 1
    for n in x.shape[1:]:
        size *= n
    return tf.reshape(x, [-1, size])


def fill_forbidden(inputs: Any, mask: Any) -> Any:
    """Give inputs where `mask` is False the lowest finite value of their dtype."""
    return tf.where(tf.cast(mask, tf.bool), inputs, inputs.dtype.min)


def array(x: Any) -> Any:
    """Return the values of `x`, or None while tracing."""
    return x.numpy() if hasattr(x, "numpy") else None


#: What framework-neutral code needs of TensorFlow.
OPS = TensorOps(reshape_last, integers, side_by_side, fill_forbidden, array)
