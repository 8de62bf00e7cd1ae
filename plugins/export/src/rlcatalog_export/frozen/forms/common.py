"""What the forms of all operations share: the table of them, and how tensors are spoken of.

Shapes are known numbers. A form is a function that adds nodes to a recording and returns their output, or outputs: it
gets the recording, what PyTorch returned, and the operation's own arguments. Tensors among them are named by
`recording.name`, which brings them into a dtype where one is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rlcatalog_export.frozen.torch.recording import Recording

Form = Callable[..., Any]
_Made = TypeVar("_Made", bound=Form)
#: Name of an operation of PyTorch's → its form.
FORMS: dict[str, Form] = {}


def form_of(*names: str) -> Callable[[_Made], _Made]:
    """Enter a function as the form of some operations."""

    def entered(function: _Made) -> _Made:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return entered


def dtype_of(tensor: Any) -> str:
    """Return the name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return a tensor's shape."""
    return tuple(int(n) for n in tensor.shape)


def axis_of(axis: int, ndim: int) -> int:
    """Return an axis counted from the front."""
    return axis + ndim if axis < 0 else axis


class Value:
    """Numbers in the graph, all of one dtype, to calculate with; Python's numbers take part as constants.

    Args:
        r: The recording.
        name: What they are called in its graph.
        dtype: Their dtype.
    """

    def __init__(self, r: Recording, name: str, dtype: str) -> None:
        self.r, self.name, self.dtype = r, name, dtype

    def to(self, operator: str, *others: Any, **attributes: Any) -> Value:
        """Return what an operation of ONNX makes of these numbers and others."""
        names = [self._name(other) for other in others]
        return Value(self.r, self.r.graph.add(operator, self.name, *names, **attributes), self.dtype)

    def __add__(self, other: Any) -> Value:
        return self.to("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self.to("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return Value(self.r, self._name(other), self.dtype) - self

    def __mul__(self, other: Any) -> Value:
        return self if _is_one(other) else self.to("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self if _is_one(other) else self.to("Div", other)

    def _name(self, other: Any) -> str:
        return other.name if isinstance(other, Value) else self.r.name(other, self.dtype)


def _is_one(number: Any) -> bool:
    return isinstance(number, int | float) and number == 1
