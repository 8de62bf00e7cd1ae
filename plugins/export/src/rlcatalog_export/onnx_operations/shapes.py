"""Operations that rearrange numbers without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog_export.onnx_operations.graph_values import (
    Recording,
    axis_of,
    dtype_of,
    form_of,
    shape_of,
    value_of,
)

if TYPE_CHECKING:
    from torch import Tensor


@form_of("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")
def _record_same(recording: Recording, result: Tensor, a: Tensor, **_: Any) -> str:
    return recording.name(a)


@form_of("_to_copy", "_to")
def _record_cast(recording: Recording, result: Tensor, a: Tensor, **_: Any) -> str:
    return recording.name(a, dtype_of(result))


@form_of(
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "flatten",
    "_reshape_alias",
    "unflatten",
)
def _record_reshape(recording: Recording, result: Tensor, a: Tensor, *_: Any) -> str:
    return recording.reshaped(recording.name(a), shape_of(a), shape_of(result))


@form_of("expand")
def _record_expand(recording: Recording, result: Tensor, a: Tensor, *_: Any, **__: Any) -> str:
    name = recording.name(a, dtype_of(result))
    if shape_of(a) == shape_of(result):
        return name
    shape = recording.graph.constant(shape_of(result), "int64")
    return recording.graph.add("Expand", name, shape)


@form_of("copy")
def _record_copy(
    recording: Recording,
    result: Tensor,
    a: Tensor,  # what the source replaces
    source: Tensor,
    non_blocking: bool = False,
) -> str:
    return _record_expand(recording, result, source)


@form_of("repeat")
def _record_repeat(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    repeats: Sequence[int],
) -> str:
    new_axes = [1] * (len(repeats) - a.ndim)
    name = recording.reshaped(recording.name(a), shape_of(a), (*new_axes, *shape_of(a)))
    return recording.graph.add("Tile", name, recording.graph.constant(list(repeats), "int64"))


# --- order of axes --------------------------------------------------------------------------------


@form_of("permute")
def _record_permute(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    dims: Sequence[int],
) -> str:
    order = [axis_of(axis, a.ndim) for axis in dims]
    if order == list(range(a.ndim)):
        return recording.name(a)
    return recording.graph.add("Transpose", recording.name(a), perm=order)


@form_of("transpose")
def _record_transpose(
    recording: Recording, result: Tensor, a: Tensor, first: int, second: int
) -> str:
    order = list(range(a.ndim))
    order[first], order[second] = order[second], order[first]
    return _record_permute(recording, result, a, order)


@form_of("t")
def _record_matrix_transpose(recording: Recording, result: Tensor, a: Tensor) -> str:
    turned_weight = recording.turned(a)
    if turned_weight is not None:
        return turned_weight
    return _record_permute(recording, result, a, range(a.ndim)[::-1])


# --- parts of a tensor ----------------------------------------------------------------------------


def _gather(operator: str, recording: Recording, a: Tensor, axis: int, index: Tensor) -> str:
    place = axis_of(axis, a.ndim)
    return recording.graph.add(operator, recording.name(a), recording.name(index), axis=place)


@form_of("index_select")
def _record_index_select(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axis: int,
    index: Tensor,
) -> str:
    return _gather("Gather", recording, a, axis, index)


@form_of("embedding")
def _record_embedding(
    recording: Recording,
    result: Tensor,
    weight: Tensor,
    ids: Tensor,
    *_: Any,
    **__: Any,
) -> str:
    return _gather("Gather", recording, weight, 0, ids)


@form_of("gather")
def _record_gather(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axis: int,
    index: Tensor,
    **_: Any,
) -> str:
    return _gather("GatherElements", recording, a, axis, index)


@form_of("select")
def _record_select(recording: Recording, result: Tensor, a: Tensor, axis: int, index: int) -> str:
    axis = axis_of(axis, a.ndim)
    length = a.shape[axis]
    if length == 1:
        return recording.reshaped(recording.name(a), shape_of(a), shape_of(result))
    place = recording.graph.constant(axis_of(index, length), "int64")
    return recording.graph.add("Gather", recording.name(a), place, axis=axis)


@form_of("unbind")
def _record_unbind(
    recording: Recording, result: Sequence[Tensor], a: Tensor, axis: int = 0
) -> list[str]:
    return [_record_select(recording, part, a, axis, i) for i, part in enumerate(result)]


@form_of("slice")
def _record_slice(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> str:
    axis = axis_of(axis, a.ndim)
    size = int(a.shape[axis])
    first, stop, stride = slice(start, end, step).indices(size)
    if (first, stop, stride) == (0, size, 1):
        return recording.name(a)
    bounds = [recording.graph.constant([value], "int64") for value in (first, stop, axis, stride)]
    return recording.graph.add("Slice", recording.name(a), *bounds)


@form_of("index")
def _record_index(
    recording: Recording,
    result: Tensor,
    a: Tensor,
    indices: Sequence[Tensor | None],
) -> str:
    """Add `a[..., index, ...]` with one tensor of integers."""
    indexed_axes = [axis for axis, index in enumerate(indices) if index is not None]
    index = None
    if len(indexed_axes) == 1:
        index = indices[indexed_axes[0]]
    if index is None or dtype_of(index) == "bool":
        raise recording.refused("indexing with several tensors, or with booleans")
    [axis] = indexed_axes
    places = value_of(recording, index, "int64")
    # A negative index counts from the end.
    is_from_end = places.to("Less", 0)
    places = is_from_end.to("Where", places + int(a.shape[axis]), places)
    return recording.graph.add("Gather", recording.name(a), places.name, axis=axis)


# --- splitting and joining ------------------------------------------------------------------------


@form_of("split_with_sizes", "split", "chunk", "unsafe_split")
def _record_split(
    recording: Recording,
    result: Sequence[Tensor],
    a: Tensor,
    sizes_or_count: Any,  # the result's shapes say it
    axis: int = 0,
) -> list[str]:
    axis = axis_of(axis, a.ndim)
    lengths = [int(part.shape[axis]) for part in result]
    if len(lengths) == 1:
        return [recording.name(a)]
    sizes = recording.graph.constant(lengths, "int64")
    return recording.graph.several(len(lengths), "Split", recording.name(a), sizes, axis=axis)


@form_of("cat")
def _record_cat(
    recording: Recording, result: Tensor, parts: Sequence[Tensor], axis: int = 0
) -> str:
    # PyTorch ignores empty vectors, whatever the other shapes are.
    names = [recording.name(part, dtype_of(result)) for part in parts if part.shape != (0,)]
    if len(names) == 1:
        return names[0]
    return recording.graph.add("Concat", *names, axis=axis_of(axis, result.ndim))


@form_of("stack")
def _record_stack(
    recording: Recording, result: Tensor, parts: Sequence[Tensor], axis: int = 0
) -> str:
    """Add a stack: each part gets the new axis, and the parts are concatenated."""
    axis = axis_of(axis, result.ndim)
    # A part's shape with the new axis.
    shape = (*shape_of(result)[:axis], 1, *shape_of(result)[axis + 1 :])
    names = []
    for part in parts:
        name = recording.name(part, dtype_of(result))
        names.append(recording.reshaped(name, shape_of(part), shape))
    if len(names) == 1:
        return names[0]
    return recording.graph.add("Concat", *names, axis=axis)


@form_of("constant_pad_nd")
def _record_pad(
    recording: Recording, result: Tensor, a: Tensor, pads: Sequence[int], value: float = 0
) -> str:
    """Add padding with a constant."""
    before = [0] * a.ndim
    after = [0] * a.ndim
    # PyTorch lists pairs (before, after) from the last axis to the first.
    for i in range(len(pads) // 2):
        axis = a.ndim - 1 - i
        before[axis] = int(pads[2 * i])
        after[axis] = int(pads[2 * i + 1])
    if not any(before + after):
        return recording.name(a)
    widths = recording.graph.constant(before + after, "int64")
    filling = recording.name(value, dtype_of(result))
    return recording.graph.add("Pad", recording.name(a), widths, filling)
