"""Formulas in the operations of ONNX: numbers of a graph under construction that Python's operators work on."""

from __future__ import annotations

import math
from typing import Any, Protocol

#: How far Stirling's series moves its argument up, to where a few terms are as exact as float64 holds.
_SHIFT = 8
#: log Γ(z) = (z - 1/2) log z - z + log(2π)/2 + (t₀ + t₁/z² + t₂/z⁴ + …)/z
_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


class Nodes(Protocol):
    """A graph that grows; see `frozen.graph.Graph`."""

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that."""

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant."""


class Value:
    """Numbers in a graph, all of one dtype; Python's numbers take part in formulas as constants.

    Args:
        graph: The graph.
        name: What they are called in it.
        dtype: Their dtype.
    """

    def __init__(self, graph: Nodes, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def to(self, operator: str, *others: Any, **attributes: Any) -> Value:
        """Return what an operation of ONNX makes of these numbers and others."""
        names = [x.name if isinstance(x, Value) else self.graph.constant(x, self.dtype) for x in others]
        return Value(self.graph, self.graph.add(operator, self.name, *names, **attributes), self.dtype)

    def log(self) -> Value:
        """Return the natural logarithm."""
        return self.to("Log")

    def __add__(self, other: Any) -> Value:
        return self.to("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self.to("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return Value(self.graph, self.graph.constant(other, self.dtype), self.dtype) - self

    def __mul__(self, other: Any) -> Value:
        return self if _is_one(other) else self.to("Mul", other)

    def __rtruediv__(self, other: Any) -> Value:
        return Value(self.graph, self.graph.constant(other, self.dtype), self.dtype) / self

    def __truediv__(self, other: Any) -> Value:
        return self if _is_one(other) else self.to("Div", other)


def _is_one(number: Any) -> bool:
    return isinstance(number, int | float) and number == 1


def log_gamma(x: Any) -> Any:
    """Return log Γ(x) for x > 0, which ONNX has no operation for.

    It is Stirling's series at x + 8, less the logs of what lies between.

    Args:
        x: Numbers of float64: a `Value`, or a tensor of PyTorch.
    """
    between = x
    for i in range(1, _SHIFT):
        between = between * (x + i)
    z = x + _SHIFT
    square = z * z
    series = _TERMS[-1]
    for term in reversed(_TERMS[:-1]):
        series = series / square + term
    return (z - 0.5) * z.log() - z + series / z + 0.5 * math.log(2 * math.pi) - between.log()
