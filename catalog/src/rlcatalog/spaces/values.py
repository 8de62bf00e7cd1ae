"""Padded tensors for observations of varying size, with masks or lengths.

Each kind is a dataclass of tensors; plugins can define more. A structure consists of dicts, tuples
and dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from rlcatalog.frameworks.ops import Array, Tensor, TensorTree


@dataclass(frozen=True, eq=False)
class RepeatedValues:
    """A batch of lists, padded to the same length (Repeated and Sequence spaces).

    A Repeated space nested in another keeps its lengths per outer item: the values of
    `Repeated(Repeated(Box(K), N), M)` are the RepeatedValues of tensors `[B, M, N, K]` with lengths
    `[B, M]`, in addition to the outer lengths `[B]`.

    Attributes:
        values: Tensor `[B, max_len, ...]`, or a structure of tensors; zeros beyond each length.
        lengths: Number of items, a float tensor `[B]`.
        max_len: Maximum number of items.
    """

    values: Any
    lengths: Any
    max_len: int

    def unbatch_all(self) -> list[Any]:
        """Return B lists of items without padding, using Python loops.

        Raises:
            ValueError: The batch size is unknown (inside a `tf.function`).
        """
        sizes = tuple(self.lengths.shape)
        if any(size is None for size in sizes):
            raise ValueError(
                f"unbatch_all() needs a known batch size, found lengths of shape {sizes}."
            )
        lists: list[Any] = _unbatch(self)
        return lists

    def unbatch_repeat_dim(self) -> Any:
        """Return a list of `max_len` padded tensors `[B, ...]`, one per position; in a structure,
        one list per leaf.
        """
        return _split(self.values, len(self.lengths.shape), self.max_len)


@dataclass(frozen=True, eq=False)
class OneOfValues:
    """A batch of values, each from one of several spaces.

    Attributes:
        tag: One-hot encoding of the branch that each value comes from, `[B, branches]`.
        branches: The values of each branch, which are valid only in rows with that branch's tag.
    """

    tag: Any
    branches: tuple[Any, ...]


#: A structure of tensors as models see it; a plugin may define further dataclasses of tensors.
ModelValues: TypeAlias = "TensorTree | RepeatedValues | OneOfValues"
_Leaf = TypeVar("_Leaf")


def map_tensors(values: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to each array or tensor in a structure; other leaves stay unchanged."""

    def change_leaf(value: Any) -> Any:
        # Arrays and the tensors of every framework have a shape; a number or a name has none.
        return change(value) if hasattr(value, "shape") else value

    return _map(values, change_leaf, lambda value: map_tensors(value, change))


def first_tensor(values: ModelValues) -> Any:
    """Return the first array or tensor in a structure; its length is the batch size."""
    tensors: list[Any] = []
    map_tensors(values, tensors.append)
    return tensors[0]


def _unbatch(values: ModelValues) -> Any:
    """Return a structure in which each RepeatedValues has become a (nested) list of items."""
    if not isinstance(values, RepeatedValues):
        return _map(values, _unchanged, _unbatch)
    is_batch = len(values.lengths.shape) > 0  # otherwise a single list, with one length
    if is_batch:
        count = values.lengths.shape[0]
        items = values
    else:
        count = _length_as_integer(values)
        items = values.values
    return [_unbatch(map_tensors(items, itemgetter(i))) for i in range(count)]


def _length_as_integer(values: RepeatedValues) -> int:
    """Return the length of one list, between 0 and `max_len`: a branch of a OneOf that was not
    taken can hold any number.
    """
    try:
        length = float(values.lengths)
    except TypeError as error:
        raise ValueError(
            "unbatch_all() needs values: inside a tf.function, the lengths are unknown."
        ) from error
    if not length > 0:  # also for NaN
        return 0
    return int(min(length, values.max_len))


def _split(values: ModelValues, axis: int, count: int) -> Any:
    """Return a list of `count` tensors along an axis, in a structure a list for each leaf."""
    if isinstance(values, RepeatedValues):
        inner = _split(values.values, axis, count)
        lengths = _split(values.lengths, axis, count)
        return [RepeatedValues(_pick(inner, i), lengths[i], values.max_len) for i in range(count)]
    axes_before = (slice(None),) * axis

    def split_leaf(tensor: Tensor) -> list[Any]:
        return [tensor[(*axes_before, i)] for i in range(count)]

    return _map(values, split_leaf, lambda inner: _split(inner, axis, count))


def _pick(lists: Any, i: int) -> Any:
    """Return a structure with the element at a position of each leaf's list."""
    if isinstance(lists, list):
        return lists[i]
    return _map(lists, _unchanged, lambda inner: _pick(inner, i))


def _unchanged(leaf: _Leaf) -> _Leaf:
    return leaf


def _map(values: ModelValues, leaf: Callable[[Any], Any], child: Callable[[Any], Any]) -> Any:
    """Return a structure with `child` applied to each of its children; `leaf(values)` if `values`
    is a tensor.
    """
    if isinstance(values, Mapping):
        return {key: child(value) for key, value in values.items()}
    if isinstance(values, list):
        return [child(value) for value in values]
    if isinstance(values, tuple):
        return tuple(child(value) for value in values)
    if is_dataclass(values) and not isinstance(values, type):
        changes = {}
        for field in fields(values):
            part = getattr(values, field.name)  # a plugin's dataclass may have any fields
            if part is not None:
                changes[field.name] = child(part)
        return replace(values, **changes)
    return leaf(values)


class TupleActions(NamedTuple):
    """Tuple actions, as one batch per component.

    Attributes:
        batches: Tensors `[B]` or `[B, n]`, one per component.
    """

    batches: Sequence[Any]


def one_hot(
    x: np.typing.ArrayLike, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0
) -> Array:
    """Encode integers as one-hot vectors.

    Args:
        x: Integers (or floats with integer values) of any shape.
        depth: Number of values; 0 means the largest value plus one.
        on_value: Value at the index.
        off_value: Value elsewhere.

    Returns:
        float32 array `[*x.shape, depth]`.

    Raises:
        ValueError: A value lies outside `[0, depth)`.

    Example:
        >>> one_hot([0, 2], depth=3)
        array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)
    """
    index = np.asarray(x).astype(np.int64)
    if not depth:
        depth = int(index.max()) + 1
    if index.size and (index.min() < 0 or index.max() >= depth):
        raise ValueError(
            f"one_hot: values must lie in [0, {depth}), found {index.min()} to {index.max()}."
        )
    vectors = np.full((*index.shape, depth), off_value, np.float32)
    np.put_along_axis(vectors, index[..., None], on_value, axis=-1)
    return vectors


def parts_of(sample: TensorTree | TupleActions) -> list[Any] | None:
    """Return a structured sample's tensors in order, or None if it is a single tensor."""
    if isinstance(sample, TupleActions):
        parts = list(sample.batches)
    elif isinstance(sample, Mapping):
        parts = list(sample.values())
    elif isinstance(sample, list | tuple):
        parts = list(sample)
    else:
        return None
    tensors: list[Any] = []
    for part in parts:
        inner_tensors = parts_of(part)
        if inner_tensors is None:
            tensors.append(part)
        else:
            tensors.extend(inner_tensors)
    return tensors
