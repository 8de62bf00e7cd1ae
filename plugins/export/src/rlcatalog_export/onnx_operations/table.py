"""What the forms of all operations share: the table of them, and how tensors are spoken of.

Shapes are known numbers. A form is a function that adds nodes to a recording and returns their output, or outputs: it
gets the recording, what PyTorch returned, and the operation's own arguments. Tensors among them are named by
`recording.name`, which brings them into a dtype where one is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog_export.formulas import Value

if TYPE_CHECKING:
    from rlcatalog_export.torch.recorder import Recording

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


def value_of(r: Recording, tensor: Any, dtype: str | None = None) -> Value:
    """Return a tensor or number for formulas, in a dtype; a tensor's own where none is given."""
    dtype = dtype or dtype_of(tensor)
    return Value(r.graph, r.name(tensor, dtype), dtype)
