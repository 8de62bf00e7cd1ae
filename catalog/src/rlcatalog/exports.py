"""Lazy names of `rlcatalog.torch`, `rlcatalog.tf` and `rlcatalog.preprocessors`: the kernel's own, and the parts'."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rlcatalog import first_party


def lookup(module: str, name: str, own: Mapping[str, str], framework: str, kind: str | None = None) -> Any:
    """Return the object behind a lazy name.

    Args:
        module: The module that is asked, for messages.
        name: The attribute asked for.
        own: Names of the kernel's own, with their modules.
        framework: `"torch"`, `"tf"`, or `"numpy"` for parts that need no framework.
        kind: The kind of component whose classes are meant; any when None.

    Raises:
        AttributeError: Nobody provides the name.
        MissingPluginError: A package provides it that is not usable here.
    """
    if name in own:
        return getattr(importlib.import_module(own[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    from rlcatalog.catalog import default_catalog

    catalog = default_catalog()
    for component in catalog.components(kind):
        if component.declaration.targets.get(framework, "").endswith(f":{name}") and not component.in_process:
            return component.load(framework)
    catalog.registry.explain_missing(f"{module}.{name}", first_party.provider_of(f"export/{framework}", name))
    raise AttributeError(f"module {module!r} has no attribute {name!r}; `dir({module})` lists what there is.")


def names(own: Mapping[str, str], framework: str, kind: str | None = None) -> list[str]:
    """Return the names `lookup` finds."""
    from rlcatalog.catalog import default_catalog

    parts = [c for c in default_catalog().components(kind) if not c.in_process]
    targets = [c.declaration.targets.get(framework, "") for c in parts]
    return sorted({*own, *(target.partition(":")[2] for target in targets if target)})
