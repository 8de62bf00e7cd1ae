"""Functions of arrays, each with its pull-back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tape.array import Array, Numbers, data_of, record


def exp(x: Array) -> Array:
    """Return the exponential of each element."""
    y = np.exp(x.data)
    return record(y, (x, lambda g: g * y))


def log(x: Array) -> Array:
    """Return the natural logarithm of each element."""
    return record(np.log(x.data), (x, lambda g: g / x.data))


def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent of each element."""
    y = np.tanh(x.data)
    return record(y, (x, lambda g: g * (1 - y**2)))


def relu(x: Array) -> Array:
    """Return each element, or 0 if it is negative."""
    y = np.maximum(x.data, 0)
    return record(y, (x, lambda g: g * (y > 0)))


def where(condition: Any, x: Any, y: Any) -> Array:
    """Return the elements of x where the condition holds, and those of y elsewhere."""
    holds = data_of(condition)
    return record(
        np.where(holds, data_of(x), data_of(y)),
        (x, lambda g: np.where(holds, g, 0)),
        (y, lambda g: np.where(holds, 0, g)),
    )


def minimum(x: Any, y: Any) -> Array:
    """Return the smaller of two elements; equal ones count as the first."""
    return where(data_of(x) <= data_of(y), x, y)


def maximum(x: Any, y: Any) -> Array:
    """Return the larger of two elements; equal ones count as the first."""
    return where(data_of(x) >= data_of(y), x, y)


def clip(x: Array, low: Any, high: Any) -> Array:
    """Return each element, or the bound that it is beyond."""
    return minimum(maximum(x, low), high)


def concat(pieces: Sequence[Any], axis: int = 0) -> Array:
    """Join arrays along an axis."""
    joined = np.concatenate([data_of(piece) for piece in pieces], axis)
    lengths = [piece.shape[axis] for piece in pieces]
    ends = np.cumsum(lengths)[:-1]

    def part(index: int) -> Any:
        def pull_back(g: Numbers) -> Numbers:
            return np.split(g, ends, axis)[index]

        return pull_back

    return record(joined, *((piece, part(index)) for index, piece in enumerate(pieces)))
