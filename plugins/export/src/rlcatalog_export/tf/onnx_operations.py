"""Operations of TensorFlow's in those of ONNX, where tf2onnx has no form or one that is wrong at the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from rlcatalog_export.formulas import Value, log_gamma


class _Nodes:
    """Nodes in place of one of TensorFlow's.

    Args:
        graph: What tf2onnx converts.
        name: What the nodes' names begin with.
    """

    def __init__(self, graph: Any, name: str) -> None:
        self._graph, self._prefix, self._count = graph, name, 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that."""
        node = self._graph.make_node(operator, list(inputs), attr=attributes, name=self._name(operator))
        return str(node.output[0])

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Return the name of a constant."""
        return str(self._graph.make_const(self._name("constant"), np.array(value, dtype)).output[0])

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{self._prefix}__{what}_{self._count}"


def _converter(formula: Callable[..., Value]) -> Callable[..., Any]:
    """Return what replaces a node by a formula of its inputs, which gets the number of its output's dtype as well."""

    def convert(graph: Any, node: Any, name: str, arguments: Any) -> Any:
        target = node.output[0]
        dtype, shape = graph.get_dtype(target), graph.get_shape(target)
        nodes = _Nodes(graph, name)
        inner = np.float64 if graph.get_dtype(node.input[0]) == TensorProto.DOUBLE else np.float32
        answer = formula(*(Value(nodes, x, inner) for x in node.input), dtype=dtype)
        graph.remove_node(node.name)
        return graph.make_node("Identity", [answer.name], outputs=[target], dtypes=[dtype], shapes=[shape])

    return convert


def log1p(x: Value, dtype: int) -> Value:
    """Return log(1 + x): what rounding takes from 1 + x is put back (Goldberg 1991, theorem 4)."""
    wide = x + 1
    kept = wide - 1
    return kept.to("Equal", 0).to("Where", x, wide.log() * (x / kept))


def lgamma(x: Value, dtype: int) -> Value:
    """Return log Γ(x) for x > 0, computed in float64."""
    wide = Value(x.graph, x.to("Cast", to=TensorProto.DOUBLE).name, np.float64)
    return log_gamma(wide).to("Cast", to=dtype)  # type: ignore[no-any-return]


def where(condition: Value, x: Value, y: Value, dtype: int) -> Value:
    """Return a choice between two tensors; tf2onnx multiplies by 0 and 1, which infinite numbers do not survive."""
    return condition.to("Where", x, y)


def lower_bound(ordered: Value, values: Value, dtype: int) -> Value:
    """Return the places `[r, m]` of values `[r, m]` in rows `[r, n]` of sorted numbers: how many are lower."""
    first, last = (Value(ordered.graph, ordered.graph.constant([axis], np.int64), np.int64) for axis in (1, 2))
    lower = ordered.to("Unsqueeze", first).to("Less", values.to("Unsqueeze", last)).to("Cast", to=dtype)
    return lower.to("ReduceSum", last, keepdims=0)


#: TensorFlow's name of an operation → what converts it.
CONVERTED: dict[str, tuple[Any, list[str]]] = {
    "Log1p": (_converter(log1p), []), "Lgamma": (_converter(lgamma), []),
    "LowerBound": (_converter(lower_bound), []), "SelectV2": (_converter(where), []),
}  # fmt: skip
