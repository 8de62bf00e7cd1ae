"""The table of action codecs: kind of space → codec class.

Plugins declare codecs with the hook `rlcatalog_action_codecs`; see `rlcatalog.ActionCodecSpec`.
"""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import Any

from rlcatalog.errors import PluginError, raised_as
from rlcatalog.spaces.action_codec_spec import ActionCodecSpec
from rlcatalog.spaces.info import KINDS, SpaceInfo


def codec_class(info: SpaceInfo) -> Any:
    """Return the codec class for a space, or None.

    The codec of the most derived class wins. A codec in the public index for a base class takes
    precedence over a codec for a class from a different package.
    """
    table = ActionCodecSpec.table.specs
    fallback_target: str | None = None
    for name in (*info.classes, info.kind):  # the most derived class first
        kind = KINDS.get(name, "")  # such as "box", for Gymnasium's classes
        spec = table.get(name) or table.get(kind)
        if spec is None:
            continue
        target: str = spec.targets["numpy"]
        is_from_package_of_class = package_of(name) == package_of(target)
        if kind in table or is_from_package_of_class:
            return _load(target)
        if fallback_target is None:
            fallback_target = target
    return None if fallback_target is None else _load(fallback_target)


def codec_of_class(name: str) -> Any:
    """Return the codec class declared for a space class by its qualified name, or None."""
    spec = ActionCodecSpec.table.specs.get(name)
    return None if spec is None else _load(spec.targets["numpy"])


def package_of(path: str) -> str:
    """Return the top-level package of an import path, `"package.module:Class"` or
    `"package.module.Class"`.
    """
    return path.partition(":")[0].partition(".")[0]


@cache
def _load(target: str) -> Any:
    with raised_as(lambda why: PluginError(f"action codec {target!r} cannot be imported: {why}")):
        return resolve_name(target)
