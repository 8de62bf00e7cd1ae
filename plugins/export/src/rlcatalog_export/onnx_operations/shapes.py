"""Operations that rearrange numbers without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcatalog_export.onnx_operations.table import (
    FORMS,
    Recording,
    axis_of,
    dtype_of,
    form_of,
    shape_of,
    value_of,
)

form_of("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")(
    lambda r, out, a, **_: r.name(a)
)
form_of("_to_copy", "_to")(lambda r, out, a, **_: r.name(a, dtype_of(out)))
form_of(
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "flatten",
    "_reshape_alias",
    "unflatten",
)(lambda r, out, a, *_: r.reshaped(r.name(a), shape_of(a), shape_of(out)))


@form_of("index_select")
def _gather(r: Recording, out: Any, a: Any, axis: int, index: Any, operator: str = "Gather") -> str:
    return r.graph.add(operator, r.name(a), r.name(index), axis=axis_of(axis, a.ndim))


@form_of("expand")
def _expand(r: Recording, out: Any, a: Any, *_: Any, **__: Any) -> str:
    if shape_of(a) == shape_of(out):
        return r.name(a, dtype_of(out))
    return r.graph.add("Expand", r.name(a, dtype_of(out)), r.graph.constant(shape_of(out), "int64"))


@form_of("repeat")
def _repeat(r: Recording, out: Any, a: Any, repeats: Sequence[int]) -> str:
    whole = (*[1] * (len(repeats) - a.ndim), *shape_of(a))
    return r.graph.add(
        "Tile", r.reshaped(r.name(a), shape_of(a), whole), r.graph.constant(list(repeats), "int64")
    )


@form_of("transpose")
def _transpose(r: Recording, out: Any, a: Any, first: int, second: int) -> str:
    dims = list(range(a.ndim))
    dims[first], dims[second] = dims[second], dims[first]
    return _permute(r, out, a, dims)


@form_of("permute")
def _permute(r: Recording, out: Any, a: Any, dims: Sequence[int]) -> str:
    perm = [axis_of(axis, a.ndim) for axis in dims]
    return (
        r.name(a) if perm == list(range(a.ndim)) else r.graph.add("Transpose", r.name(a), perm=perm)
    )


@form_of("select")
def _select(r: Recording, out: Any, a: Any, axis: int, index: int) -> str:
    axis = axis_of(axis, a.ndim)
    if a.shape[axis] == 1:
        return r.reshaped(r.name(a), shape_of(a), shape_of(out))
    return r.graph.add(
        "Gather", r.name(a), r.graph.constant(axis_of(index, a.shape[axis]), "int64"), axis=axis
    )


@form_of("slice")
def _slice(
    r: Recording, out: Any, a: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    axis = axis_of(axis, a.ndim)
    size = int(a.shape[axis])
    start, stop, step = slice(start, end, step).indices(size)
    if (start, stop, step) == (0, size, 1):
        return r.name(a)
    bounds = [r.graph.constant([value], "int64") for value in (start, stop, axis, step)]
    return r.graph.add("Slice", r.name(a), *bounds)


@form_of("split_with_sizes", "split", "chunk", "unsafe_split")
def _split(r: Recording, out: Any, a: Any, sizes_or_count: Any, axis: int = 0) -> list[str]:
    axis = axis_of(axis, a.ndim)
    lengths = [int(part.shape[axis]) for part in out]
    if len(lengths) == 1:
        return [r.name(a)]
    return r.graph.several(
        len(lengths), "Split", r.name(a), r.graph.constant(lengths, "int64"), axis=axis
    )


@form_of("cat")
def _cat(r: Recording, out: Any, parts: Sequence[Any], axis: int = 0) -> str:
    named = [r.name(part, dtype_of(out)) for part in parts if part.shape != (0,)]
    return (
        named[0] if len(named) == 1 else r.graph.add("Concat", *named, axis=axis_of(axis, out.ndim))
    )


@form_of("stack")
def _stack(r: Recording, out: Any, parts: Sequence[Any], axis: int = 0) -> str:
    axis = axis_of(axis, out.ndim)
    shape = (*shape_of(out)[:axis], 1, *shape_of(out)[axis + 1 :])
    named = [r.reshaped(r.name(part, dtype_of(out)), shape_of(part), shape) for part in parts]
    return named[0] if len(named) == 1 else r.graph.add("Concat", *named, axis=axis)


@form_of("constant_pad_nd")
def _pad(r: Recording, out: Any, a: Any, pads: Sequence[int], value: Any = 0) -> str:
    before, after = [0] * a.ndim, [0] * a.ndim
    for i in range(len(pads) // 2):
        before[a.ndim - 1 - i], after[a.ndim - 1 - i] = int(pads[2 * i]), int(pads[2 * i + 1])
    if not any(before + after):
        return r.name(a)
    dtype = dtype_of(out)
    return r.graph.add(
        "Pad", r.name(a), r.graph.constant(before + after, "int64"), r.name(value, dtype)
    )


@form_of("index")
def _index(r: Recording, out: Any, a: Any, indices: Sequence[Any]) -> str:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or dtype_of(given[0][1]) == "bool":
        raise r.refused("indexing with several tensors, or with booleans")
    axis, index = given[0]
    places = value_of(r, index, "int64")
    places = places.to("Less", 0).to("Where", places + int(a.shape[axis]), places)
    return r.graph.add("Gather", r.name(a), places.name, axis=axis)


FORMS |= {
    "copy": lambda r, out, a, source, non_blocking=False: _expand(r, out, source),
    "embedding": lambda r, out, weight, places, *_, **__: _gather(r, out, weight, 0, places),
    "gather": lambda r, out, a, axis, index, **_: _gather(r, out, a, axis, index, "GatherElements"),
    "t": lambda r, out, a: r.turned(a) or _permute(r, out, a, range(a.ndim)[::-1]),
    "unbind": lambda r, out, a, axis=0: [
        _select(r, part, a, axis, i) for i, part in enumerate(out)
    ],
}
