"""Codec for the composite action spaces Tuple and Dict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rlcatalog import TupleActions
from rlcatalog.actions import ActionCodec, Actions, Mask
from rlcatalog.frameworks import Array, Tensor, TensorOps, TensorTree
from rlcatalog.spaces import SpaceInfo
from rlcatalog_preprocessors.actions.kinds import DiscreteCodec
from rlcatalog_preprocessors.actions.lowering import LoweredComposite


class CompositeCodec(ActionCodec):
    """Codec for a Tuple or Dict: the children's codecs, concatenated in the space's order."""

    lowered = LoweredComposite

    def __init__(self, info: SpaceInfo, *args: Any) -> None:
        super().__init__(info, *args)
        self.input_width = sum(child.input_width for child in self.children)
        self.whole = bool(self.children) and all(child.whole for child in self.children)
        #: The path of each choice, and its number of values.
        self.choices: list[tuple[str, int]] = []
        #: Each child with its columns of raw actions.
        self.parts: list[tuple[ActionCodec, slice]] = []
        start = 0
        for child in self.children:
            self.choices += child.choices
            stop = start + child.width
            self.parts.append((child, slice(start, stop)))
            start = stop

    def _size(self) -> int:
        return sum(child.width for child in self.children)

    @property
    def leaves(self) -> Iterator[ActionCodec]:
        for child in self.children:
            yield from child.leaves

    def flatten(self, raw: TensorTree | TupleActions) -> Array:
        parts: Any = raw.batches if isinstance(raw, TupleActions) else raw
        if isinstance(parts, Mapping):
            parts = self._split(parts)
        elif not isinstance(parts, tuple | list) or len(parts) != len(self.children):
            return super().flatten(parts)  # all columns in one array, or one array for each leaf
        return self._concatenate([child.flatten(part) for child, part in self._with(parts)])

    def adapt(self, raw: Array) -> Any:
        return self.info.join([child.adapt(raw[:, span]) for child, span in self.parts])

    def invert(self, action: Actions) -> Array:
        parts = self._split(action)
        return self._concatenate([child.invert(part) for child, part in self._with(parts)])

    def _concatenate(self, raws: Sequence[Array]) -> Array:
        """Concatenate the children's raw actions along their columns.

        Raises:
            ActionError: They have different numbers of rows.
        """
        if len({len(raw) for raw in raws}) > 1:
            rows = ", ".join(f"{len(raw)} in {child.info.path}" for child, raw in self._with(raws))
            raise self._no_action("as many rows in each part", rows)
        return self._side_by_side(raws)

    def leaf_actions(self, action: Actions) -> Iterator[tuple[ActionCodec, Any]]:
        for child, part in self._with(self._split(action)):
            yield from child.leaf_actions(part)

    def _split(self, action: Actions | Mapping[str, Any]) -> list[Any]:
        """Return the parts of a batch of environment actions.

        Raises:
            ActionError: Some parts are missing or unknown.
        """
        if self.info.keys:  # a Dict; otherwise a Tuple
            expected = f"a dict with the keys {list(self.info.keys)}"
            if not isinstance(action, Mapping):
                raise self._no_action(expected, type(action).__name__)
            if set(action) != set(self.info.keys):
                raise self._no_action(expected, f"keys {list(action)}")
        else:
            expected = f"a tuple of {len(self.children)} parts"
            if not isinstance(action, tuple | list):
                raise self._no_action(expected, type(action).__name__)
            if len(action) != len(self.children):
                raise self._no_action(expected, f"{len(action)} of them")
        return self.info.split(action)

    def join_leaves(self, leaves: Iterator[Array]) -> Actions:
        actions: Actions = self.info.join([child.join_leaves(leaves) for child in self.children])
        return actions

    def check_raw(self, raw: Array) -> None:
        for child, span in self.parts:
            child.check_raw(raw[:, span])

    def used(self, raw: Array) -> Array | None:
        used_by_child = [child.used(raw[:, span]) for child, span in self.parts]
        if all(is_used is None for is_used in used_by_child):
            return None
        columns = []
        for child, is_used in self._with(used_by_child):
            if is_used is None:
                is_used = np.ones((len(raw), child.width), np.bool_)
            columns.append(is_used)
        return np.concatenate(columns, axis=1)

    @property
    def paths(self) -> list[str]:
        paths: list[str] = []
        for child in self.children:
            paths += child.paths
        return paths

    @cached_property
    def counts(self) -> tuple[int, ...] | None:  # type: ignore[override]
        counts: list[int] = []
        for child in self.children:
            if child.counts is None:
                return None
            counts += child.counts
        return tuple(counts)

    @property
    def limits(self) -> tuple[Array, Array]:
        lows = []
        highs = []
        for child in self.children:
            low, high = child.limits
            lows.append(low)
            highs.append(high)
        return np.concatenate(lows), np.concatenate(highs)

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        is_discrete = all(isinstance(leaf, DiscreteCodec) for leaf in self.leaves)
        return np.dtype(np.int32 if is_discrete else np.float32), (None, self.width)

    def inputs(self, raw: Array) -> Array:
        return np.concatenate([child.inputs(raw[:, span]) for child, span in self.parts], axis=1)

    def shown(self, raw: Array) -> Any:
        return self.info.join([child.shown(raw[..., span]) for child, span in self.parts])

    def _join_masks(self, masks: Mask, rows: int | None) -> Array:
        """Concatenate the children's masks into one array `[B, mask_width]`."""
        parts = self._mask_parts(masks)
        if rows is None:
            rows = _rows_of(parts)
        columns = []
        for child, part in self._with(parts):
            child_columns = child.mask_columns(part, rows)
            if child_columns is not None:  # None for a child whose values cannot be forbidden
                columns.append(child_columns)
        return np.concatenate(columns, axis=1)

    def _mask_parts(self, masks: Mask) -> list[Any]:
        """Return each child's mask, or None for a child without one.

        Raises:
            ActionMaskError: The masks do not have the space's structure.
        """
        if self.info.keys:  # a Dict; otherwise a Tuple
            if not isinstance(masks, Mapping) or set(masks) - set(self.info.keys):
                raise self._bad_mask(f"a dict with keys of {list(self.info.keys)}", masks)
            return [masks.get(key) for key in self.info.keys]
        if not isinstance(masks, tuple) or len(masks) != len(self.children):
            raise self._bad_mask(
                f"a tuple of {len(self.children)} masks, one for each part (None for a part"
                " that has none), or the concatenated columns of all masks, [B,"
                f" {self.mask_width}]",
                masks,
            )
        return list(masks)

    def mask_taken(self, raw: Array) -> Array | None:
        """Return the mask columns that raw actions use, `[B, k]`; None if a child does not know."""
        columns = []
        start = 0  # the child's first mask column
        for child, raw_columns in self.parts:
            child_columns = child.mask_taken(raw[:, raw_columns])
            if child_columns is None:
                return None
            columns.append(child_columns + start)
            start += child.mask_width
        return np.concatenate(columns, axis=1)

    def allowing(self, columns: Tensor, ops: TensorOps) -> Iterator[tuple[str, Any]]:
        start = 0  # the child's first mask column
        for child in self.children:
            stop = start + child.mask_width
            yield from child.allowing(columns[:, start:stop], ops)
            start = stop

    def mask_places_in(self, shown: SpaceInfo | None, start: int = 0) -> list[tuple[int, int]]:
        """Return each column's position in an encoded mask, and the value there that means
        forbidden.
        """
        if shown is None or shown.kind != self.info.kind:
            return super().mask_places_in(shown, start)
        child_of = dict(zip(_names(self.info), self.children, strict=True))
        # The masks in the observation may have another order, and may lack some children.
        places_of: dict[str | int, list[tuple[int, int]]] = {}
        for name, mask in zip(_names(shown), shown.children, strict=True):
            if name in child_of:
                places_of[name] = child_of[name].mask_places_in(mask, start)
            start += count_values(mask)
        places: list[tuple[int, int]] = []
        for name, child in child_of.items():
            # Without a mask, nothing is forbidden.
            places += places_of.get(name) or child.mask_places_in(shown=None)
        return places

    def _with(self, parts: Sequence[Any]) -> Iterator[tuple[ActionCodec, Any]]:
        return zip(self.children, parts, strict=True)


def _names(info: SpaceInfo) -> Sequence[str | int]:
    """Return the keys of a Dict, or the positions of a Tuple."""
    return info.keys or range(len(info.children))


def count_values(info: SpaceInfo) -> int:
    """Return the number of values in all leaves of a space."""
    count = 0
    for node in info.walk():
        if not node.is_composite:
            count += math.prod(node.shape or ())
    return count


def _rows_of(masks: Sequence[Any]) -> int | None:
    """Return the number of rows of the first array in masks, or None if there is none."""
    for mask in masks:
        if isinstance(mask, Mapping):
            rows = _rows_of(list(mask.values()))
        elif isinstance(mask, tuple):
            rows = _rows_of(mask)
        elif mask is not None:
            rows = len(mask)
        else:
            rows = None
        if rows is not None:
            return rows
    return None
