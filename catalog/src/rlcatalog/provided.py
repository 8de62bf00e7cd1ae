"""What the top of the house provides to the rooms below: they are given it and import nothing above themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins import ActionCodecSpec, FrameworkSpec

_found: dict[str, Callable[[], Any]] = {}


def provide(
    default_catalog: Callable[[], Catalog],
    frameworks: Callable[[], Sequence[FrameworkSpec]],
    framework_names: Callable[[], Sequence[str]],
    action_codecs: Callable[[], Sequence[ActionCodecSpec]],
    pipeline_svg: Callable[[], Callable[[Mapping[str, Any]], str]],
) -> None:
    """Provide the functions behind those below.

    Args:
        default_catalog: Returns the process's default catalog.
        frameworks: Returns the declarations of the frameworks in the public index that are installed.
        framework_names: Returns the names of the frameworks in the public index, in its order.
        action_codecs: Returns the declarations of the action codecs in the public index that are installed.
        pipeline_svg: Returns the function that draws an explanation.
    """
    _found.update(
        default_catalog=default_catalog,
        frameworks=frameworks,
        framework_names=framework_names,
        action_codecs=action_codecs,
        pipeline_svg=pipeline_svg,
    )


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    found: Catalog = _found["default_catalog"]()
    return found


def frameworks() -> Sequence[FrameworkSpec]:
    """Return the declarations of the frameworks in the public index that are installed."""
    found: Sequence[FrameworkSpec] = _found["frameworks"]()
    return found


def framework_names() -> Sequence[str]:
    """Return the names of the frameworks in the public index; the first that is installed is the default."""
    found: Sequence[str] = _found["framework_names"]()
    return found


def action_codecs() -> Sequence[ActionCodecSpec]:
    """Return the declarations of the action codecs in the public index that are installed."""
    found: Sequence[ActionCodecSpec] = _found["action_codecs"]()
    return found


def pipeline_svg(found: Mapping[str, Any]) -> str:
    """Return the picture of an explanation, given as plain data, as SVG."""
    drawn: str = _found["pipeline_svg"]()(found)
    return drawn
