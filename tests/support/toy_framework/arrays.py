"""The framework's tensors, which are NumPy arrays: operations, random numbers and slopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlcatalog.frameworks import Array, NumpyOps

#: The state of the only random generator: weights and actions are drawn from it.
BITS = np.random.MT19937(0)
GENERATOR = np.random.Generator(BITS)


class Ops(NumpyOps):
    """Tensor operations: what every framework needs, and what PPO and the conformance kit use.

    NumpyOps has the four that every framework must have. Everything else is omitted until something
    asks for it.
    """

    framework = "toy"

    def booleans(self, value: ArrayLike, like: Array) -> Array:
        return np.asarray(value, bool)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def cast(self, x: Array, dtype: Any) -> Array:
        return x.astype(dtype)

    def flat(self, x: Array) -> Array:
        return x.reshape(len(x), math.prod(x.shape[1:]))

    def total(self, values: Sequence[Array]) -> Any:
        return sum(values)

    def sum(self, x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return x.sum(axis, keepdims=keepdims)

    def mean(self, x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return x.mean(axis, keepdims=keepdims)

    def std(self, x: Array) -> Any:
        return x.std(ddof=1)

    def exp(self, x: Array) -> Array:
        return np.exp(x)

    def minimum(self, x: Array, y: Array) -> Array:
        return np.minimum(x, y)

    def clip(self, x: Array, low: Array, high: Array) -> Array:
        return np.clip(x, low, high)


OPS = Ops()


def slope(function: Callable[[], float], at: Array, step: float = 1e-5) -> Array:
    """Return the gradient of a function with respect to an array that it reads, by central
    differences.

    Args:
        function: The function. It is called with other numbers in the array, which are restored
            afterwards.
        at: The array.
        step: Half the distance between two numbers.
    """
    gradient = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        before = at[place]
        at[place] = before + step
        above = function()
        at[place] = before - step
        below = function()
        at[place] = before
        gradient[place] = (above - below) / (2 * step)
    return gradient
