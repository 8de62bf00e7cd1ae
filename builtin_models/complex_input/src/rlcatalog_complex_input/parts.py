"""Parts of an observation: their paths, their tensors and their concatenated features.

This code is the same for all frameworks. N is the number of rows (inside lists, of rows times
places); M is the number of places in a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import Array, Preprocessor
from rlcatalog.spaces import OneOfValues, RepeatedValues


@dataclass(frozen=True, eq=False)
class OneHots:
    """One-hot encoder for integers.

    Attributes:
        entries: The entry of the observation that each column encodes, `[n]`.
        values: The value that sets each column to 1, `[n]`.
    """

    entries: Array
    values: Array

    def of(self, x: Any, ops: TensorOps) -> Any:
        """Return integers `[N, *shape]` as one-hot vectors `[N, n]`."""
        entries = ops.columns_at(ops.flat(ops.integers(x)), self.entries)
        return ops.as_type(entries == ops.tensor(self.values, entries), "float32")


@dataclass(frozen=True, eq=False)
class ObservationPart:
    """Part of the observation that has its own network.

    Attributes:
        index: Index of its net.
        path: Path of the part: `obs['camera']`; items of a list as `obs['units'][:]`.
        steps: Keys and positions that lead to the part, starting from the observation or from the
            item of its list.
        depth: Number of nested lists around the part.
        shape: Shape of the net's input, without the axes for batch and places.
        hot: One-hot encoder for the part's integers (Discrete and MultiDiscrete), or None.
        integers: Shape of the part's integers (Discrete and MultiDiscrete).
        columns: Columns of the part in the encoded observation or item, if its net reads them
            (Text, Graph and OneOf).
        codec: Preprocessor of the part (Text, Graph and OneOf).
    """

    index: int
    path: str
    steps: tuple[Any, ...]
    depth: int
    shape: tuple[int, ...]
    hot: OneHots | None = None
    integers: tuple[int, ...] = ()
    columns: slice | None = None
    codec: Preprocessor | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """List of variable length, whose items' features are averaged and whose length is a feature.

    Attributes:
        index: Index of the list.
        path: Its path.
        steps: As in `ObservationPart`.
        max_len: Number of places.
        parts: Parts of each item; empty for items without values.
        columns: The items' columns in the surrounding observation if some part of an item is read
            from there; otherwise None.
        item_size: Width of one encoded item.
    """

    index: int
    path: str
    steps: tuple[Any, ...]
    max_len: int
    parts: tuple[ObservationPart | Items, ...]
    columns: slice | None
    item_size: int


class Inputs:
    """The networks' inputs for one batch.

    Attributes:
        tensors: The input of each net, `[N, *shape]`, where N is the number of rows (inside lists,
            of rows times places).
        taken: Boolean arrays `[N, M]` that mark the filled places of each list.

    Args:
        dtype: The dtype of the model's weights.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.tensors: list[Any] = []
        self.taken: list[Any] = []


def read(
    parts: Sequence[ObservationPart | Items],
    obs: Any,
    flat: Any,
    ops: TensorOps,
    inputs: Inputs,
    around: Any = None,
) -> None:
    """Collect every net's input.

    Args:
        parts: The parts of the observation.
        obs: Observations as models see them: a tensor, or a structure of tensors.
        flat: The encoded observations, `[B, size]`; None if the observations are structures.
        ops: The framework's tensor operations.
        inputs: List that collects the results.
        around: Boolean array `[N]` that marks the filled places of the surrounding list; None
            outside lists.
    """
    for part in parts:
        x = obs
        for step in part.steps:
            x = x[step]
        if isinstance(part, Items):
            taken = ops.taken(ops.rows(x.lengths, ()), part.max_len)
            taken = taken if around is None else taken & around[:, None]
            inputs.taken.append(taken)
            items = None
            if flat is not None and part.columns is not None:
                items = ops.rows(flat[:, part.columns], (part.item_size,))
            read(part.parts, x.values, items, ops, inputs, ops.rows(taken, ()))
            continue
        if part.codec is not None:
            x = pack(x, part.codec, ops, inputs.dtype) if flat is None else flat[:, part.columns]
        elif part.hot is not None and _are_integers(x, part, ops):
            x = part.hot.of(ops.rows(x, part.integers), ops)
        elif part.depth:
            x = ops.rows(x, part.shape)
        # Empty places do not contain observations; even a NaN there must not reach a gradient.
        inputs.tensors.append(x if around is None else ops.only(around, x))


