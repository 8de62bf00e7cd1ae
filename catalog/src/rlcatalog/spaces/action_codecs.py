"""The table of action codecs: for each kind of space the class that knows its actions.

Codecs come with the hook `rlcatalog_action_codecs`. The first question enters those of the public index; a catalog
enters others when it loads their plugins.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Any

from rlcatalog import provided
from rlcatalog.errors import DuplicateNameError, PluginError
from rlcatalog.spaces.info import KINDS, SpaceInfo

#: Kind (a name of `KINDS`, or the qualified name of a class) → import path of the codec's class. It is replaced, never
#: changed: other threads may be going over it.
_TABLE: dict[str, str] | None = None
_CHANGING = threading.RLock()


def action_codecs() -> Mapping[str, str]:
    """Return kind → import path: those of the public index, and those of the plugins that any catalog has loaded."""
    global _TABLE
    if _TABLE is None:
        with _CHANGING:
            if _TABLE is None:
                _TABLE = {kind: spec.targets["numpy"] for spec in provided.action_codecs() for kind in spec.kinds}
    return _TABLE


def add_action_codec(kinds: Sequence[str], target: str) -> None:
    """Enter a codec into the table for some kinds.

    Raises:
        DuplicateNameError: One of the kinds has another codec.
    """
    global _TABLE
    with _CHANGING:
        table = action_codecs()
        for kind in kinds:
            if table.get(kind, target) != target:
                raise DuplicateNameError(
                    f"actions of the kind {kind!r} have a codec already, {table[kind]}; declare a space class of your"
                    " own."
                )
        _TABLE = {**table, **dict.fromkeys(kinds, target)}


def codec_class(info: SpaceInfo) -> Any:
    """Return the class of a space's codec, or None.

    It is that of the most derived class which has one. A codec for a class of somebody else's package stands back where
    a listed one serves a base of it.
    """
    table, others = action_codecs(), []
    for name in (*info.classes, info.kind):
        kind = KINDS.get(name, "")
        target = table.get(name) or table.get(kind)
        if target is not None and (kind in table or package_of(name) == package_of(target)):
            return _load(target)
        others += [target] if target is not None else []
    return _load(others[0]) if others else None


def codec_of_class(name: str) -> Any:
    """Return the class of the codec that was declared for a class of spaces by its qualified name, or None."""
    target = action_codecs().get(name)
    return None if target is None else _load(target)


def package_of(path: str) -> str:
    """Return the top-level package of an import path, `"package.module:Class"` or `"package.module.Class"`."""
    return path.partition(":")[0].partition(".")[0]


@cache
def _load(target: str) -> Any:
    try:
        return resolve_name(target)
    except (Exception, SystemExit) as error:
        raise PluginError(f"action codec {target!r} cannot be imported: {type(error).__name__}: {error}") from error
