"""The distribution of Tuple and Dict spaces in TensorFlow: its operations, and the class that takes them from here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from rlcatalog.tf import tf, widened
from rlcatalog_multi_action.composite import CompositeDistribution
from rlcatalog_multi_action.members import Cut


def tensor(value: Any, like: Any = None) -> Any:
    """Return an array or tensor as a tensor."""
    return tf.convert_to_tensor(value)


def is_array(value: Any) -> bool:
    """Whether a value is one tensor or array, not a structure."""
    return tf.is_tensor(value) or isinstance(value, np.ndarray)


def cut(columns: Any, how: Cut) -> Sequence[Any]:
    """Cut `[B, n]` into pieces `[B, width]`."""
    if how.order is not None:
        columns = tf.gather(columns, how.order, axis=1)
    return tf.split(columns, how.widths, axis=1)  # type: ignore[no-any-return]


def in_rows(value: Any, like: Any, width: int) -> Any:
    """Return values as `[B, width]` with the rows of `like`; None where there are too many or too few."""
    value = tf.convert_to_tensor(value)
    rows, count = like.shape[0], value.shape.num_elements()
    if rows is not None and count is not None and count != rows * width:  # inside a trace they may be unknown
        return None
    return tf.reshape(value, [tf.shape(like)[0], width])


def side_by_side(pieces: list[Any]) -> Any:
    """Return `[B, w]` tensors as one, in the widest of their types."""
    if len({piece.dtype for piece in pieces}) > 1:  # half precision would not hold whole numbers
        pieces = [widened(piece) for piece in pieces]
    return tf.concat(_alike(pieces), axis=1)


def whole(values: Any) -> Any:
    """Return whole numbers as int64, rounded where they are stored as floats."""
    return tf.cast(tf.round(values), tf.int64) if values.dtype.is_floating else values


def total(values: list[Any]) -> Any:
    """Return the sum of tensors `[B]`, in the widest of their types."""
    return tf.add_n(_alike(values))


def stack(values: list[Any]) -> Any:
    """Return tensors `[B]` as the columns of one, in the widest of their types."""
    return tf.stack(_alike(values), axis=1)


def finite(values: Any) -> Any:
    """Return values with the nearest finite number of their type."""
    return tf.clip_by_value(values, values.dtype.min, values.dtype.max)


def _alike(values: list[Any]) -> list[Any]:
    dtype = reduce(_common, (value.dtype for value in values))
    return [tf.cast(value, dtype) for value in values]


def _common(one: Any, other: Any) -> Any:
    """Return the type that holds both: the wider, or the one with fractions."""
    if one.is_floating != other.is_floating:
        return one if one.is_floating else other
    return one if one.size >= other.size else other


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions of a Tuple's or Dict's parts, nested to any depth; see `CompositeDistribution`."""

    framework_of_class = "tf"
    ops = sys.modules[__name__]
    #: Of this very class, not of subclasses: inside another composite, its parts become parts of that one.
    taken_apart = True
