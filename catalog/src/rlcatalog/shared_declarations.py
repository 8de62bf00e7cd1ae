"""Declarations that all catalogs of a process share: frameworks, action codecs and adapters of
environments.

Tensors, spaces and environments belong to no catalog, so what is known of them cannot depend on
one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from rlcatalog import plugin_access
from rlcatalog.declaration import Declaration
from rlcatalog.errors import DuplicateNameError

D = TypeVar("D", bound="SharedDeclaration")


#: Lock for changes of the tables.
_CHANGING = threading.RLock()


class SharedTable(Generic[D]):
    """Declarations of one kind by their entries.

    The first access enters the declarations of those installed packages that are in the public
    index, in its order. The declarations of other plugins follow when a catalog loads them.

    Args:
        kind: The kind of declaration.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        #: None before the first access. Replaced, never changed, because other threads may iterate
        #: over it.
        self._specs: Mapping[str, D] | None = None
        self._is_filling = False

    @property
    def specs(self) -> Mapping[str, D]:
        """Entry → declaration."""
        specs = self._specs
        if specs is None:
            specs = self._fill()
        return specs

    def _fill(self) -> Mapping[str, D]:
        """Load the declarations of the public index's packages, once; return all entries."""
        with _CHANGING:  # other threads wait until all declarations are there
            if self._is_filling:
                # The packages that are being loaded ask for the table themselves.
                return {}
            if self._specs is None:
                self._is_filling = True
                try:
                    specs: dict[str, D] = {}
                    for spec in plugin_access.plugins.load_indexed(self._kind):
                        specs |= dict.fromkeys(spec.entries, spec)
                    self._specs = specs
                finally:
                    self._is_filling = False
            return self._specs

    def enter(self, spec: D) -> bool:
        """Enter a declaration; return whether it is new.

        Raises:
            DuplicateNameError: Another declaration already has one of its entries.
        """
        with _CHANGING:
            specs = self.specs
            for entry in spec.entries:
                other = specs.get(entry, spec)  # the declaration itself if the entry is free
                if other != spec:
                    raise DuplicateNameError(spec.describe_clash(entry, other))
            self._specs = {**specs, **dict.fromkeys(spec.entries, spec)}
        was_there = specs.keys() >= set(spec.entries)
        return not was_there

    def leave(self, spec: D) -> None:
        """Remove a declaration."""
        with _CHANGING:
            specs = dict(self.specs)
            for entry in spec.entries:
                specs.pop(entry, None)
            self._specs = specs


class SharedDeclaration(Declaration):
    """Declaration that all catalogs of a process share, in the table of its kind."""

    table: ClassVar[SharedTable[Any]]

    def enter(self) -> bool:
        return self.table.enter(self)

    def leave(self) -> None:
        self.table.leave(self)

    def describe_clash(self, entry: str, other: SharedDeclaration) -> str:
        """Describe the problem that another declaration already has this entry."""
        return f"{self.kind} {entry!r} already exists; use another name."
