"""`LookupCache`: the latest lookups of a catalog, with their results."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from operator import is_
from typing import Any, NamedTuple, TypeVar

from rlcatalog.config import plain, same
from rlcatalog.spaces.info import Space

T = TypeVar("T")

#: The caller's config, alone or with other arguments of a lookup that are compared by value.
Config = Mapping[str, Any] | tuple[Any, ...] | None

#: Number of lookups that a cache keeps.
SIZE = 64


class _Entry(NamedTuple):
    """A lookup and its result; see `LookupCache.recall`."""

    key: Hashable
    spaces: tuple[Space, ...]
    config: Config
    result: Any


class LookupCache:
    """The latest lookups, the newest first."""

    def __init__(self) -> None:
        # Replaced, never changed, because other threads may iterate over it.
        self._entries: tuple[_Entry, ...] = ()

    def recall(self, key: Hashable, spaces: tuple[Space, ...], config: Config) -> Any:
        """Return the result of an earlier lookup, or None.

        Args:
            key: The kind of lookup, with its arguments that are compared by `==`.
            spaces: The spaces, compared by identity, because comparing their values takes longer
                than most lookups.
            config: The config, compared by values and types.
        """
        for entry in self._entries:
            if entry.key != key:
                continue
            has_same_spaces = all(map(is_, entry.spaces, spaces))
            if has_same_spaces and same(entry.config, config):
                return entry.result
        return None

    def remember(
        self, key: Hashable, spaces: tuple[Space, ...], config: Config, result: Any
    ) -> None:
        """Keep the result of a lookup; see `recall`."""
        copy = plain(config, alike=True)  # in a form that `same` can compare
        entry = _Entry(key, spaces, copy, result)
        self._entries = (entry, *self._entries[: SIZE - 1])

    def recall_or_find(
        self, key: Hashable, spaces: tuple[Space, ...], config: Config, find: Callable[[], T]
    ) -> T:
        """Return the result of a lookup: of an earlier one if there is one, otherwise of
        `find()`; see `recall`.
        """
        result: T | None = self.recall(key, spaces, config)
        if result is None:
            result = find()
            self.remember(key, spaces, config, result)
        return result
