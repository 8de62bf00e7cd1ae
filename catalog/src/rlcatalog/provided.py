"""What the top of the house provides to the rooms below: they are given it and import nothing above themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins import ActionCodecSpec, ExporterSpec, FrameworkSpec

_found: dict[str, Callable[[], Any]] = {}


def provide(
    default_catalog: Callable[[], Catalog],
    frameworks: Callable[[], Sequence[FrameworkSpec]],
    action_codecs: Callable[[], Sequence[ActionCodecSpec]],
    exporters: Callable[[], Sequence[ExporterSpec]],
) -> None:
    """Provide the functions behind those below.

    Args:
        default_catalog: Returns the process's default catalog.
        frameworks: Returns the declarations of the kernel's own frameworks.
        action_codecs: Returns the declarations of the kernel's own action codecs.
        exporters: Returns the declarations of the kernel's own formats.
    """
    _found.update(
        default_catalog=default_catalog, frameworks=frameworks, action_codecs=action_codecs, exporters=exporters
    )


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    found: Catalog = _found["default_catalog"]()
    return found


def frameworks() -> Sequence[FrameworkSpec]:
    """Return the declarations of the kernel's own frameworks."""
    found: Sequence[FrameworkSpec] = _found["frameworks"]()
    return found


def action_codecs() -> Sequence[ActionCodecSpec]:
    """Return the declarations of the kernel's own action codecs."""
    found: Sequence[ActionCodecSpec] = _found["action_codecs"]()
    return found


def exporters() -> Sequence[ExporterSpec]:
    """Return the declarations of the kernel's own formats."""
    found: Sequence[ExporterSpec] = _found["exporters"]()
    return found