def _are_integers(x: Any, part: ObservationPart, ops: TensorOps) -> bool:
    """Return whether a Discrete or MultiDiscrete consists of integers rather than
    one-hot vectors.
    """
    shape, axes = x.shape, part.depth + 1
    if len(shape) - axes != len(part.integers):
        return False
    ends = tuple(shape[axes:])
    return ends == part.integers and (ends != part.shape or not ops.is_float(x))


def features(
    parts: Sequence[ObservationPart | Items],
    inputs: Inputs,
    nets: Sequence[Any],
    ops: TensorOps,
    is_training: Any = False,
) -> Any:
    """Return the concatenated features of all parts, `[N, F]`.

    Args:
        parts: The parts of the observation.
        inputs: The result of `read`.
        nets: The net for each part.
        ops: The framework's tensor operations.
        is_training: Passed to the nets.
    """
    columns = []
    for part in parts:
        if isinstance(part, Items):
            taken = inputs.taken[part.index]
            if part.parts:
                columns.append(
                    _mean(features(part.parts, inputs, nets, ops, is_training), taken, ops)
                )
            columns.append(ops.mean(ops.cast(taken, inputs.dtype), axis=1, keepdims=True))
        else:
            columns.append(
                nets[part.index]({"obs": inputs.tensors[part.index], "is_training": is_training})[0]
            )
    return columns[0] if len(columns) == 1 else ops.side_by_side(columns)


def _mean(features: Any, taken: Any, ops: TensorOps) -> Any:
    """Average features `[N * M, F]` over the filled places, `[N, F]`; 0 if there are none."""
    places = taken.shape[1]
    kept = ops.rows(ops.only(ops.rows(taken, ()), features), (places, features.shape[1]))
    count = ops.sum(ops.cast(taken, features.dtype), axis=1, keepdims=True)
    return ops.sum(kept, axis=1) / ops.clip(count, 1, max(places, 1))


def width(parts: Sequence[ObservationPart | Items], nets: Sequence[Any]) -> int:
    """Return the width of the concatenated features, from the widths of all `nets`."""
    return sum(
        1 + width(part.parts, nets)
        if isinstance(part, Items)
        else int(nets[part.index].num_outputs)
        for part in parts
    )


def pack(values: Any, codec: Preprocessor, ops: TensorOps, dtype: Any) -> Any:
    """Encode results of `codec.restore` as `[N, size]`, for observations that are structures.

    Args:
        values: A tensor, or a structure of tensors; axes in front of the codec's own axes count as
            rows.
        codec: The preprocessor, whose size must not be 0.
        ops: The framework's tensor operations.
        dtype: The dtype of the encoded values.
    """
    if not codec.structured:
        return ops.cast(ops.rows(values, (codec.size,)), dtype)
    if isinstance(values, Mapping):
        values = tuple(values[key] for key in codec.info.keys)
    if isinstance(values, tuple):
        pairs = zip(values, codec.children, strict=True)
        return ops.side_by_side(
            [pack(value, child, ops, dtype) for value, child in pairs if child.size]
        )
    if isinstance(values, RepeatedValues):
        (child,), lengths = codec.children, ops.cast(ops.rows(values.lengths, (1,)), dtype)
        if codec.size == 1:
            return lengths
        return ops.side_by_side(
            [lengths, ops.rows(pack(values.values, child, ops, dtype), (codec.size - 1,))]
        )
    if isinstance(values, OneOfValues):  # in each row, the values of the tagged branch
        tag = ops.cast(ops.rows(values.tag, (len(codec.children),)), dtype)
        encoded = ops.padded(tag, codec.size)
        for i, (branch, child) in enumerate(zip(values.branches, codec.children, strict=True)):
            if child.size:
                one = ops.only(tag[:, i] > 0.5, pack(branch, child, ops, dtype))
                # after the columns of the tag
                encoded = encoded + ops.padded(ops.side_by_side([tag * 0.0, one]), codec.size)
        return encoded
    # Text and Graph: a leaf of the plan for each tensor, called `<path>.<name>`.
    leaves = [(leaf.path.rpartition(".")[2], leaf.stop - leaf.start) for leaf in codec.leaves()]
    columns = [
        ops.cast(ops.rows(getattr(values, name), (size,)), dtype) for name, size in leaves if size
    ]
    return ops.side_by_side(columns)
