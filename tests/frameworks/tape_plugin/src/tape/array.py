"""Arrays that remember how they were computed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]

#: A function that turns the gradient of a result into the gradient of one of its sources.
PullBack = Callable[[Numbers], Numbers]

_NEXT_NUMBER = itertools.count()


class Array:
    """A NumPy array together with the arrays from which it was computed.

    These records are the tape. Arrays are numbered in the order in which they are created, so to
    read the tape backwards is to go from high numbers to low ones; see `tape.gradients`.

    Attributes:
        data: The numbers.
        sources: The arrays from which it was computed, each with its pull-back. Only arrays that
            depend on one that learns are recorded.
        learns: Whether the array is a weight, whose gradient is wanted.
        number: Its place on the tape.
    """

    # NumPy then leaves `ndarray + Array` to `Array.__radd__`.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(
        self,
        data: Any,
        sources: tuple[tuple[Array, PullBack], ...] = (),
        learns: bool = False,
    ) -> None:
        self.data: Numbers = np.asarray(data)
        self.sources = sources
        self.learns = learns
        self.number = next(_NEXT_NUMBER)

    # --- what it looks like -----------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the numbers."""
        return self.data.dtype

    @property
    def is_tracked(self) -> bool:
        """Whether gradients pass through this array."""
        return self.learns or bool(self.sources)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"tape.{self.data!r}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Numbers:
        return np.array(self.data, dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)

    def constant(self) -> Array:
        """Return the same numbers without a record."""
        return Array(self.data)

    # --- arithmetic -------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Array:
        return record(self.data + data_of(other), (self, _same), (other, _same))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Array:
        return record(self.data - data_of(other), (self, _same), (other, operator.neg))

    def __rsub__(self, other: Any) -> Array:
        return record(other - self.data, (self, operator.neg))

    def __neg__(self) -> Array:
        return record(-self.data, (self, operator.neg))

    def __mul__(self, other: Any) -> Array:
        x = self.data
        y = data_of(other)
        return record(x * y, (self, lambda g: g * y), (other, lambda g: g * x))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Array:
        x = self.data
        y = data_of(other)
        return record(x / y, (self, lambda g: g / y), (other, lambda g: -g * x / y**2))

    def __rtruediv__(self, other: Any) -> Array:
        x = self.data
        return record(other / x, (self, lambda g: -g * other / x**2))

    def __pow__(self, power: float) -> Array:
        x = self.data
        return record(x**power, (self, lambda g: g * power * x ** (power - 1)))

    def __abs__(self) -> Array:
        x = self.data
        return record(abs(x), (self, lambda g: g * np.sign(x)))

    def __matmul__(self, other: Array) -> Array:
        """Return the product of two matrices."""
        x = self.data
        y = data_of(other)
        return record(x @ y, (self, lambda g: g @ y.T), (other, lambda g: x.T @ g))

    # --- comparisons, which have no gradient ------------------------------------------------------

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return Array(self.data == data_of(other))

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return Array(self.data != data_of(other))

    def __lt__(self, other: Any) -> Array:
        return Array(self.data < data_of(other))

    def __le__(self, other: Any) -> Array:
        return Array(self.data <= data_of(other))

    def __gt__(self, other: Any) -> Array:
        return Array(self.data > data_of(other))

    def __ge__(self, other: Any) -> Array:
        return Array(self.data >= data_of(other))

    # --- shapes and types -------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Array:
        x = self.data
        places = tuple(map(data_of, index)) if isinstance(index, tuple) else data_of(index)

        def pull_back(g: Numbers) -> Numbers:
            of_x = np.zeros_like(x)
            np.add.at(of_x, places, g)  # an element may have been taken more than once
            return of_x

        return record(x[places], (self, pull_back))

    def reshape(self, *shape: Any) -> Array:
        """Return the same numbers in another shape."""
        x = self.data
        return record(x.reshape(*shape), (self, lambda g: g.reshape(x.shape)))

    @property
    def T(self) -> Array:
        """The transposed matrix."""
        return record(self.data.T, (self, np.transpose))

    def astype(self, dtype: Any) -> Array:
        """Return the numbers in another dtype; integers and booleans have no gradient."""
        result = self.data.astype(dtype)
        if result.dtype.kind != "f":
            return Array(result)
        return record(result, (self, _same))

    # --- sums -------------------------------------------------------------------------------------

    def sum(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Return the sum of all elements, or along an axis or several."""
        x = self.data

        def pull_back(g: Numbers) -> Numbers:
            if axis is not None and not keepdims:
                g = np.expand_dims(g, axis)
            return np.broadcast_to(g, x.shape)

        return record(x.sum(axis, keepdims=keepdims), (self, pull_back))

    def mean(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Return the mean of all elements, or along an axis or several."""
        total = self.sum(axis, keepdims)
        return total * (total.data.size / self.data.size)


def record(data: Any, *sources: tuple[Any, PullBack]) -> Array:
    """Return an array that remembers how it was computed.

    Args:
        data: The numbers.
        *sources: From what they were computed, each with its pull-back. What is not an array, or
            does not depend on one that learns, is left out.
    """
    tracked = [
        (source, pull_back)
        for source, pull_back in sources
        if isinstance(source, Array) and source.is_tracked
    ]
    return Array(data, tuple(tracked))


def data_of(value: Any) -> Any:
    """Return the numbers of an array; anything else stays as it is."""
    return value.data if isinstance(value, Array) else value


def _same(g: Numbers) -> Numbers:
    return g
