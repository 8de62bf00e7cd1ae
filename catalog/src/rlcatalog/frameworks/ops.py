"""Tensor operations for framework-neutral code, implemented for NumPy and each framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks.table import find_framework, framework_of, frameworks

#: A NumPy array of any shape and dtype.
Array = np.ndarray[Any, Any]
#: The kinds (`dtype.kind`) of NumPy's dtypes that are real numbers: bool, int, unsigned int, float.
NUMBER_KINDS = "biuf"
#: One axis, several, or all of them.
Axes = int | tuple[int, ...] | None


class Tensor(Protocol):
    """A framework's tensor, or a NumPy array: what framework-neutral code may ask of it.

    Results are not typed, because an operation of one framework may return a subclass, and
    frameworks differ in what they accept beside a tensor.
    """

    @property
    def shape(self) -> Any:
        """Its shape: a sequence of integers, or None for a length that is unknown."""

    @property
    def dtype(self) -> Any:
        """Its dtype, as the framework names it."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __add__(self, other: Any, /) -> Any: ...

    def __radd__(self, other: Any, /) -> Any: ...

    def __sub__(self, other: Any, /) -> Any: ...

    def __rsub__(self, other: Any, /) -> Any: ...

    def __mul__(self, other: Any, /) -> Any: ...

    def __rmul__(self, other: Any, /) -> Any: ...

    def __truediv__(self, other: Any, /) -> Any: ...

    def __pow__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Any: ...

    def __lt__(self, other: Any, /) -> Any: ...

    def __le__(self, other: Any, /) -> Any: ...

    def __gt__(self, other: Any, /) -> Any: ...

    def __ge__(self, other: Any, /) -> Any: ...


#: A tensor, or a structure of tensors: what an encoded Dict or Tuple becomes.
TensorTree: TypeAlias = (
    "Tensor | Mapping[str, TensorTree] | tuple[TensorTree, ...] | list[TensorTree]"
)


class ColumnOrder(Protocol):
    """How `TensorOps.cut` orders and cuts columns."""

    @property
    def order(self) -> Sequence[int] | None:
        """The indices of the columns in their new order; None keeps the order."""

    @property
    def widths(self) -> Sequence[int]:
        """The widths of the pieces, in the new order."""


if TYPE_CHECKING:
    #: A framework's tensor class; Any where a class does not name it.
    FrameworkTensor = TypeVar("FrameworkTensor", default=Any)
else:
    # Python 3.13 is the first version whose type variables have defaults.
    FrameworkTensor = TypeVar("FrameworkTensor")


