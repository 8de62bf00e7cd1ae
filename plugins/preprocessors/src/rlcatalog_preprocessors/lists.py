"""Codec for the variable-length lists Repeated and Sequence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rlcatalog.errors import ObservationError
from rlcatalog.frameworks import TensorOps
from rlcatalog.observations import (
    Array,
    Leaf,
    Preprocessor,
    Writer,
    batch_size,
    check_parts,
    rows,
)
from rlcatalog.spaces import RepeatedValues
from rlcatalog_preprocessors.config import needed_limit


def check_item(child: Preprocessor, item: Any, path: str) -> None:
    """Check one of several items that share a codec; an error names the item's path.

    Raises:
        ObservationError: The item is not in the child's space.
    """
    try:
        child.check(item)
    except ObservationError as error:
        # The same class, because values outside bounds may only be a warning.
        raise type(error)(str(error).replace(child.info.path, path, 1)) from None


class RepeatedValuesPreprocessor(Preprocessor):
    """Repeated and Sequence: the number of items, then the concatenated items, padded
    with zeros.
    """

    structured = True

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        (item,) = self.info.children
        self.children = (self.child(item),)
        known = self.info.n  # 0 is a length, too
        self.max_len = (
            needed_limit(options, "sequence_max_len", self.info, "items")
            if known is None
            else known
        )
        self._stacked_items = self.info.kind == "sequence" and bool(obs_space.stack)
        return (1 + self.max_len * self.children[0].size,)

    def writer(self, start: int) -> Writer:
        (child,), first, stop = self.children, start + 1, start + self.size
        places = (self.max_len, child.size)
        write_item, write_items = child.writer(0), child.batch_writer(0)
        stacked, item = self._stacked_items, child.info

        def write(obs: Any, out: Array) -> None:
            # a text would be read as its characters.
            if not stacked and not isinstance(obs, list | tuple | np.ndarray):
                raise TypeError(f"{type(obs).__name__} instead of a list or tuple")
            length = batch_size(item, obs) if stacked else len(obs)
            if length > places[0]:
                raise ValueError(f"{length} items, which exceeds the limit {places[0]}")
            out[start] = length
            block = out[first:stop].reshape(places)
            if stacked:
                write_items(obs, block[:length])
            else:
                for value, place in zip(obs, block, strict=False):
                    write_item(value, place)

        return write

    def restore(self, flat: Any, ops: TensorOps) -> RepeatedValues:
        """Return the items, with an axis for their places in the list, and the lengths."""
        (child,) = self.children
        items = ops.reshape(flat[..., 1:], (self.max_len, child.size))
        return RepeatedValues(child.restore(items, ops), flat[..., 0], self.max_len)

    def leaves(self, start: int = 0) -> list[Leaf]:
        path, (child,) = self.info.path, self.children
        items = Leaf(
            child.info.path,
            self.info.kind,
            start + 1,
            start + self.size,
            (self.max_len, child.size),
        )
        return [Leaf(f"{path}.lengths", "length", start, start + 1, ()), items]

    def bounds(self) -> tuple[Array, Array]:
        low, high = self.children[0].bounds()
        low, high = np.minimum(low, 0), np.maximum(high, 0)  # zero is the padding
        lows, highs = np.tile(low, self.max_len), np.tile(high, self.max_len)
        return np.concatenate([[np.float32(0)], lows]), np.concatenate(
            [[np.float32(self.max_len)], highs]
        )

    def integer_ranges(self) -> Array:
        (child,) = self.children
        length = np.zeros(1)  # is not part of the items
        return np.concatenate([length, np.tile(child.integer_ranges(), self.max_len)])

    def check(self, obs: Any) -> None:
        (child,) = self.children
        expected = f"{self.info.describe()}: at most {self.max_len} items"
        if self._stacked_items:
            try:
                items = list(rows(child.info, obs))
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                self.refuse(f"{expected}, stacked", obs)
        elif isinstance(obs, list | tuple) or (isinstance(obs, np.ndarray) and obs.ndim):
            items = list(obs)
        else:
            self.refuse(f"{expected}, as a list or tuple", obs)
        if len(items) > self.max_len:
            key = (
                "; the model config key 'sequence_max_len' sets it"
                if self.info.kind == "sequence"
                else ""
            )
            self.refuse(f"{expected}{key}", f"{len(items)} items")
        check_parts(
            partial(check_item, child, item, f"{self.info.path}[{i}]")
            for i, item in enumerate(items)
        )
