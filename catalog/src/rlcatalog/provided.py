"""What the top of the house provides to the rooms below: they are given it and import nothing above themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins import ActionCodecSpec, FrameworkSpec

_providers: dict[str, Callable[..., Any]] = {}


def provide(**providers: Callable[..., Any]) -> None:
    """Provide the functions behind those below, each under its name."""
    _providers.update(providers)


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    catalog: Catalog = _providers["default_catalog"]()
    return catalog


def frameworks() -> Sequence[FrameworkSpec]:
    """Return the declarations of the frameworks in the public index that are installed."""
    specs: Sequence[FrameworkSpec] = _providers["frameworks"]()
    return specs


def framework_names() -> Sequence[str]:
    """Return the names of the frameworks in the public index; the first that is installed is the default."""
    names: Sequence[str] = _providers["framework_names"]()
    return names


def action_codecs() -> Sequence[ActionCodecSpec]:
    """Return the declarations of the action codecs in the public index that are installed."""
    specs: Sequence[ActionCodecSpec] = _providers["action_codecs"]()
    return specs


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