class TensorOps(ABC, Generic[FrameworkTensor]):
    """The operations of a tensor library that framework-neutral code needs; a framework derives a
    class, and its target `"ops"` names an object of it.

    A framework must define the first four. It may omit others: if framework-neutral code needs an
    omitted operation, a NotServedError names it. Below, x is a tensor, and a value is a tensor, an
    array or anything that can be converted into one.
    """

    #: The framework's name, or `"numpy"`.
    framework: ClassVar[str]

    def __reduce__(self) -> Any:
        # Models hold this object and are pickled and copied; it is one for each framework.
        return tensor_ops, (self.framework,)

    def _omitted(self, operation: str) -> NotServedError:
        return NotServedError(
            f"framework {self.framework!r} has no tensor operation {operation!r}: its TensorOps"
            " omit it."
        )

    # --- required ---------------------------------------------------------------------------------

    @abstractmethod
    def reshape(self, x: FrameworkTensor, shape: tuple[int, ...]) -> Any:
        """Reshape the last axis of x to the given shape, as a view where possible."""

    @abstractmethod
    def integers(self, x: FrameworkTensor) -> Any:
        """Return x as int64."""

    @abstractmethod
    def side_by_side(self, pieces: Sequence[FrameworkTensor]) -> Any:
        """Join tensors `[B, n]` along their columns, in the widest of their types.

        Half-precision types become float32 if other types are present, so that integers stay exact.
        """

    @abstractmethod
    def fill_forbidden(self, inputs: FrameworkTensor, mask: FrameworkTensor) -> Any:
        """Return inputs with their dtype's lowest finite value where the mask is False."""

    # --- optional ---------------------------------------------------------------------------------

    def array(self, x: FrameworkTensor) -> Any:
        """Return the values of x as an array, or None if they are unknown, as during tracing; a
        framework that omits this operation never knows them.
        """
        return None

    def tensor(self, value: Any, like: FrameworkTensor | None = None) -> Any:
        """Return the value as a tensor, on the device of `like`."""
        raise self._omitted("tensor")

    def booleans(self, value: Tensor | ArrayLike, like: FrameworkTensor) -> Any:
        """Return the value as a boolean tensor, on the device of `like`."""
        raise self._omitted("booleans")

    def constant(self, value: ArrayLike, like: FrameworkTensor) -> Any:
        """Return numbers that never change, such as the bounds of a space, as a tensor on the
        device of `like`; do not write to it.

        A framework may return the same tensor again for equal numbers, so that they are uploaded
        only once. By default, each call makes a new one.
        """
        # A copy, because PyTorch warns of a read-only array, such as a space's bounds.
        return self.tensor(np.array(value), like)

    def copy(self, x: FrameworkTensor) -> Any:
        """Return a tensor with the same numbers that shares no memory with x."""
        raise self._omitted("copy")

    def is_array(self, value: Any) -> bool:
        """Return whether a value is one tensor or array, not a structure."""
        raise self._omitted("is_array")

    def dtype_name(self, x: FrameworkTensor) -> str:
        """Return the dtype of x by its NumPy name, such as `"float32"`."""
        raise self._omitted("dtype_name")

    def is_float(self, x: FrameworkTensor) -> bool:
        """Return whether x has a floating-point dtype."""
        raise self._omitted("is_float")

    def is_half(self, x: FrameworkTensor) -> bool:
        """Return whether x has half precision."""
        raise self._omitted("is_half")

    def cast(self, x: FrameworkTensor, dtype: Any) -> Any:
        """Return x in one of the library's dtypes."""
        raise self._omitted("cast")

    def as_type(self, x: FrameworkTensor, name: str) -> Any:
        """Return x with the dtype of this NumPy name, such as `"int64"`."""
        raise self._omitted("as_type")

    def whole(self, x: FrameworkTensor) -> Any:
        """Return integers with an integer dtype; those stored as floats are rounded to int64."""
        raise self._omitted("whole")

    def finite(self, x: FrameworkTensor) -> Any:
        """Return x with infinities replaced by the nearest finite number of its dtype."""
        raise self._omitted("finite")

    def flat(self, x: FrameworkTensor) -> Any:
        """Return `[B]` or `[B, ...]` as `[B, n]`."""
        raise self._omitted("flat")

    def rows(self, x: FrameworkTensor, shape: tuple[int, ...]) -> Any:
        """Return x as `[N, *shape]`."""
        raise self._omitted("rows")

    def in_rows(self, value: Tensor | ArrayLike, like: FrameworkTensor, width: int) -> Any:
        """Return values as `[B, width]`, B as in `like`; None if there are too many or too few."""
        raise self._omitted("in_rows")

    def columns(self, values: Sequence[FrameworkTensor]) -> Any:
        """Flatten tensors `[B]` or `[B, ...]`, and join them as `side_by_side` does."""
        raise self._omitted("columns")

    def columns_at(self, x: FrameworkTensor, places: Array | Sequence[int]) -> Any:
        """Return the columns of `[B, n]` at these indices, in this order."""
        raise self._omitted("columns_at")

    def entries_at(self, x: FrameworkTensor, places: FrameworkTensor) -> Any:
        """Return the columns of each row of `[B, n]` at its own indices `[B, k]`."""
        raise self._omitted("entries_at")

    def cut(self, x: FrameworkTensor, how: ColumnOrder) -> Sequence[Any]:
        """Put the columns of `[B, n]` into another order, and cut them into pieces. `how` is kept
        for later calls.
        """
        raise self._omitted("cut")

    def each_row(self, x: FrameworkTensor, count: int) -> Any:
        """Repeat each row of `[B, n]`: `[B * count, n]`."""
        raise self._omitted("each_row")

    def all_rows(self, x: FrameworkTensor, like: FrameworkTensor) -> Any:
        """Repeat `[P, n]` for each row of `like`: `[B * P, n]`."""
        raise self._omitted("all_rows")

    def padded(self, x: FrameworkTensor, width: int) -> Any:
        """Pad `[N, n]` with zeros to `[N, width]`."""
        raise self._omitted("padded")

    def taken(self, lengths: FrameworkTensor, places: int) -> Any:
        """Return which places lists of these lengths `[N]` fill: booleans `[N, places]`."""
        raise self._omitted("taken")

    def only(self, taken: FrameworkTensor, x: FrameworkTensor) -> Any:
        """Return x with zeros where `taken` is False; its axes are the first axes of x."""
        raise self._omitted("only")

    def concat(self, values: Sequence[FrameworkTensor], axis: int = 0) -> Any:
        """Join tensors along an axis."""
        raise self._omitted("concat")

    def any(self, x: FrameworkTensor) -> Any:
        """Return which rows of booleans `[B, n]` contain True: `[B]`."""
        raise self._omitted("any")

    def all(self, x: FrameworkTensor) -> Any:
        """Return whether all booleans are True, as a boolean tensor without axes."""
        raise self._omitted("all")

    def all_finite(self, values: Sequence[FrameworkTensor]) -> Any:
        """Return whether all numbers in one tensor or several are finite, as a boolean tensor
        without axes.
        """
        raise self._omitted("all_finite")

    def where(self, condition: FrameworkTensor, x: FrameworkTensor, y: FrameworkTensor) -> Any:
        """Return x where the condition is True, and y elsewhere; shapes are broadcast."""
        raise self._omitted("where")

    def expand(self, x: FrameworkTensor, rows: int) -> Any:
        """Return `[rows, *shape]`, in which each row is x; do not write to it, because the rows may
        share memory.
        """
        raise self._omitted("expand")

    def one_hot(self, x: FrameworkTensor, n: int) -> Any:
        """Return integers `[B]` as float32 one-hot vectors `[B, n]`."""
        raise self._omitted("one_hot")

    def argmax(self, x: FrameworkTensor) -> Any:
        """Return the index of the largest value in each row of `[B, n]`, int64."""
        raise self._omitted("argmax")

    def total(self, values: Sequence[FrameworkTensor]) -> Any:
        """Add tensors of the same shape, in the widest of their types."""
        raise self._omitted("total")

    def sum(self, x: FrameworkTensor, axis: Axes = None, keepdims: bool = False) -> Any:
        """Return the sum of all elements or along an axis."""
        raise self._omitted("sum")

    def mean(self, x: FrameworkTensor, axis: Axes = None, keepdims: bool = False) -> Any:
        """Return the mean of all elements or along an axis."""
        raise self._omitted("mean")

    def std(self, x: FrameworkTensor) -> Any:
        """Return the sample standard deviation of all elements."""
        raise self._omitted("std")

    def exp(self, x: FrameworkTensor) -> Any:
        """Return the exponential of each element."""
        raise self._omitted("exp")

    def minimum(self, x: FrameworkTensor, y: FrameworkTensor) -> Any:
        """Return the element-wise minimum."""
        raise self._omitted("minimum")

    def maximum(self, x: FrameworkTensor, y: FrameworkTensor) -> Any:
        """Return the element-wise maximum."""
        raise self._omitted("maximum")

    def clip(self, x: FrameworkTensor, low: FrameworkTensor, high: FrameworkTensor) -> Any:
        """Clip x to [low, high]."""
        raise self._omitted("clip")

    def scaled(
        self,
        x: FrameworkTensor,
        offset: FrameworkTensor,
        factor: FrameworkTensor,
        low: FrameworkTensor | float | None,
        high: FrameworkTensor | float | None,
    ) -> Any:
        """Return `(x - offset) * factor` between `low` and `high` as float32, computed in the dtype
        of the offset; None means no limits.
        """
        raise self._omitted("scaled")

    def without_gradient(self, x: FrameworkTensor) -> Any:
        """Return x as a constant, detached from the gradient."""
        raise self._omitted("without_gradient")


