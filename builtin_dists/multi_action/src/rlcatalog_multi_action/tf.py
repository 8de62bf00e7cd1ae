"""The distribution of Tuple and Dict spaces in TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rlcatalog_multi_action.composite import CompositeDistribution
from rlcatalog_multi_action.fusing import Group
from rlcatalog_multi_action.layout import Layout, Leaf


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions of a Tuple's or Dict's parts, nested to any depth.

    Args:
        inputs: `[B, size]`: the inputs of the parts side by side, in the space's order.
        model: The model that made them, or None; every part is given it.
        child_distributions: What makes the parts' distributions, called with `(inputs, model)`: one for each child of
            the space, or one for each leaf, depth first.
        input_lens: Their numbers of inputs.
        action_space: The Tuple or Dict space.
    """

    framework_of_class = "tf"
    #: Of this very class, not of subclasses: inside another composite, its parts become parts of that one.
    taken_apart = True

    @staticmethod
    def _tensor(value: Any) -> Any:
        return tf.convert_to_tensor(value)

    @staticmethod
    def _is_array(value: Any) -> bool:
        return tf.is_tensor(value) or isinstance(value, np.ndarray)

    @staticmethod
    def _cut(tensor: Any, widths: Sequence[int]) -> Sequence[Any]:
        return tf.split(tensor, widths, axis=-1)  # type: ignore[no-any-return]

    @staticmethod
    def _side_by_side(parts: list[Any]) -> Any:
        return tf.concat(parts, axis=-1)

    @staticmethod
    def _stack(columns: list[Any]) -> Any:
        dtype = functools.reduce(_common, (value.dtype for value in columns))
        return tf.stack([tf.cast(value, dtype) for value in columns], axis=-1)

    @staticmethod
    def _joined(layout: Layout, parts: list[Any]) -> Any:
        return join(layout, parts)

    @staticmethod
    def _apart(layout: Layout, flat: Any) -> Any:
        return split(layout, flat)

    @staticmethod
    def _maker(group: Group) -> Callable[[Any, Any], Any]:
        dist, runs = group.dist, group.inputs
        gathered = MultiActionDistribution._gathered
        return lambda inputs, model: dist(gathered(inputs, runs), model)

    @staticmethod
    def _column(tensor: Any, column: int) -> Any:
        return tensor[:, column]

    @staticmethod
    def _columns(tensor: Any, start: int, width: int) -> Any:
        return tensor[:, start : start + width]

    @staticmethod
    def _gathered(tensor: Any, runs: tuple[tuple[int, int], ...]) -> Any:
        if len(runs) == 1:
            start, stop = runs[0]
            return tensor if stop - start == tensor.shape[1] else tensor[:, start:stop]
        return tf.concat([tensor[:, start:stop] for start, stop in runs], axis=1)

    @staticmethod
    def _widened(mask: Any, columns: tuple[int, ...]) -> Any:
        return tf.gather(
            tf.pad(tf.cast(mask, tf.bool), [[0, 0], [0, 1]], constant_values=True),
            tf.constant(columns, tf.int32),
            axis=1,
        )

    def _rows(self, value: Any, width: int) -> Any:
        return tf.reshape(value, [tf.shape(self.inputs)[0], width])

    @staticmethod
    def _total(values: list[Any]) -> Any:
        dtype = functools.reduce(_common, (value.dtype for value in values))
        return tf.add_n([tf.cast(value, dtype) for value in values]) if len(values) > 1 else values[0]

    @staticmethod
    def _finite(value: Any) -> Any:
        return tf.clip_by_value(value, value.dtype.min, value.dtype.max)

    def _of_flat(self, flat: Any) -> list[Any]:
        flat = tf.convert_to_tensor(flat)
        self.layout.check_flat(flat.shape, self.inputs.shape[0])
        if flat.shape[1] is None:
            flat = tf.ensure_shape(flat, [None, self.layout.width])
        parts = [self._gathered(flat, group.raw) for group in self.layout.groups]
        if flat.dtype.is_floating:
            for i, group in enumerate(self.layout.groups):
                if group.whole:
                    parts[i] = tf.cast(tf.round(parts[i]), tf.int64)
        return parts

    def _part(self, leaf: Leaf, value: Any) -> Any:
        if leaf.inner is not None and not self._is_array(value):
            return value
        value = tf.convert_to_tensor(value)
        rows, count = self.inputs.shape[0], value.shape.num_elements()
        if rows is not None and count is not None:  # inside a trace they may be unknown
            self.layout.check_part(leaf, count, rows, value.shape)
        return tf.cast(tf.round(value), tf.int64) if leaf.whole and value.dtype.is_floating else value


def join(layout: Layout, actions: Any) -> Any:
    """Return raw actions as one flat tensor `[B, width]`.

    Whole numbers alone stay int64; beside floats of half precision they make it float32, which holds them exactly.

    Args:
        layout: Of the space.
        actions: The space's structure, or a flat list of the leaves' actions.
    """
    rows = []
    for leaf, part in zip(layout.leaves, layout.parts(actions), strict=True):
        if leaf.inner is not None and not (tf.is_tensor(part) or isinstance(part, np.ndarray)):
            part = join(leaf.inner, part)
        rows.append(tf.reshape(part, [tf.shape(part)[0], leaf.width]))
    dtype = functools.reduce(_common, (part.dtype for part in rows))
    if layout.some_whole and dtype in (tf.float16, tf.bfloat16):
        dtype = tf.float32
    return tf.concat([tf.cast(part, dtype) for part in rows], axis=1)


def split(layout: Layout, flat: Any) -> Any:
    """Return flat raw actions `[B, width]` as the space's structure: int64 `[B]` for Discrete, else `[B, k]`.

    Args:
        layout: Of the space.
        flat: The actions, a tensor or an array.

    Raises:
        ModelContractError: They have another width.
    """
    flat = tf.convert_to_tensor(flat)
    layout.check_flat(flat.shape, None)
    parts: list[Any] = []
    for leaf, part in zip(layout.leaves, _by_leaf(layout, flat), strict=True):
        if leaf.inner is not None:
            parts.append(split(leaf.inner, part))
        else:
            parts.append(tf.squeeze(part, 1) if leaf.single else part)
    return layout.structure(parts)


def _by_leaf(layout: Layout, flat: Any) -> Sequence[Any]:
    parts: Sequence[Any] = tf.split(flat, layout.widths, axis=1)
    if not layout.some_whole or not flat.dtype.is_floating:
        return parts
    whole = tf.split(tf.cast(tf.round(flat), tf.int64), layout.widths, axis=1)
    return [rounded if leaf.whole else part for leaf, part, rounded in zip(layout.leaves, parts, whole, strict=True)]


def _common(one: Any, other: Any) -> Any:
    """Return the type that holds both: the wider, or the one with fractions."""
    if one.is_floating != other.is_floating:
        return one if one.is_floating else other
    return one if one.size >= other.size else other
