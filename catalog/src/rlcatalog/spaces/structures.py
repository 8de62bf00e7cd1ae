"""Small helpers around nested actions and observations, RLlib's `TupleActions` and `one_hot` among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class TupleActions(NamedTuple):
    """Actions of a Tuple space, one batch per component.

    Attributes:
        batches: Tensors `[B]` or `[B, n]`, one per component.
    """

    batches: Sequence[Any]


def one_hot(x: Any, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0) -> np.ndarray[Any, Any]:
    """One-hot encode integers.

    Args:
        x: Integers (or floats that hold such) of any shape.
        depth: Number of values; the largest value plus one when 0.
        on_value: Value at the index.
        off_value: Value elsewhere.

    Returns:
        float32 array `[*x.shape, depth]`.

    Raises:
        ValueError: A value lies outside `[0, depth)`.
    """
    index = np.asarray(x).astype(np.int64)
    depth = depth or int(index.max()) + 1
    if index.size and (index.min() < 0 or index.max() >= depth):
        raise ValueError(f"one_hot: values must lie in [0, {depth}), found {index.min()} to {index.max()}.")
    out = np.full((*index.shape, depth), off_value, np.float32)
    np.put_along_axis(out, index[..., None], on_value, axis=-1)
    return out


def parts_of(sample: Any) -> list[Any] | None:
    """Return the tensors of a structured sample in order, or None when it is a single tensor."""
    if isinstance(sample, TupleActions):
        sample = sample.batches
    if isinstance(sample, Mapping):
        sample = list(sample.values())
    if not isinstance(sample, list | tuple):
        return None
    found = []
    for part in sample:
        inner = parts_of(part)
        found += [part] if inner is None else inner
    return found
