"""What other packages bring: names for users and for the kernel, each with the module that has it.

`provided.space_to_json` imports that module. This is the only way by which the kernel gets anything
from a package that depends on it.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from rlcatalog import plugin_access
from rlcatalog.errors import MissingPluginError


class Provider(NamedTuple):
    """The module that brings a name.

    Attributes:
        module: The module.
        title: What the name stands for, for the error that its package is not installed.
    """

    module: str
    title: str


PROVIDERS = {
    "Policy": Provider("rlcatalog_policy", "rlcatalog.Policy"),
    "build": Provider("rlcatalog_policy", "rlcatalog.build"),
    "load": Provider("rlcatalog_policy", "rlcatalog.load"),
    "load_part": Provider("rlcatalog_policy", "rlcatalog.load_part"),
    "space_to_json": Provider("rlcatalog_policy", "A space as plain data"),
    "space_from_json": Provider("rlcatalog_policy", "A space from plain data"),
    "Actor": Provider("rlcatalog_export", "rlcatalog.Actor"),
    "pipeline_svg": Provider("rlcatalog_cli.picture", "The picture of an explanation"),
}


def __getattr__(name: str) -> Any:
    """Return what a package brings.

    Raises:
        MissingPluginError: The package is not installed.
    """
    provider = PROVIDERS.get(name)
    if provider is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package, _, _ = provider.module.partition(".")
    try:
        module = importlib.import_module(provider.module)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is there, but lacks something that it needs
            raise
        distribution = package.replace("_", "-")
        where_to_get_it = plugin_access.plugins.how_to_get(distribution)
        raise MissingPluginError(f"{provider.title} {where_to_get_it}") from None
    return getattr(module, name)  # the package calls it by the same name
