"""Objects that higher-level subpackages create and lower-level ones use, so that no import goes
upwards.

They are functions that the kernel's top level sets, and the frameworks and action codecs that
plugins declare. All catalogs of a process share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import DuplicateNameError

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins.declarations import Declaration

# --- functions of the top, which `rlcatalog/__init__.py` sets -------------------------------------

#: Returns the process's default catalog, which the first call creates.
default_catalog: Callable[[], Catalog]
#: Returns the names of the frameworks in the public index; the first that is installed is the
#: default.
framework_names: Callable[[], Sequence[str]]
#: Returns the sentence that says how to install packages; see `rlcatalog.plugins.install_hint`.
install_hint: Callable[..., str]
#: Returns what keeps this process from using an installed distribution, as a predicate, or None;
#: see `rlcatalog.plugins.loader.condition_of`.
condition_of: Callable[[str], str | None]
#: Returns the declarations of the installed packages in the public index: `"framework"` or
#: `"action_codec"`.
index_declarations: Callable[[str], Iterable[Declaration]] = lambda kind: ()  # noqa: E731  (it is set)
#: Returns the picture of an explanation, given as plain data, as SVG.
pipeline_svg: Callable[[Mapping[str, Any]], str]
#: Returns a space as plain data; None if a part of it cannot be saved.
space_to_json: Callable[[gymnasium.Space[Any]], Any]
#: Rebuilds a space from `space_to_json`.
space_from_json: Callable[[Mapping[str, Any]], Any]

# --- what plugins declare for all catalogs --------------------------------------------------------

_changing = threading.RLock()


class _Declarations(dict[str, Mapping[str, Any]]):
    """Kind of declaration → entry → declaration.

    The first access enters the declarations of those installed packages that are in the public
    index, in its order; third-party declarations follow. Tables are replaced, never changed,
    because other threads may iterate over them.
    """

    def __init__(self) -> None:
        self._filling: set[str] = set()

    def __missing__(self, kind: str) -> Mapping[str, Any]:
        with _changing:  # other threads wait until all are there
            if kind in self._filling:  # loading their packages needs the current ones
                return {}
            if kind not in self:
                self._filling.add(kind)
                try:
                    self[kind] = {
                        entry: spec for spec in index_declarations(kind) for entry in spec.entries
                    }
                finally:
                    self._filling.remove(kind)
            return self[kind]


#: The tables `"framework"` and `"action_codec"`, which all catalogs share.
declarations = _Declarations()


def enter(spec: Declaration) -> bool:
    """Enter a declaration that all catalogs share; return whether it is new.

    Raises:
        DuplicateNameError: Another declaration already has one of its entries.
    """
    if not spec.entries:
        return False
    with _changing:
        table = declarations[spec.kind]
        for entry in spec.entries:
            if table.get(entry, spec) != spec:
                raise DuplicateNameError(spec.describe_clash(entry, table[entry]))
        declarations[spec.kind] = {**table, **dict.fromkeys(spec.entries, spec)}
    return not table.keys() >= set(spec.entries)


def leave(spec: Declaration) -> None:
    """Remove a declaration."""
    with _changing:
        table = declarations[spec.kind]
        declarations[spec.kind] = {
            entry: other for entry, other in table.items() if entry not in spec.entries
        }
