"""Tensor functions in TensorFlow, under RLlib's names, and a reader's batches as tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Space

from rlcatalog.errors import NotServedError, SavedPolicyError
from rlcatalog_compat.spaces import leaves, leaves_in, one_hot_widths
from rlcatalog_tf import tf


def one_hot(x: Any, space: Space[Any]) -> Any:
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
    columns = tf.unstack(x, num=len(widths), axis=-1) if hasattr(space, "nvec") else [x]
    return tf.concat(
        [tf.one_hot(c, n, dtype=tf.float32) for c, n in zip(columns, widths, strict=True)], axis=-1
    )


def flatten_inputs_to_1d_tensor(
    inputs: Any, spaces_struct: Any = None, time_axis: bool = False
) -> Any:
    """Return a structure of values as one tensor `[B, n]`: flattened leaves, with discrete leaves
    as one-hots.

    Args:
        inputs: The values, each `[B, ...]`.
        spaces_struct: The leaves' spaces, in the same structure; None if no leaf is discrete.
        time_axis: Whether the values are `[B, T, ...]` and the result is `[B, T, n]`.
    """
    columns = []
    for leaf, space in leaves_in(inputs, spaces_struct):
        value = tf.convert_to_tensor(leaf)
        if isinstance(space, Discrete | MultiDiscrete):
            value = one_hot(value, space)
        front, width = tf.shape(value)[: 1 + time_axis], math.prod(value.shape[1 + time_axis :])
        columns.append(tf.cast(tf.reshape(value, tf.concat([front, [width]], axis=0)), tf.float32))
    return tf.concat(columns, axis=-1)


def explained_variance(y: Any, pred: Any) -> Any:
    """Return the fraction of the variance in `y` that the predictions explain, at least -1."""
    return tf.maximum(
        -1.0, 1.0 - tf.math.reduce_variance(y - pred, axis=0) / tf.math.reduce_variance(y, axis=0)
    )


def huber_loss(x: Any, delta: float = 1.0) -> Any:
    """Return the Huber loss of errors: squared within `delta`, linear beyond."""
    error = tf.abs(x)
    return tf.where(error < delta, 0.5 * tf.square(x), delta * (error - 0.5 * delta))


def l2_loss(x: Any) -> Any:
    """Return half the sum of squares."""
    return 0.5 * tf.reduce_sum(tf.square(x))


def reduce_mean_ignore_inf(x: Any, axis: int | None = None) -> Any:
    """Return the mean of all values except minus infinity."""
    real = tf.not_equal(x, x.dtype.as_numpy_dtype("-inf"))
    total = tf.reduce_sum(tf.where(real, x, tf.zeros_like(x)), axis)
    return total / tf.reduce_sum(tf.cast(real, x.dtype), axis)


def zero_logps_from_actions(actions: Any) -> Any:
    """Return zeros `[B]`, one for each action in a batch."""
    return tf.zeros_like(
        tf.reshape(next(leaves(actions)), [tf.shape(next(leaves(actions)))[0], -1])[:, 0],
        tf.float32,
    )


def flatten(x: Any) -> Any:
    """Reshape `[B, ...]` to `[B, n]`."""
    return tf.reshape(x, [tf.shape(x)[0], -1])


def symlog(x: Any) -> Any:
    """Return `sign(x) * log(1 + |x|)`."""
    return tf.sign(x) * tf.math.log1p(tf.abs(x))


def inverse_symlog(y: Any) -> Any:
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
    flat = _flat(first)
    names, types = list(flat), [tf.as_dtype(array.dtype) for array in flat.values()]
    waiting = [flat]  # so that the first batch is not lost

    def following() -> list[Any]:
        found = waiting.pop() if waiting else _flat(read())
        if missing := set(names) - set(found):
            raise SavedPolicyError(
                f"a batch lacks {sorted(map(str, missing))}, which the first one has."
            )
        return [found[name].astype(flat[name].dtype, copy=False) for name in names]

    tensors = tf.numpy_function(following, [], types, stateful=True)
    for tensor, name in zip(tensors, names, strict=True):
        tensor.set_shape((None, *flat[name].shape[1:]))
    made: dict[str, Any] = {}
    for path, tensor in zip(names, tensors, strict=True):
        place = made
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = tensor
    return made


def _flat(batch: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], np.ndarray[Any, Any]]:
    """Return the numeric columns by key path."""
    found: dict[tuple[str, ...], np.ndarray[Any, Any]] = {}
    for name, column in batch.items():
        if isinstance(column, dict):
            found |= _flat(column, (*path, name))
        elif isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and column.ndim:
            found[(*path, name)] = column
    return found