def tensor_ops(tensorlib: str) -> TensorOps:
    """Return the operations of a tensor library, given as `"numpy"` or a framework's name.

    Raises:
        ModelContractError: The library is unknown.
    """
    if tensorlib == "numpy":
        return NUMPY_OPS
    framework = find_framework(tensorlib)
    if framework is None:
        *names, last_name = map(repr, ("numpy", *frameworks()))
        raise ModelContractError(
            f"tensorlib must be {', '.join(names)} or {last_name}, found {tensorlib!r}."
        )
    ops: TensorOps = framework.load("ops")
    return ops


def ops_of(tensor: Tensor) -> TensorOps:
    """Return the operations for a tensor or array."""
    tensor_class = type(tensor)
    ops = _OPS_BY_CLASS.get(tensor_class)
    if ops is not None:
        return ops
    framework = framework_of(tensor_class)
    if framework is None:
        return NUMPY_OPS  # not cached, because a plugin may still declare the class's framework
    ops = tensor_ops(framework.name)
    _OPS_BY_CLASS[tensor_class] = ops
    return ops


#: Cache of `ops_of`. Not `functools.cache`, which `torch.compile` warns of.
_OPS_BY_CLASS: dict[type[Any], TensorOps] = {}


class NumpyOps(TensorOps[Array]):
    """The operations for arrays."""

    framework = "numpy"

    def reshape(self, x: Array, shape: tuple[int, ...]) -> Array:
        return x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape)

    def integers(self, x: Array) -> Array:
        # Branches of a OneOf that were not taken may have any values.
        with np.errstate(invalid="ignore"):
            return x.astype(np.int64)

    def side_by_side(self, pieces: Sequence[Array]) -> Array:
        return np.concatenate(pieces, axis=1)

    def fill_forbidden(self, inputs: Array, mask: Array) -> Array:
        return np.where(np.asarray(mask, bool), inputs, np.finfo(inputs.dtype).min)

    def array(self, x: Array) -> Array:
        return np.asarray(x)

    def tensor(self, value: ArrayLike, like: Array | None = None) -> Array:
        return np.asarray(value)

    def as_type(self, x: Array, name: str) -> Array:
        return x.astype(name, copy=False)

    def columns_at(self, x: Array, places: Array | Sequence[int]) -> Array:
        return x[:, places]

    def concat(self, values: Sequence[Array], axis: int = 0) -> Array:
        return np.concatenate(values, axis)

    def maximum(self, x: Array, y: Array) -> Array:
        return np.maximum(x, y)

    def any(self, x: Array) -> Array:
        has_true: Array = np.logical_or.reduce(x, axis=1)
        return has_true


NUMPY_OPS: TensorOps = NumpyOps()
