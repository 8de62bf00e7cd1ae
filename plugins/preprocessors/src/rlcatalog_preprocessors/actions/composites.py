"""Codec for the composite action spaces Tuple and Dict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rlcatalog import TupleActions
from rlcatalog.actions import ActionCodec
from rlcatalog.spaces import SpaceInfo
from rlcatalog_preprocessors.actions.kinds import Array, DiscreteCodec
from rlcatalog_preprocessors.actions.lowering import LoweredComposite


class CompositeCodec(ActionCodec):
    """Codec for a Tuple or Dict: the children's codecs, concatenated in the space's order."""

    lowered = LoweredComposite

    def __init__(self, info: SpaceInfo, *others: Any) -> None:
        super().__init__(info, *others)
        self.input_width = sum(child.input_width for child in self.children)
        self.whole = bool(self.children) and all(child.whole for child in self.children)
        self.choices = [choice for child in self.children for choice in child.choices]
        stops = np.cumsum([child.width for child in self.children], dtype=np.int64).tolist()
        #: Each child with its columns of raw actions.
        self.parts = [(child, slice(stop - child.width, stop)) for child, stop in self._with(stops)]

    def _size(self) -> int:
        return sum(child.width for child in self.children)

    @property
    def leaves(self) -> Iterator[ActionCodec]:
        for child in self.children:
            yield from child.leaves

    def flatten(self, raw: Any) -> Array:
        parts = raw.batches if isinstance(raw, TupleActions) else raw
        if isinstance(parts, Mapping):
            return self._concatenate(
                [child.flatten(part) for child, part in self._with(self._split(parts))]
            )
        if isinstance(parts, tuple | list) and len(parts) == len(self.children):
            return self._concatenate([child.flatten(part) for child, part in self._with(parts)])
        return super().flatten(parts)  # all columns in one array, or one array for each leaf

    def adapt(self, raw: Array) -> Any:
        return self.info.join([child.adapt(raw[:, span]) for child, span in self.parts])

    def invert(self, action: Any) -> Array:
        return self._concatenate(
            [child.invert(part) for child, part in self._with(self._split(action))]
        )

    def _concatenate(self, raws: Sequence[Array]) -> Array:
        """Concatenate the children's raw actions along their columns.

        Raises:
            ActionError: They have different numbers of rows.
        """
        if len({len(raw) for raw in raws}) > 1:
            found = ", ".join(f"{len(raw)} in {child.info.path}" for child, raw in self._with(raws))
            raise self._no_action("as many rows in each part", found)
        return self._side_by_side(raws)

    def leaf_actions(self, action: Any) -> Iterator[tuple[ActionCodec, Any]]:
        for child, part in self._with(self._split(action)):
            yield from child.leaf_actions(part)

    def _split(self, action: Any) -> list[Any]:
        """Return the parts of a batch of environment actions.

        Raises:
            ActionError: Some parts are missing or unknown.
        """
        if self.info.keys:
            if not isinstance(action, Mapping) or set(action) != set(self.info.keys):
                found = (
                    f"keys {list(action)}" if isinstance(action, Mapping) else type(action).__name__
                )
                raise self._no_action(f"a dict with the keys {list(self.info.keys)}", found)
        elif not isinstance(action, tuple | list) or len(action) != len(self.children):
            found = (
                f"{len(action)} of them"
                if isinstance(action, tuple | list)
                else type(action).__name__
            )
            raise self._no_action(f"a tuple of {len(self.children)} parts", found)
        return self.info.split(action)

    def check_raw(self, raw: Array) -> None:
        for child, span in self.parts:
            child.check_raw(raw[:, span])

    @property
    def paths(self) -> list[str]:
        return [path for child in self.children for path in child.paths]

    @cached_property
    def counts(self) -> tuple[int, ...] | None:  # type: ignore[override]
        found = [child.counts for child in self.children]
        return None if None in found else tuple(count for counts in found for count in counts or ())

    @property
    def limits(self) -> tuple[Array, Array]:
        low, high = zip(*(child.limits for child in self.children), strict=True)
        return np.concatenate(low), np.concatenate(high)

    @property
    def stored_form(self) -> tuple[np.dtype[Any], tuple[int | None, ...]]:
        alone = all(isinstance(leaf, DiscreteCodec) for leaf in self.leaves)
        return np.dtype(np.int32 if alone else np.float32), (None, self.width)

    def inputs(self, raw: Array) -> Array:
        return np.concatenate([child.inputs(raw[:, span]) for child, span in self.parts], axis=1)

    def shown(self, raw: Array) -> Any:
        return self.info.join([child.shown(raw[..., span]) for child, span in self.parts])

    def _join_masks(self, masks: Any, rows: int | None) -> Array:
        if self.info.keys:
            if not isinstance(masks, Mapping) or set(masks) - set(self.info.keys):
                raise self._bad_mask(f"a dict with keys of {list(self.info.keys)}", masks)
            given = [masks.get(key) for key in self.info.keys]
        else:
            if isinstance(masks, Mapping) or len(masks) != len(self.children):
                raise self._bad_mask(
                    f"a tuple of {len(self.children)} masks, one for each part (None for a part"
                    " that has none), or the concatenated columns of all masks, [B,"
                    f" {self.mask_width}]",
                    masks,
                )
            given = list(masks)
        rows = rows if rows is not None else next((len(array) for array in _arrays(given)), None)
        found = [child.mask_columns(part, rows) for child, part in self._with(given)]
        return np.concatenate([columns for columns in found if columns is not None], axis=1)

    def mask_taken(self, raw: Array) -> Array | None:
        found = [child.mask_taken(raw[:, span]) for child, span in self.parts]
        widths = [child.mask_width for child in self.children]
        starts = np.cumsum(widths) - widths
        taken = [
            columns + start
            for columns, start in zip(found, starts, strict=True)
            if columns is not None
        ]
        return np.concatenate(taken, axis=1) if len(taken) == len(found) else None

    def mask_places_in(self, shown: SpaceInfo | None, start: int = 0) -> list[tuple[int, int]]:
        if shown is None or shown.kind != self.info.kind:
            return super().mask_places_in(shown, start)
        found: dict[Any, list[tuple[int, int]]] = {}
        own = dict(zip(_names(self.info), self.children, strict=True))
        for name, part in zip(_names(shown), shown.children, strict=True):
            if name in own:
                found[name] = own[name].mask_places_in(part, start)
            start += sum(
                math.prod(leaf.shape or ()) for leaf in part.walk() if not leaf.is_composite
            )
        return [
            column
            for name, child in own.items()
            for column in found.get(name) or child.mask_places_in(None)
        ]

    def _with(self, parts: Sequence[Any]) -> Iterator[tuple[ActionCodec, Any]]:
        return zip(self.children, parts, strict=True)


def _names(info: SpaceInfo) -> Sequence[Any]:
    return info.keys or range(len(info.children))


def _arrays(parts: Any) -> Iterator[Any]:
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        if isinstance(part, Mapping | tuple):
            yield from _arrays(part)
        elif part is not None:
            yield part
