"""Tensor operations for framework-neutral code, implemented for NumPy and each framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks.table import find_framework, framework_of, frameworks

Operation = Callable[..., Any]


class Tensor(Protocol):
    """A framework's tensor, or a NumPy array."""

    @property
    def shape(self) -> Any:
        """Its shape."""

    def __getitem__(self, key: Any, /) -> Any: ...


class TensorOps:
    """The operations of a tensor library that framework-neutral code needs: one table per
    framework, and one for NumPy.

    Each framework must define the first four. It may omit others: if framework-neutral code needs
    an omitted operation, a NotServedError names it. Below, x is a tensor, and `value` is a tensor,
    an array or anything that can be converted into one.

    Attributes:
        framework: The framework's name, or `"numpy"`.
        reshape: `reshape(x, shape)` reshapes the last axis of x to the given shape, as a view where
            possible.
        integers: `integers(x)` returns x as int64.
        side_by_side: `side_by_side(list)` joins `[B, n]` tensors along their columns, in the widest
            of their types; half-precision types become float32 if other types are present, so that
            integers stay exact.
        fill_forbidden: `fill_forbidden(inputs, mask)` sets inputs to their dtype's lowest finite
            value where the mask is False.
        array: `array(x)` returns the values of x as an array, or None if they are unknown, for
            example during tracing; if the table has no `array`, they are always unknown.
        tensor: `tensor(value, like=None)` returns a tensor, on the device of `like`.
        booleans: `booleans(value, like)` returns a boolean tensor, on the device of `like`.
        is_array: `is_array(value)` returns whether `value` is a single tensor or array, not a
            structure.
        is_float: `is_float(x)` returns whether x has a floating-point dtype.
        is_half: `is_half(x)` returns whether x has half precision.
        cast: `cast(x, dtype)` returns x in one of the library's dtypes.
        whole: `whole(x)` returns integer values with an integer dtype; values stored as floats are
            rounded to int64.
        finite: `finite(x)` replaces infinity with the nearest finite number of its dtype.
        rows: `rows(x, shape)` returns x as `[N, *shape]`.
        in_rows: `in_rows(value, like, width)` returns the values as `[B, width]` with the same rows
            as `like`; None if there are too many or too few values.
        columns: `columns(list)` flattens tensors `[B]` or `[B, ...]` into columns and joins them as
            `side_by_side` does.
        cut: `cut(x, how)` puts the columns of `[B, n]` into the order `how.order`, unless that is
            None, and cuts them into pieces of the widths `how.widths`. `how` is kept for later
            calls.
        each_row: `each_row(x, count)` repeats each row: `[B * count, n]`.
        all_rows: `all_rows(x, like)` repeats `[P, n]` for each row of `like`: `[B * P, n]`.
        padded: `padded(x, width)` pads `[N, n]` with zeros to `[N, width]`.
        taken: `taken(lengths, places)` returns which places are filled by lists of these lengths
            `[N]`: booleans `[N, places]`.
        only: `only(taken, x)` puts zeros where `taken` is False; its axes are the first axes of x.
        total: `total(list)` adds tensors of the same shape, in the widest of their types.
        sum: `sum(x, axis=..., keepdims=False)` returns the sum along an axis.
        mean: `mean(x, axis=None, keepdims=False)` returns the mean of all elements or along an
            axis.
        std: `std(x)` returns the sample standard deviation of all elements.
        exp: `exp(x)` returns the exponential of each element.
        minimum: `minimum(x, y)` returns the element-wise minimum.
        clip: `clip(x, low, high)` clips x to [low, high].
        without_gradient: `without_gradient(x)` returns x as a constant, detached from the gradient.
        concat: `concat(list, axis)` joins tensors along an axis.
        as_type: `as_type(x, name)` returns x with the dtype of this NumPy name.
        flat: `flat(x)` returns `[B]` or `[B, ...]` as `[B, n]`.
        maximum: `maximum(x, y)` returns the element-wise maximum.
        columns_at: `columns_at(x, places)` returns the columns of `[B, n]` at these indices, in
            this order.
        one_hot: `one_hot(x, n)` returns integers `[B]` as float32 one-hot vectors `[B, n]`.
        argmax: `argmax(x)` returns the index of the largest value in each row of `[B, n]`, int64.
    """

    def __init__(
        self,
        framework: str,
        reshape: Operation,
        integers: Operation,
        side_by_side: Operation,
        fill_forbidden: Operation,
        array: Operation = lambda x: None,
        **others: Operation,
    ) -> None:
        self.framework, self.array = framework, array
        self.reshape, self.integers = reshape, integers
        self.side_by_side, self.fill_forbidden = side_by_side, fill_forbidden
        vars(self).update(others)

    def __getattr__(self, operation: str) -> Operation:
        if operation.startswith("__"):  # attributes that copying and pickling look up
            raise AttributeError(operation)
        raise NotServedError(
            f"framework {self.framework!r} has no tensor operation {operation!r}: its TensorOps"
            " omit it."
        )

    def __reduce__(self) -> Any:
        # Models hold their table and are pickled and copied; not all of a library's functions are.
        return tensor_ops, (self.framework,)


def tensor_ops(tensorlib: str) -> TensorOps:
    """Return the operations of a tensor library, given as `"numpy"` or a framework's name.

    Raises:
        ModelContractError: The library is unknown.
    """
    if tensorlib == "numpy":
        return NUMPY_OPS
    if (spec := find_framework(tensorlib)) is not None:
        ops: TensorOps = spec.load("ops")
        return ops
    *known, last = map(repr, ("numpy", *frameworks()))
    raise ModelContractError(
        f"tensorlib must be {', '.join(known)} or {last}, found {tensorlib!r}."
    )


def ops_of(tensor: Tensor) -> TensorOps:
    """Return the operations for a tensor or array."""
    cls = type(tensor)
    if (ops := _OF_CLASS.get(cls)) is None:
        if (spec := framework_of(cls)) is None:
            return NUMPY_OPS  # not cached: the framework of this class may still be installed
        ops = _OF_CLASS[cls] = tensor_ops(spec.name)
    return ops


#: Cache of `ops_of`. Not `functools.cache`, which `torch.compile` warns of.
_OF_CLASS: dict[type[Any], TensorOps] = {}


def _integers(x: np.ndarray[Any, Any]) -> Any:
    # Branches of a OneOf that were not taken may have any values.
    with np.errstate(invalid="ignore"):
        return x.astype(np.int64)


NUMPY_OPS = TensorOps(
    "numpy",
    reshape=lambda x, shape: x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape),
    integers=_integers,
    side_by_side=lambda pieces: np.concatenate(pieces, axis=1),
    fill_forbidden=lambda inputs, mask: np.where(
        np.asarray(mask, bool), inputs, np.finfo(inputs.dtype).min
    ),
    array=np.asarray,
    tensor=lambda value, like=None: np.asarray(value),
    concat=np.concatenate,
    maximum=np.maximum,
    columns_at=lambda x, places: x[:, places],
    as_type=lambda x, name: x.astype(name, copy=False),
)
