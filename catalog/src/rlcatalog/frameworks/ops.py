"""The tensor operations that framework-neutral code needs, of NumPy and of each framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks.table import framework_of, frameworks

#: In place of an operation that a table leaves out.
_LEFT_OUT: Any = None

Operation = Callable[..., Any]


class Tensor(Protocol):
    """A tensor of a framework, or an array of NumPy's."""

    @property
    def shape(self) -> Any:
        """Its shape."""

    def __getitem__(self, key: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class TensorOps:
    """The operations of a tensor library that framework-neutral code needs: one table per framework, and NumPy's.

    Any framework has the first four. It may leave out others: where neutral code needs one of them, a NotServedError
    names it. Below, x is a tensor, and `value` a tensor, an array or what one can be made of.

    Attributes:
        framework: The framework's name, or `"numpy"`.
        reshape: `reshape(x, shape)` gives the last axis of x the given shape, as a view where the library can.
        integers: `integers(x)` returns x as int64.
        side_by_side: `side_by_side(list)` joins `[B, n]` tensors along their columns, in the widest of their types;
            half precisions become float32 beside other types, which holds whole numbers exactly.
        fill_forbidden: `fill_forbidden(inputs, mask)` gives inputs where the mask is False their dtype's lowest
            finite value.
        array: `array(x)` returns the values of x as an array, or None where they are not known, as while tracing; a
            table that leaves it out never knows them.
        tensor: `tensor(value, like=None)` returns a tensor, on the device of `like`.
        booleans: `booleans(value, like)` returns a boolean tensor, on the device of `like`.
        is_array: `is_array(value)` says whether it is one tensor or array, not a structure.
        is_float: `is_float(x)` says whether x holds floating-point numbers.
        is_half: `is_half(x)` says whether x is of half precision.
        cast: `cast(x, dtype)` returns x in one of the library's dtypes.
        whole: `whole(x)` returns whole numbers as integers, rounded to int64 where they are stored as floats.
        finite: `finite(x)` puts the nearest finite number of its dtype in place of infinity.
        rows: `rows(x, shape)` returns x as `[N, *shape]`.
        in_rows: `in_rows(value, like, width)` returns `[B, width]` with the rows of `like`; None where there are too
            many values or too few.
        columns: `columns(list)` joins tensors `[B]` or `[B, ...]` as `side_by_side` does, each as its columns.
        cut: `cut(x, how)` cuts `[B, n]` into pieces of the widths `how.widths`, after its columns were brought into
            the order `how.order`, unless that is None. `how` is kept for later calls.
        each_row: `each_row(x, count)` repeats each row: `[B * count, n]`.
        all_rows: `all_rows(x, like)` repeats `[P, n]` for each row of `like`: `[B * P, n]`.
        padded: `padded(x, width)` appends zeros to `[N, n]`: `[N, width]`.
        taken: `taken(lengths, places)` returns which places lists of these lengths `[N]` take: booleans `[N, places]`.
        only: `only(taken, x)` puts zeros where `taken` is False, whose axes are the first of x.
        total: `total(list)` adds tensors of one shape, in the widest of their types.
        sum: `sum(x, axis=..., keepdims=False)` adds along an axis.
        mean: `mean(x, axis=None, keepdims=False)` returns the mean, of all elements or along an axis.
        std: `std(x)` returns the standard deviation of a sample, of all elements.
        exp: `exp(x)` returns e to the x.
        minimum: `minimum(x, y)` returns the smaller one, element by element.
        clip: `clip(x, low, high)` cuts x to [low, high].
        without_gradient: `without_gradient(x)` returns x as a constant.
        concat: `concat(list, axis)` joins tensors along an axis.
        as_type: `as_type(x, name)` returns x in the dtype of this NumPy name.
        flat: `flat(x)` returns `[B]` or `[B, ...]` as `[B, n]`.
        maximum: `maximum(x, y)` returns the larger one, element by element.
        columns_at: `columns_at(x, places)` returns the columns of `[B, n]` with these numbers, in this order.
        one_hot: `one_hot(x, n)` returns whole numbers `[B]` as `[B, n]`, float32.
        argmax: `argmax(x)` returns the place of the largest value of each row of `[B, n]`, int64.
    """

    framework: str
    reshape: Operation
    integers: Operation
    side_by_side: Operation
    fill_forbidden: Operation
    array: Operation = lambda x: None
    tensor: Operation = _LEFT_OUT
    booleans: Operation = _LEFT_OUT
    is_array: Operation = _LEFT_OUT
    is_float: Operation = _LEFT_OUT
    is_half: Operation = _LEFT_OUT
    cast: Operation = _LEFT_OUT
    whole: Operation = _LEFT_OUT
    finite: Operation = _LEFT_OUT
    rows: Operation = _LEFT_OUT
    in_rows: Operation = _LEFT_OUT
    columns: Operation = _LEFT_OUT
    cut: Operation = _LEFT_OUT
    each_row: Operation = _LEFT_OUT
    all_rows: Operation = _LEFT_OUT
    padded: Operation = _LEFT_OUT
    taken: Operation = _LEFT_OUT
    only: Operation = _LEFT_OUT
    total: Operation = _LEFT_OUT
    sum: Operation = _LEFT_OUT
    mean: Operation = _LEFT_OUT
    std: Operation = _LEFT_OUT
    exp: Operation = _LEFT_OUT
    minimum: Operation = _LEFT_OUT
    clip: Operation = _LEFT_OUT
    without_gradient: Operation = _LEFT_OUT
    concat: Operation = _LEFT_OUT
    as_type: Operation = _LEFT_OUT
    flat: Operation = _LEFT_OUT
    maximum: Operation = _LEFT_OUT
    columns_at: Operation = _LEFT_OUT
    one_hot: Operation = _LEFT_OUT
    argmax: Operation = _LEFT_OUT

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is _LEFT_OUT:
                object.__setattr__(self, field.name, partial(_refuse, self.framework, field.name))

    def __reduce__(self) -> Any:
        # Models hold their table and are pickled and copied; not all of a library's functions are.
        return tensor_ops, (self.framework,)


def _refuse(framework: str, operation: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotServedError(f"framework {framework!r} has no tensor operation {operation!r}: its TensorOps leave it out.")


def tensor_ops(tensorlib: str) -> TensorOps:
    """Return the operations of a tensor library: `"numpy"`, or a framework's name.

    Raises:
        ModelContractError: The library is not known.
    """
    if tensorlib == "numpy":
        return NUMPY_OPS
    for spec in frameworks().values():
        if isinstance(tensorlib, str) and tensorlib in (spec.name, *spec.aliases):
            ops: TensorOps = spec.load("ops")
            return ops
    *known, last = map(repr, ("numpy", *frameworks()))
    raise ModelContractError(f"tensorlib must be {', '.join(known)} or {last}, found {tensorlib!r}.")


def ops_of(tensor: Tensor) -> TensorOps:
    """Return the operations for a tensor, or an array."""
    cls = type(tensor)
    ops = _OF_CLASS.get(cls)
    if ops is None:
        spec = framework_of(cls)
        ops = _OF_CLASS[cls] = NUMPY_OPS if spec is None else tensor_ops(spec.name)
    return ops


#: What `ops_of` has found. No `functools.cache`, which `torch.compile` warns of.
_OF_CLASS: dict[type[Any], TensorOps] = {}


def _integers(x: np.ndarray[Any, Any]) -> Any:
    with np.errstate(invalid="ignore"):  # in a branch of a OneOf that was not taken any values may stand
        return x.astype(np.int64)


NUMPY_OPS = TensorOps(
    "numpy",
    reshape=lambda x, shape: x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape),
    integers=_integers,
    side_by_side=lambda pieces: np.concatenate(pieces, axis=1),
    fill_forbidden=lambda inputs, mask: np.where(np.asarray(mask, bool), inputs, np.finfo(inputs.dtype).min),
    array=np.asarray,
    tensor=lambda value, like=None: np.asarray(value),
    concat=np.concatenate,
    maximum=np.maximum,
    columns_at=lambda x, places: x[:, places],
    as_type=lambda x, name: x.astype(name, copy=False),
)
