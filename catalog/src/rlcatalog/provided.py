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

#: Kind of declaration → entry → what is declared there; those of the public index are entered at the first question.
#: The tables of the kinds are replaced, never changed: other threads may be going over them.
_declared: dict[str, Mapping[str, Any]] = {}
_changing = threading.RLock()


def provide(**providers: Callable[..., Any]) -> None:
    """Provide the functions behind those below, each under its name."""
    _providers.update(providers)


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    catalog: Catalog = _providers["default_catalog"]()
    return catalog


def declared(kind: str) -> Mapping[str, Any]:
    """Return entry → declaration of a kind that all catalogs share, `"framework"` or `"action_codec"`.

    Those of the public index's packages that are installed come first, in its order, then third-party ones.
    """
    with _changing:  # other threads wait until all are there
        if kind not in _declared:
            _declared[kind] = {}  # for what asks while their packages are loaded
            try:
                _declared[kind] = {entry: spec for spec in _providers["declarations"](kind) for entry in spec.entries}
            except BaseException:
                del _declared[kind]
                raise
        return _declared[kind]


def enter(spec: Declaration) -> bool:
    """Enter a declaration that all catalogs share; return whether it was not there before.

    Raises:
        DuplicateNameError: Another one has one of its entries.
    """
    if not spec.entries:
        return False
    with _changing:
        table = declared(spec.kind)
        for entry in spec.entries:
            if table.get(entry, spec) != spec:
                raise DuplicateNameError(spec.describe_clash(entry, table[entry]))
        _declared[spec.kind] = {**table, **dict.fromkeys(spec.entries, spec)}
    return not table.keys() >= set(spec.entries)


def leave(spec: Declaration) -> None:
    """Take a declaration out again."""
    with _changing:
        table = declared(spec.kind)
        _declared[spec.kind] = {entry: other for entry, other in table.items() if entry not in spec.entries}


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
