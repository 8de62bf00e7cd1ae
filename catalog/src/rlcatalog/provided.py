"""The default catalog, provided by the top of the house to the rooms below: they import nothing above themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog

_find: list[Callable[[], Catalog]] = []


def provide(find_default_catalog: Callable[[], Catalog]) -> None:
    """Provide the function that returns the process's default catalog."""
    _find[:] = [find_default_catalog]


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    return _find[0]()
