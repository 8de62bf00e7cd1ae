"""Codec for the variable-length lists Repeated and Sequence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space

from rlcatalog.errors import ObservationError
from rlcatalog.frameworks import Tensor, TensorOps, TensorTree
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

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        """Create the items' codec; return the shape of the vector: a length, then padded items."""
        (item,) = self.info.children
        self._item = self.child(item)
        self.children = (self._item,)
        if self.info.n is None:
            self.max_len = needed_limit(options, "sequence_max_len", self.info, "items")
        else:
            self.max_len = self.info.n
        space: Any = obs_space
        self._stacked_items = self.info.kind == "sequence" and bool(space.stack)
        length_and_items = 1 + self.max_len * self._item.size
        return (length_and_items,)

    def writer(self, start: int) -> Writer:
        if self._stacked_items:
            return self._stacked_writer(start)
        return self._list_writer(start)

    # A writer runs for each observation, so it reads local variables, which are faster than
    # attributes.

    def _list_writer(self, start: int) -> Writer:
        """Return the writer for a Sequence whose observations are lists of items."""
        write_item = self._item.writer(0)
        first = start + 1
        stop = start + self.size
        max_len = self.max_len
        block_shape = (max_len, self._item.size)

        def write(obs: Sequence[Any] | Array, out: Array) -> None:
            # A text would be read as its characters.
            if not isinstance(obs, list | tuple | np.ndarray):
                raise TypeError(f"{type(obs).__name__} instead of a list or tuple")
            length = len(obs)
            if length > max_len:
                raise ValueError(f"{length} items, which exceeds the limit {max_len}")
            out[start] = length
            block = out[first:stop].reshape(block_shape)
            # The block has a row for each of `max_len` items, and this list may be shorter.
            for item, row in zip(obs, block, strict=False):
                write_item(item, row)

        return write

    def _stacked_writer(self, start: int) -> Writer:
        """Return the writer for a Sequence whose items are stacked in arrays."""
        write_items = self._item.batch_writer(0)
        item_info = self._item.info
        first = start + 1
        stop = start + self.size
        max_len = self.max_len
        block_shape = (max_len, self._item.size)

        def write(obs: TensorTree, out: Array) -> None:
            length = batch_size(item_info, obs)
            if length > max_len:
                raise ValueError(f"{length} items, which exceeds the limit {max_len}")
            out[start] = length
            block = out[first:stop].reshape(block_shape)
            write_items(obs, block[:length])

        return write

    def restore(self, flat: Tensor, ops: TensorOps) -> RepeatedValues:
        """Return the items, with an axis for their places in the list, and the lengths."""
        items = ops.reshape(flat[..., 1:], (self.max_len, self._item.size))
        return RepeatedValues(self._item.restore(items, ops), flat[..., 0], self.max_len)

    def leaves(self, start: int = 0) -> list[Leaf]:
        """Return the leaves of the vector: the length, and the block of items."""
        first_item = start + 1
        lengths = Leaf(f"{self.info.path}.lengths", "length", start, stop=first_item, shape=())
        items = Leaf(
            self._item.info.path,
            self.info.kind,
            start=first_item,
            stop=start + self.size,
            shape=(self.max_len, self._item.size),
        )
        return [lengths, items]

    def bounds(self) -> tuple[Array, Array]:
        item_low, item_high = self._item.bounds()
        # Zero is the padding.
        lows = np.tile(np.minimum(item_low, 0), self.max_len)
        highs = np.tile(np.maximum(item_high, 0), self.max_len)
        shortest = [np.float32(0)]
        longest = [np.float32(self.max_len)]
        return np.concatenate([shortest, lows]), np.concatenate([longest, highs])

    def integer_ranges(self) -> Array:
        length = np.zeros(1)  # is not part of the items
        items = np.tile(self._item.integer_ranges(), self.max_len)
        return np.concatenate([length, items])

    def check(self, obs: Sequence[Any] | TensorTree) -> None:
        """Raise an error that says what is wrong, if an observation is not in the space."""
        expected = f"{self.info.describe()}: at most {self.max_len} items"
        items = self._items(obs, expected)
        if len(items) > self.max_len:
            if self.info.kind == "sequence":
                expected += "; the model config key 'sequence_max_len' sets it"
            self.refuse(expected, f"{len(items)} items")
        check_parts(
            partial(check_item, self._item, item, f"{self.info.path}[{i}]")
            for i, item in enumerate(items)
        )

    def _items(self, obs: Sequence[Any] | TensorTree, expected: str) -> list[Any]:
        """Return the items of an observation.

        Args:
            obs: The observation.
            expected: What the error says if it has no items.

        Raises:
            ObservationError: It is neither a list nor a stack of items.
        """
        if self._stacked_items:
            try:
                return list(rows(self._item.info, obs))
            except (KeyError, IndexError, TypeError, ValueError, AttributeError):
                self.refuse(f"{expected}, stacked", obs)  # raises the error
        is_array = isinstance(obs, np.ndarray) and obs.ndim > 0
        if not is_array and not isinstance(obs, list | tuple):
            self.refuse(f"{expected}, as a list or tuple", obs)
        items: Any = obs
        return list(items)
