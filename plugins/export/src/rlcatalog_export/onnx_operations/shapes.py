"""Forms of what leaves numbers as they are, and puts them elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog_export.onnx_operations.table import axis_of, dtype_of, form_of, shape_of

if TYPE_CHECKING:
    from rlcatalog_export.torch.recorder import Recording


@form_of("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "positive")
def _same(r: Recording, out: Any, a: Any, **_: Any) -> str:
    return r.name(a)


@form_of("_to_copy", "_to")
def _to_copy(r: Recording, out: Any, a: Any, **_: Any) -> str:
    return r.name(a, dtype_of(out))


@form_of("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "_reshape_alias", "unflatten")
def _view(r: Recording, out: Any, a: Any, *_: Any) -> str:
    return r.reshaped(r.name(a), shape_of(a), shape_of(out))


@form_of("expand")
def _expand(r: Recording, out: Any, a: Any, *_: Any, **__: Any) -> str:
    if shape_of(a) == shape_of(out):
        return r.name(a, dtype_of(out))
    return r.graph.add("Expand", r.name(a, dtype_of(out)), r.graph.constant(shape_of(out), "int64"))


@form_of("copy")
def _copy(r: Recording, out: Any, a: Any, source: Any, non_blocking: bool = False) -> str:
    return _expand(r, out, source)


@form_of("searchsorted")
def _searchsorted(r: Recording, out: Any, a: Any, values: Any, *, right: bool = False, out_int32: bool = False) -> str:
    ordered = r.name(a)
    if a.ndim > 1:  # a row of sorted numbers for each row of values
        ordered = r.reshaped(ordered, shape_of(a), (*shape_of(a)[:-1], 1, a.shape[-1]))
    wide = r.reshaped(r.name(values), shape_of(values), (*shape_of(values), 1))
    before = r.cast(r.graph.add("LessOrEqual" if right else "Less", ordered, wide), "bool", "int64")
    count = r.graph.add("ReduceSum", before, r.graph.constant([values.ndim], "int64"), keepdims=0)
    return r.cast(count, "int64", dtype_of(out))


@form_of("repeat")
def _repeat(r: Recording, out: Any, a: Any, repeats: Sequence[int]) -> str:
    whole = (*[1] * (len(repeats) - a.ndim), *shape_of(a))
    return r.graph.add("Tile", r.reshaped(r.name(a), shape_of(a), whole), r.graph.constant(list(repeats), "int64"))


@form_of("t")
def _t(r: Recording, out: Any, a: Any) -> str:
    if a.ndim < 2:
        return r.name(a)
    return r.turned(a) or r.graph.add("Transpose", r.name(a), perm=[1, 0])


@form_of("transpose")
def _transpose(r: Recording, out: Any, a: Any, first: int, second: int) -> str:
    dims = list(range(a.ndim))
    dims[first], dims[second] = dims[second], dims[first]
    return _permute(r, out, a, dims)


@form_of("permute")
def _permute(r: Recording, out: Any, a: Any, dims: Sequence[int]) -> str:
    perm = [axis_of(axis, a.ndim) for axis in dims]
    return r.name(a) if perm == list(range(a.ndim)) else r.graph.add("Transpose", r.name(a), perm=perm)


@form_of("select")
def _select(r: Recording, out: Any, a: Any, axis: int, index: int) -> str:
    axis = axis_of(axis, a.ndim)
    if a.shape[axis] == 1:
        return r.reshaped(r.name(a), shape_of(a), shape_of(out))
    return r.graph.add("Gather", r.name(a), r.graph.constant(axis_of(index, a.shape[axis]), "int64"), axis=axis)


@form_of("slice")
def _slice(r: Recording, out: Any, a: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
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
    return r.graph.several(len(lengths), "Split", r.name(a), r.graph.constant(lengths, "int64"), axis=axis)


@form_of("unbind")
def _unbind(r: Recording, out: Any, a: Any, axis: int = 0) -> list[str]:
    return [_select(r, part, a, axis, i) for i, part in enumerate(out)]


@form_of("cat")
def _cat(r: Recording, out: Any, parts: Sequence[Any], axis: int = 0) -> str:
    named = [r.name(part, dtype_of(out)) for part in parts if part.shape != (0,)]
    return named[0] if len(named) == 1 else r.graph.add("Concat", *named, axis=axis_of(axis, out.ndim))


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
    return r.graph.add("Pad", r.name(a), r.graph.constant(before + after, "int64"), r.name(value, dtype))


@form_of("index_select")
def _index_select(r: Recording, out: Any, a: Any, axis: int, index: Any) -> str:
    return r.graph.add("Gather", r.name(a), r.name(index), axis=axis_of(axis, a.ndim))


@form_of("gather")
def _gather(r: Recording, out: Any, a: Any, axis: int, index: Any, **_: Any) -> str:
    return r.graph.add("GatherElements", r.name(a), r.name(index), axis=axis_of(axis, a.ndim))


@form_of("embedding")
def _embedding(r: Recording, out: Any, weight: Any, indices: Any, *_: Any, **__: Any) -> str:
    return r.graph.add("Gather", r.name(weight), r.name(indices), axis=0)


@form_of("index")
def _index(r: Recording, out: Any, a: Any, indices: Sequence[Any]) -> str:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or dtype_of(given[0][1]) == "bool":
        raise r.refused("indexing with several tensors, or with booleans")
    axis, index = given[0]
    size = r.graph.constant(int(a.shape[axis]), "int64")
    places = r.name(index, "int64")
    places = r.graph.add(
        "Where", r.graph.add("Less", places, r.name(0, "int64")), r.graph.add("Add", places, size), places
    )
    return r.graph.add("Gather", r.name(a), places, axis=axis)
