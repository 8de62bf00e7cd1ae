"""Operations of TensorFlow's in those of ONNX, where tf2onnx has no form or one that is wrong at the edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from rlcatalog_export.stirling import SHIFT, TERMS


class _Graph:
    """Nodes behind one another, of one dtype.

    Args:
        graph: What tf2onnx converts.
        name: What the nodes' names begin with.
        dtype: NumPy dtype of constants.
    """

    def __init__(self, graph: Any, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype
        self._count = 0

    def __call__(self, operation: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node, and return the name of its output; numbers become constants."""
        found = [x if isinstance(x, str) else self._constant(x) for x in inputs]
        made: str = self.graph.make_node(operation, found, attr=attributes, name=self._named(operation)).output[0]
        return made

    def _constant(self, value: float | list[int]) -> str:
        made: str = self.graph.make_const(self._named("constant"), np.array(value, self.dtype)).output[0]
        return made

    def _named(self, what: str) -> str:
        self._count += 1
        return f"{self.name}__{what}_{self._count}"


def _replaced(graph: Any, node: Any, output: str) -> Any:
    """Let an output stand for a node's."""
    dtype, shape, target = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0]), node.output[0]
    graph.remove_node(node.name)
    return graph.make_node("Identity", [output], outputs=[target], dtypes=[dtype], shapes=[shape])


def log1p(graph: Any, node: Any, name: str, arguments: Any) -> Any:
    """Convert log(1 + x): what rounding takes from 1 + x is put back (Goldberg 1991, theorem 4)."""
    x, add = node.input[0], _Graph(graph, name, _dtype(graph, node))
    wide = add("Add", x, 1.0)
    kept = add("Sub", wide, 1.0)
    exact = add("Mul", add("Log", wide), add("Div", x, kept))
    return _replaced(graph, node, add("Where", add("Equal", kept, 0.0), x, exact))


def lgamma(graph: Any, node: Any, name: str, arguments: Any) -> Any:
    """Convert log Γ(x) for x > 0: Stirling's series at x + 8, less the logs of what lies between, in float64."""
    add = _Graph(graph, name, np.float64)
    x = between = add("Cast", node.input[0], to=TensorProto.DOUBLE)
    for i in range(1, SHIFT):
        between = add("Mul", between, add("Add", x, float(i)))
    z = add("Add", x, float(SHIFT))
    inverse = add("Div", 1.0, z)
    square = add("Mul", inverse, inverse)
    series: Any = TERMS[-1]
    for term in reversed(TERMS[:-1]):
        series = add("Add", term, add("Mul", square, series))
    series = add("Mul", inverse, series)
    found = add("Sub", add("Mul", add("Sub", z, 0.5), add("Log", z)), z)
    found = add("Add", add("Add", found, series), 0.5 * math.log(2 * math.pi))
    found = add("Sub", found, add("Log", between))
    return _replaced(graph, node, add("Cast", found, to=graph.get_dtype(node.input[0])))


def where(graph: Any, node: Any, name: str, arguments: Any) -> Any:
    """Convert a choice between two tensors; tf2onnx multiplies by 0 and 1, which infinite numbers do not survive."""
    return _replaced(graph, node, _Graph(graph, name, np.float32)("Where", *node.input))


def lower_bound(graph: Any, node: Any, name: str, arguments: Any) -> Any:
    """Convert the places `[r, m]` of values `[r, m]` in rows `[r, n]` of sorted numbers: how many are lower."""
    add = _Graph(graph, name, np.int64)
    ordered, values = add("Unsqueeze", node.input[0], [1]), add("Unsqueeze", node.input[1], [2])
    lower = add("Cast", add("Less", ordered, values), to=graph.get_dtype(node.output[0]))
    return _replaced(graph, node, add("ReduceSum", lower, [2], keepdims=0))


def _dtype(graph: Any, node: Any) -> Any:
    return np.float64 if graph.get_dtype(node.input[0]) == TensorProto.DOUBLE else np.float32


#: TensorFlow's name of an operation → what converts it.
CONVERTED: dict[str, tuple[Any, list[str]]] = {
    "Log1p": (log1p, []), "Lgamma": (lgamma, []), "LowerBound": (lower_bound, []), "SelectV2": (where, []),
}  # fmt: skip
