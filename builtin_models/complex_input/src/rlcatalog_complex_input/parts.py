"""Parts of an observation: their paths, their tensors and their concatenated features.

This code is the same for all frameworks. N is the number of rows (inside lists, of rows times
places); M is the number of places in a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.models import ModelV2
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

    def of(self, integers: Tensor, ops: TensorOps) -> Any:
        """Return integers `[N, *shape]` as one-hot vectors `[N, n]`."""
        entries = ops.columns_at(ops.flat(ops.integers(integers)), self.entries)
        return ops.as_type(entries == ops.constant(self.values, entries), "float32")


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

    Args:
        ops: The framework's tensor operations.
        dtype: The dtype of the model's weights.

    Attributes:
        tensors: The input of each net, `[N, *shape]`, by the index of its part.
        filled: Boolean arrays `[N, M]` that mark the filled places of each list, by its index.
    """

    def __init__(self, ops: TensorOps, dtype: Any) -> None:
        self.ops = ops
        self.dtype = dtype
        self.tensors: list[Any] = []
        self.filled: list[Any] = []

    def read(
        self,
        parts: Sequence[ObservationPart | Items],
        obs: Any,
        encoded: Tensor | None,
        filled: Tensor | None = None,
    ) -> None:
        """Collect every net's input.

        Args:
            parts: The parts of the observation, in the order of their indices.
            obs: Observations as models see them: a tensor, or a structure of tensors.
            encoded: The encoded observations, `[B, size]`; None if the observations are structures.
            filled: Boolean array `[N]` that marks the filled places of the surrounding list; None
                outside lists.
        """
        for part in parts:
            # Follow the keys that lead to the part.
            values = obs
            for key in part.steps:
                values = values[key]
            if isinstance(part, Items):
                self._read_items(part, values, encoded, filled)
                continue
            tensor = self._net_input(part, values, encoded)
            if filled is not None:
                # Empty places do not contain observations; even a NaN there must not reach a
                # gradient.
                tensor = self.ops.only(filled, tensor)
            self.tensors.append(tensor)

    def _read_items(
        self, items: Items, values: RepeatedValues, encoded: Tensor | None, filled: Tensor | None
    ) -> None:
        """Collect the inputs of the nets for a list's items; see `read`."""
        ops = self.ops
        # Which places of each list hold an item, `[N, M]`.
        lengths = ops.rows(values.lengths, ())
        places = ops.taken(lengths, items.max_len)
        if filled is not None:
            places = places & filled[:, None]
        self.filled.append(places)
        encoded_items = None
        if encoded is not None and items.columns is not None:
            encoded_items = ops.rows(encoded[:, items.columns], (items.item_size,))
        self.read(items.parts, values.values, encoded_items, ops.rows(places, ()))

    def _net_input(self, part: ObservationPart, values: Any, encoded: Tensor | None) -> Any:
        """Return the input of a part's net, `[N, *shape]`."""
        ops = self.ops
        if part.codec is not None:
            # The net reads the part as columns: those of the encoded observation, if there is one.
            if encoded is None:
                return pack(values, part.codec, ops, self.dtype)
            return encoded[:, part.columns]
        if part.hot is not None and _are_integers(values, part, ops):
            # The net sees a Discrete's or MultiDiscrete's integers as one-hots.
            return part.hot.of(ops.rows(values, part.integers), ops)
        if part.depth:
            # Inside a list, each place is a row.
            return ops.rows(values, part.shape)
        return values

    def features(
        self,
        parts: Sequence[ObservationPart | Items],
        nets: Sequence[ModelV2],
        is_training: bool | Tensor,
    ) -> Any:
        """Return the concatenated features of all parts, `[N, F]`; call `read` before.

        Args:
            parts: The parts of the observation.
            nets: All nets, by the index of their part.
            is_training: Passed to the nets.
        """
        ops = self.ops
        columns = []
        for part in parts:
            if isinstance(part, Items):
                filled = self.filled[part.index]
                if part.parts:
                    of_items = self.features(part.parts, nets, is_training)
                    columns.append(_mean(of_items, filled, ops))
                # The share of filled places stands for the list's length.
                length = ops.mean(ops.cast(filled, self.dtype), axis=1, keepdims=True)
                columns.append(length)
            else:
                net = nets[part.index]
                output, _ = net({"obs": self.tensors[part.index], "is_training": is_training})
                columns.append(output)
        if len(columns) == 1:
            return columns[0]
        return ops.side_by_side(columns)


