"""What rooms below use and is made above: they are given it, and import nothing above themselves.

That is the functions which the top of the kernel provides, and the frameworks and action codecs which plugins declare:
all catalogs of a process share these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import DuplicateNameError

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins.declarations import Declaration

_providers: dict[str, Callable[..., Any]] = {}

_changing = threading.RLock()


class _Declared(dict[str, Mapping[str, Any]]):
    """Kind of declaration → entry → what is declared there.

    Those of the public index's packages that are installed are entered at the first question, in its order, then
    third-party ones. The tables of the kinds are replaced, never changed: other threads may be going over them.
    """

    def __init__(self) -> None:
        self._being_filled: set[str] = set()

    def __missing__(self, kind: str) -> Mapping[str, Any]:
        with _changing:  # other threads wait until all are there
            if kind in self._being_filled:  # loading their packages asks for those so far
                return {}
            if kind not in self:
                self._being_filled.add(kind)
                try:
                    self[kind] = {entry: spec for spec in _providers["declarations"](kind) for entry in spec.entries}
                finally:
                    self._being_filled.remove(kind)
            return self[kind]


#: What all catalogs share: the tables of `"framework"` and of `"action_codec"`.
declared = _Declared()


def provide(**providers: Callable[..., Any]) -> None:
    """Provide the functions behind those below, each under its name."""
    _providers.update(providers)


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    catalog: Catalog = _providers["default_catalog"]()
    return catalog


def enter(spec: Declaration) -> bool:
    """Enter a declaration that all catalogs share; return whether it was not there before.

    Raises:
        DuplicateNameError: Another one has one of its entries.
    """
    if not spec.entries:
        return False
    with _changing:
        table = declared[spec.kind]
        for entry in spec.entries:
            if table.get(entry, spec) != spec:
                raise DuplicateNameError(spec.describe_clash(entry, table[entry]))
        declared[spec.kind] = {**table, **dict.fromkeys(spec.entries, spec)}
    return not table.keys() >= set(spec.entries)


def leave(spec: Declaration) -> None:
    """Take a declaration out again."""
    with _changing:
        table = declared[spec.kind]
        declared[spec.kind] = {entry: other for entry, other in table.items() if entry not in spec.entries}


def framework_names() -> Sequence[str]:
    """Return the names of the frameworks in the public index; the first that is installed is the default."""
    names: Sequence[str] = _providers["framework_names"]()
    return names


def pipeline_svg(explanation: Mapping[str, Any]) -> str:
    """Return the picture of an explanation, given as plain data, as SVG."""
    svg: str = _providers["pipeline_svg"](explanation)
    return svg


def space_to_json(space: gymnasium.Space[Any]) -> Any:
    """Return a space as plain data; None where a part of it has a kind that cannot be written down."""
    return _providers["space_to_json"](space)


def space_from_json(data: Mapping[str, Any]) -> Any:
    """Rebuild a space from `space_to_json`."""
    return _providers["space_from_json"](data)
