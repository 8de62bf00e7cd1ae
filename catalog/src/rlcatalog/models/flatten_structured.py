"""Flattening of structured observations into the vector that their preprocessor would return."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog.frameworks.ops import Tensor, TensorOps, TensorTree
from rlcatalog.observations import Preprocessor


class _NoLayout(Exception):
    """An entry of the structure cannot become a row of numbers, or the codec does not encode entry
    by entry.
    """


def flatten_structured(preprocessor: Preprocessor, obs: TensorTree, ops: TensorOps) -> Any:
    """Flatten Dict or Tuple observations into `[B, size]`, with one-hot vectors for Discrete and
    MultiDiscrete.

    Args:
        preprocessor: Their preprocessor.
        obs: A structure of tensors `[B, ...]`.
        ops: The framework's operations.

    Returns:
        The vectors, or the unchanged structure if some entry cannot be flattened.
    """
    try:
        return ops.columns(list(_flat_leaves(preprocessor, obs, ops)))
    except _NoLayout:
        return obs


def _flat_leaves(codec: Preprocessor, obs: TensorTree, ops: TensorOps) -> Iterator[Any]:
    """Yield each leaf of an observation as `[B, n]`, in the order of the codec's vector."""
    if isinstance(obs, Mapping):
        yield from _flat_entries(codec, codec.info.keys, obs, ops)
    elif isinstance(obs, tuple | list):
        yield from _flat_entries(codec, range(len(obs)), obs, ops)
    else:
        shape = _known_shape(obs)
        has_wrong_structure = bool(codec.info.children)  # a tensor stands for a Dict or Tuple
        if shape is None or has_wrong_structure:
            raise _NoLayout
        # If a Discrete has one value, its index has the encoded size 1 already, but is no one-hot.
        is_index = codec.info.kind == "discrete" and len(shape) == 1
        if codec.ids() is not None:
            is_index = False  # the codec writes the integers themselves
        if math.prod(shape[1:]) == codec.size and not is_index:
            yield ops.rows(obs, (codec.size,))
        else:
            yield from _one_hots(codec, obs, ops)


def _flat_entries(
    codec: Preprocessor, keys: Sequence[Any], obs: Mapping[Any, Any] | Sequence[Any], ops: TensorOps
) -> Iterator[Any]:
    """Yield the leaves of a Dict's or Tuple's entries; `keys` are its keys or its positions."""
    if not len(codec.children) == len(obs) == len(keys):
        raise _NoLayout
    for key, child in zip(keys, codec.children, strict=True):
        yield from _flat_leaves(child, obs[key], ops)


def _known_shape(obs: Tensor) -> tuple[Any, ...] | None:
    """Return the shape of a tensor, in which the first axis may be unknown; None if another axis is
    unknown, or if the value is not a tensor.
    """
    shape = getattr(obs, "shape", None)  # a user's structure may hold anything
    # Of TensorFlow's shapes, even the rank can be unknown; other shapes have no attribute for it.
    if shape is None or getattr(shape, "rank", 1) is None:
        return None
    sizes = tuple(shape)
    return None if None in sizes[1:] else sizes


def _one_hots(codec: Preprocessor, obs: Tensor, ops: TensorOps) -> Iterator[Any]:
    """Yield one-hot vectors `[B, n]` for each integer of a Discrete or MultiDiscrete."""
    info = codec.info
    if info.kind not in ("discrete", "multi_discrete"):
        raise _NoLayout
    sizes: Any = info.n if info.nvec is None else info.nvec
    counts = np.ravel(sizes).tolist()
    starts = np.ravel(info.start).tolist()
    integers = ops.rows(ops.integers(ops.whole(obs)), (len(counts),))
    for place, (count, start) in enumerate(zip(counts, starts, strict=True)):
        column = integers[:, place : place + 1]
        values = ops.constant(np.arange(start, start + count, dtype=np.int64), integers)
        ones = ops.constant(np.ones((1, count), np.float32), integers)
        yield ops.only(column == values, ones)  # 1 where they are equal, otherwise 0
