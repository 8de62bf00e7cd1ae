"""Pickling of catalogs: another process gets an equal catalog, and only one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlcatalog.plugins import Part


class CatalogState(NamedTuple):
    """What makes an equal catalog in another process.

    Attributes:
        cls: The class of the catalog.
        name: A name of the catalog that is the same in all processes.
        entry_points: The entry points that it was made with.
        environ: The environment variables that it was made with; None for the process's own.
        prefer: The distributions that it was made to prefer.
        registered: The parts that the running program registered, with their config structs.
    """

    cls: Any
    name: str
    entry_points: tuple[Any, ...] | None
    environ: Mapping[str, str] | None
    prefer: Sequence[str]
    registered: Sequence[tuple[Part, type | None]]


#: The catalogs of this process that were pickled, here or elsewhere, by their names.
_CATALOGS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_RESTORING = threading.RLock()


def remember_catalog(name: str, catalog: Any) -> None:
    """Remember a catalog, so that unpickling in this process returns the same object."""
    _CATALOGS[name] = catalog


def restore_catalog(*fields: Any) -> Any:
    """Return the catalog for a `CatalogState`: the process's own if it has it, or a new one."""
    state = CatalogState(*fields)
    with _RESTORING:
        catalog = _CATALOGS.get(state.name)
        if catalog is None:
            catalog = state.cls(
                state.entry_points, environ=state.environ, prefer=state.prefer, name=state.name
            )
            remember_catalog(state.name, catalog)
        own_parts = {(part.kind, part.name) for part in catalog.parts() if part.in_process}
        # A catalog that is already here may lack parts that were registered before this pickle.
        for part, config_struct in state.registered:
            if (part.kind, part.name) not in own_parts:
                catalog.register(part, config=config_struct)
    return catalog