def _are_integers(values: Tensor, part: ObservationPart, ops: TensorOps) -> bool:
    """Return whether a Discrete or MultiDiscrete consists of integers rather than
    one-hot vectors.
    """
    batch_axes = part.depth + 1
    shape = tuple(values.shape[batch_axes:])
    if shape != part.integers:
        return False
    # Both can have the same shape; then integers are told by their dtype.
    return shape != part.shape or not ops.is_float(values)


def _mean(features: Tensor, filled: Tensor, ops: TensorOps) -> Any:
    """Average features `[N * M, F]` over the filled places `[N, M]`: `[N, F]`, 0 if there are
    none.
    """
    places = filled.shape[1]
    of_filled = ops.only(ops.rows(filled, ()), features)
    by_list = ops.rows(of_filled, (places, features.shape[1]))
    count = ops.sum(ops.cast(filled, features.dtype), axis=1, keepdims=True)
    return ops.sum(by_list, axis=1) / ops.clip(count, 1, max(places, 1))


def width_of(parts: Sequence[ObservationPart | Items], nets: Sequence[ModelV2]) -> int:
    """Return the width of the concatenated features, from the widths of all `nets`."""
    width = 0
    for part in parts:
        if isinstance(part, Items):
            width += width_of(part.parts, nets) + 1  # the list's length
        else:
            features = nets[part.index].num_outputs
            assert features is not None, "build_net checks it"
            width += features
    return width


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
        columns = []
        for value, child in zip(values, codec.children, strict=True):
            if child.size:  # a part without values has no columns
                columns.append(pack(value, child, ops, dtype))
        return ops.side_by_side(columns)
    if isinstance(values, RepeatedValues):
        return _pack_list(values, codec, ops, dtype)
    if isinstance(values, OneOfValues):
        return _pack_one_of(values, codec, ops, dtype)
    # Text and Graph: the codec has a leaf `<path>.<name>` for each tensor `values.<name>`.
    columns = []
    for leaf in codec.leaves():
        name = leaf.path.rpartition(".")[2]
        size = leaf.stop - leaf.start
        if size:
            columns.append(ops.cast(ops.rows(getattr(values, name), (size,)), dtype))
    return ops.side_by_side(columns)


def _pack_list(values: RepeatedValues, codec: Preprocessor, ops: TensorOps, dtype: Any) -> Any:
    """Encode a list as its length, followed by its items; see `pack`."""
    (child,) = codec.children
    lengths = ops.cast(ops.rows(values.lengths, (1,)), dtype)
    items_size = codec.size - 1
    if not items_size:
        return lengths
    items = ops.rows(pack(values.values, child, ops, dtype), (items_size,))
    return ops.side_by_side([lengths, items])


def _pack_one_of(values: OneOfValues, codec: Preprocessor, ops: TensorOps, dtype: Any) -> Any:
    """Encode a OneOf as its tag, followed by the values of the branch with that tag; see `pack`."""
    tag = ops.cast(ops.rows(values.tag, (len(codec.children),)), dtype)  # one-hot
    zeros_of_tag = tag * 0.0
    # All branches share the columns after the tag, so each is added in its own rows.
    encoded = ops.padded(tag, codec.size)
    for i, (branch, child) in enumerate(zip(values.branches, codec.children, strict=True)):
        if not child.size:
            continue
        has_this_tag = tag[:, i] > 0.5
        in_its_rows = ops.only(has_this_tag, pack(branch, child, ops, dtype))
        encoded = encoded + ops.padded(ops.side_by_side([zeros_of_tag, in_its_rows]), codec.size)
    return encoded
