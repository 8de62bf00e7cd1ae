"""Values in an ONNX graph, the helpers of forms, and the register of forms for PyTorch operations.

All shapes are known. A form is a function that adds nodes to a recording and returns the nodes'
output or outputs. Its arguments are the recording, PyTorch's result, and the operation's arguments.
`recording.name` returns the name of a tensor argument, and converts it to a dtype if given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from rlcatalog_export.onnx_graph import type_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlcatalog_export.torch import recorder

#: The type that a form writes into; PyTorch is not imported just to name it.
Recording: TypeAlias = "recorder.Recording"
Form = Callable[..., Any]
_Form = TypeVar("_Form", bound=Form)
Number: TypeAlias = int | float
#: An operand of a formula; a number becomes a constant.
Operand: TypeAlias = "Value | Number"
#: Name of a PyTorch operation → its form.
FORMS: dict[str, Form] = {}


def form_of(*names: str) -> Callable[[_Form], _Form]:
    """Register a form for some operations."""

    def register(form: _Form) -> _Form:
        for name in names:
            FORMS[name] = form
        return form

    return register


class Nodes(Protocol):
    """Graph under construction: `Graph`, or a different converter's class, whose
    names may differ.
    """

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Add a node with one output, and return the output's name."""

    def constant(self, value: Any, dtype: str | None = None) -> Any:
        """Return the name of a constant."""


class Value:
    """Values of one dtype in a graph; Python numbers become constants.

    Args:
        graph: The graph.
        name: Name in the graph.
        dtype: The values' dtype.
    """

    def __init__(self, graph: Nodes, name: Any, dtype: str) -> None:
        self.graph = graph
        self.name = name
        self.dtype = dtype

    def to(
        self, operator: str, *others: Operand, dtype: str | None = None, **attributes: Any
    ) -> Value:
        """Return the result of an ONNX operation on these and other values, by default in the same
        dtype.
        """
        names = [self.name]
        for operand in others:
            if isinstance(operand, Value):
                names.append(operand.name)
            else:
                names.append(self.graph.constant(operand, self.dtype))
        result = self.graph.add(operator, *names, **attributes)
        return Value(self.graph, result, dtype or self.dtype)

    def cast(self, dtype: str) -> Value:
        """Return the values in a different dtype."""
        if dtype == self.dtype:
            return self
        return self.to("Cast", dtype=dtype, to=type_of(dtype))

    def constant(self, value: Any, dtype: str | None = None) -> Value:
        """Return a constant, by default of the values' dtype."""
        dtype = dtype or self.dtype
        return Value(self.graph, self.graph.constant(value, dtype), dtype)

    def log(self) -> Value:
        """Return the natural logarithm."""
        return self.to("Log")

    def __add__(self, other: Operand) -> Value:
        return self.to("Add", other)

    def __sub__(self, other: Operand) -> Value:
        return self.to("Sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self.constant(other) - self

    def __mul__(self, other: Operand) -> Value:
        if _is_one(other):
            return self
        return self.to("Mul", other)

    def __truediv__(self, other: Operand) -> Value:
        if _is_one(other):
            return self
        return self.to("Div", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self.constant(other) / self


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, int | float) and operand == 1


def dtype_of(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Return a tensor's shape."""
    return tuple(int(n) for n in tensor.shape)


def axis_of(axis: int, ndim: int) -> int:
    """Return an axis as a non-negative index."""
    return axis + ndim if axis < 0 else axis


def value_of(recording: Recording, tensor: Any, dtype: str | None = None) -> Value:
    """Return a tensor or number for use in formulas, by default in the tensor's dtype."""
    dtype = dtype or dtype_of(tensor)
    return Value(recording.graph, recording.name(tensor, dtype), dtype)
