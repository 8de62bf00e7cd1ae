"""Tensor functions in TensorFlow, under RLlib's names, and a reader's batches as tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space

from rlcatalog.errors import NotServedError, SavedPolicyError
from rlcatalog.frameworks import Array, Tensor, TensorTree
from rlcatalog_compat.spaces import SpaceTree, leaves, leaves_in, one_hot_widths
from rlcatalog_tf import tf


def one_hot(x: Tensor, space: Space[Any]) -> Any:
    """Return Discrete values `[...]` as float one-hots, or MultiDiscrete values `[..., k]` as
    joined float one-hots.

    Args:
        x: Integer values, which start at 0.
        space: A Discrete or MultiDiscrete.

    Raises:
        UnsupportedSpaceError: The space is neither a Discrete nor a MultiDiscrete.
    """
    widths = one_hot_widths(space)
    x = tf.cast(x, tf.int32)
    columns = [x]
    if isinstance(space, MultiDiscrete):
        columns = tf.unstack(x, num=len(widths), axis=-1)
    one_hots = [
        tf.one_hot(column, width, dtype=tf.float32)
        for column, width in zip(columns, widths, strict=True)
    ]
    return tf.concat(one_hots, axis=-1)


def flatten_inputs_to_1d_tensor(
    inputs: TensorTree, spaces_struct: SpaceTree | None = None, time_axis: bool = False
) -> Any:
    """Return a structure of values as one tensor `[B, n]`: flattened leaves, with discrete leaves
    as one-hots.

    Args:
        inputs: The values, each `[B, ...]`.
        spaces_struct: The leaves' spaces, in the same structure; None if no leaf is discrete.
        time_axis: Whether the values are `[B, T, ...]` and the result is `[B, T, n]`.
    """
    num_leading_axes = 2 if time_axis else 1
    columns = []
    for leaf, space in leaves_in(inputs, spaces_struct):
        value = tf.convert_to_tensor(leaf)
        if isinstance(space, Discrete | MultiDiscrete):
            value = one_hot(value, space)
        leading_sizes = tf.shape(value)[:num_leading_axes]
        width = math.prod(value.shape[num_leading_axes:])
        flat = tf.reshape(value, tf.concat([leading_sizes, [width]], axis=0))
        columns.append(tf.cast(flat, tf.float32))
    return tf.concat(columns, axis=-1)


def explained_variance(y: Tensor, pred: Tensor) -> Any:
    """Return the fraction of the variance in `y` that the predictions explain, at least -1."""
    error_variance = tf.math.reduce_variance(y - pred, axis=0)
    variance = tf.math.reduce_variance(y, axis=0)
    return tf.maximum(-1.0, 1.0 - error_variance / variance)


def huber_loss(x: Tensor, delta: float = 1.0) -> Any:
    """Return the Huber loss of errors: squared within `delta`, linear beyond."""
    error = tf.abs(x)
    return tf.where(error < delta, 0.5 * tf.square(x), delta * (error - 0.5 * delta))


def l2_loss(x: Tensor) -> Any:
    """Return half the sum of squares."""
    return 0.5 * tf.reduce_sum(tf.square(x))


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Any:
    """Return the mean of all values except minus infinity."""
    minus_infinity = x.dtype.as_numpy_dtype("-inf")
    is_counted = tf.not_equal(x, minus_infinity)
    total = tf.reduce_sum(tf.where(is_counted, x, tf.zeros_like(x)), axis)
    count = tf.reduce_sum(tf.cast(is_counted, x.dtype), axis)
    return total / count


def zero_logps_from_actions(actions: TensorTree) -> Any:
    """Return zeros `[B]`, one for each action in a batch."""
    first_leaf = next(leaves(actions))
    return tf.zeros_like(flatten(first_leaf)[:, 0], tf.float32)


def flatten(x: Tensor) -> Any:
    """Reshape `[B, ...]` to `[B, n]`."""
    return tf.reshape(x, [tf.shape(x)[0], -1])


def symlog(x: Tensor) -> Any:
    """Return `sign(x) * log(1 + |x|)`."""
    return tf.sign(x) * tf.math.log1p(tf.abs(x))


def inverse_symlog(y: Tensor) -> Any:
    """Return the `x` that `symlog` maps to `y`."""
    return tf.sign(y) * tf.math.expm1(tf.abs(y))


def input_ops(read: Callable[[], Any]) -> dict[str, Any]:
    """Return a batch as tensors; each run of the traced function reads a new batch.

    Args:
        read: Returns the next batch; the number of rows may change, but the shape of a row may not.
    """
    first = read()
    if not isinstance(first, dict):
        raise NotServedError(
            "tf_input_ops: batches of several agents; read them with next(), one policy at a time."
        )
    first_columns = _numeric_columns(first)
    dtypes = [tf.as_dtype(column.dtype) for column in first_columns.values()]
    # The first run of the traced function returns the first batch.
    unread = [first_columns]

    def read_columns() -> list[Any]:
        columns = unread.pop() if unread else _numeric_columns(read())
        missing = first_columns.keys() - columns.keys()
        if missing:
            raise SavedPolicyError(
                f"a batch lacks {sorted(map(str, missing))}, which the first one has."
            )
        arrays = []
        for path, first_column in first_columns.items():
            arrays.append(columns[path].astype(first_column.dtype, copy=False))
        return arrays

    no_inputs: list[Any] = []
    tensors = tf.numpy_function(read_columns, no_inputs, dtypes, stateful=True)
    batch: dict[str, Any] = {}
    for (path, first_column), tensor in zip(first_columns.items(), tensors, strict=True):
        tensor.set_shape((None, *first_column.shape[1:]))
        _set_column(batch, path, tensor)
    return batch


def _set_column(batch: dict[str, Any], path: tuple[str, ...], column: Tensor) -> None:
    """Put a column into a batch of nested dicts, at the path of its keys."""
    *parents, name = path
    for key in parents:
        batch = batch.setdefault(key, {})
    batch[name] = column


def _numeric_columns(
    batch: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[tuple[str, ...], Array]:
    """Return the numeric columns by the path of their keys.

    Args:
        batch: A batch, or a dict inside it.
        path: Keys of that dict.
    """
    columns: dict[tuple[str, ...], Array] = {}
    for name, column in batch.items():
        if isinstance(column, dict):
            columns |= _numeric_columns(column, (*path, name))
        elif isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and column.ndim:
            columns[(*path, name)] = column
    return columns
