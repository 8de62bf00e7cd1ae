"""Cache of lookups: what was found for the same spaces and an equal config is found again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rlcatalog.config import same
from rlcatalog.config.values import snapshot

T = TypeVar("T")


class LookupCache:
    """Remembers what lookups found.

    Args:
        size: How many lookups are remembered; then it is begun anew.
    """

    def __init__(self, size: int = 64) -> None:
        self._size, self._found, self._filling = size, 0, threading.Lock()
        self._entries: dict[tuple[Any, ...], list[tuple[Any, Any, tuple[Any, ...]]]] = {}

    def recall(self, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Any, find: Callable[[], T]) -> T:
        """Return what a lookup finds, from memory where it was asked before.

        Args:
            what: What is looked up, and what else it depends on, hashable.
            spaces: The spaces; the same objects, for comparing two spaces takes longer than most lookups.
            config: The config, as the caller gave it; equal in values and types.
            find: Looks it up.
        """
        key = (*what, *map(id, spaces))
        for known, found, _ in self._entries.get(key, ()):
            if same(known, config):
                return found  # type: ignore[no-any-return]
        found, known = find(), snapshot(config)
        with self._filling:
            if self._found >= self._size:
                self._entries, self._found = {}, 0
            self._found += 1
            # The spaces stand in the entry: their ids stay theirs as long as it is remembered.
            self._entries.setdefault(key, []).append((known, found, spaces))
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._filling:
            self._entries, self._found = {}, 0
