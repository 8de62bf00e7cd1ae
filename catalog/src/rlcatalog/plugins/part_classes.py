"""Classes of the installed parts by name, for the doors that show them: `rlcatalog.torch`, `rlcatalog.tf`, ..."""

from __future__ import annotations

from typing import Any

from rlcatalog import provided
from rlcatalog.plugins import public_index


def part_class(module: str, name: str, framework: str, kind: str | None = None) -> Any:
    """Return an installed part's class by its name.

    Args:
        module: The module that is asked, for messages.
        name: The attribute asked for.
        framework: `"torch"`, `"tf"`, or `"numpy"` for parts that need no framework.
        kind: The kind of component whose classes are meant; any when None.

    Raises:
        AttributeError: Nobody provides the name.
        MissingPluginError: A package provides it that is not usable here.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    catalog = provided.default_catalog()
    for component in catalog.components(kind):
        if component.declaration.targets.get(framework, "").endswith(f":{name}") and not component.in_process:
            return component.load(framework)
    catalog.registry.explain_missing(f"{module}.{name}", public_index.provider_of(f"export/{framework}", name))
    raise AttributeError(f"module {module!r} has no attribute {name!r}; `dir({module})` lists what there is.")


def part_classes(framework: str, kind: str | None = None) -> list[str]:
    """Return the names `part_class` finds."""
    parts = [c for c in provided.default_catalog().components(kind) if not c.in_process]
    targets = [c.declaration.targets.get(framework, "") for c in parts]
    return sorted({target.partition(":")[2] for target in targets if target})
