"""What the rooms below ask of the rooms and packages above them, which are imported when they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog.plugins import ActionCodecSpec, FrameworkSpec


def default_catalog() -> Catalog:
    """Return the process's default catalog, made at the first call."""
    catalog: Catalog = import_module("rlcatalog.catalog").default_catalog()
    return catalog


def frameworks() -> Sequence[FrameworkSpec]:
    """Return the declarations of the frameworks in the public index that are installed."""
    specs: Sequence[FrameworkSpec] = import_module("rlcatalog.plugins.loader").load_indexed("framework")
    return specs


def framework_names() -> Sequence[str]:
    """Return the names of the frameworks in the public index; the first that is installed is the default."""
    names: Sequence[str] = import_module("rlcatalog.plugins.public_index").frameworks()
    return names


def action_codecs() -> Sequence[ActionCodecSpec]:
    """Return the declarations of the action codecs in the public index that are installed."""
    specs: Sequence[ActionCodecSpec] = import_module("rlcatalog.plugins.loader").load_indexed("action_codec")
    return specs


def pipeline_svg(explanation: Mapping[str, Any]) -> str:
    """Return the picture of an explanation, given as plain data, as SVG."""
    svg: str = bring("rlcatalog_cli.picture", "pipeline_svg", "The picture of an explanation")(explanation)
    return svg


def space_to_json(space: gymnasium.Space[Any]) -> Any:
    """Return a space as plain data; None where a part of it has a kind that cannot be written down."""
    return bring("rlcatalog_policy", "space_to_json", "A space as plain data")(space)


def space_from_json(data: Mapping[str, Any]) -> Any:
    """Rebuild a space from `space_to_json`."""
    return bring("rlcatalog_policy", "space_from_json", "A space from plain data")(data)


def bring(package: str, name: str, asked: str) -> Any:
    """Return what another package brings.

    Args:
        package: The package, or a module of it.
        name: The name of what it brings.
        asked: What that is called in messages.

    Raises:
        MissingPluginError: The package is not installed.
    """
    try:
        return getattr(import_module(package), name)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        from rlcatalog.errors import MissingPluginError

        way = import_module("rlcatalog.plugins.public_index").how_to_get(str(error.name).replace("_", "-"))
        raise MissingPluginError(f"{asked} {way}") from None
