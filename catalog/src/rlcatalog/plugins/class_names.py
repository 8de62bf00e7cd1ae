"""Classes of the installed parts by name, for the doors that show them: `rlcatalog_torch`, `rlcatalog_tf`, ..."""

from __future__ import annotations

from typing import Any

from rlcatalog import provided
from rlcatalog.errors import AmbiguousChoiceError
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
        AmbiguousChoiceError: Several plugins have a class of this name, and the public index lists none of them.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    catalog = provided.default_catalog()
    owner = public_index.provider_of(f"export/{framework}", name)
    owners = {
        component.distribution: component
        for component in catalog.components(kind)
        if component.declaration.targets.get(framework, "").endswith(f":{name}")
        and component.declaration.shows_classes
        and not component.in_process
    }
    if owner in owners:
        return owners[owner].load(framework)
    catalog.registry.explain_missing(f"{module}.{name}", owner)
    if owner is None and len(owners) > 1:
        raise AmbiguousChoiceError(
            f"{module}.{name} is a class of {' and '.join(sorted(owners))}: import it from the one you mean."
        )
    if owner is None and owners:
        return next(iter(owners.values())).load(framework)
    raise AttributeError(f"module {module!r} has no attribute {name!r}; `dir({module})` lists what there is.")


def part_classes(framework: str, kind: str | None = None) -> list[str]:
    """Return the names `part_class` finds."""
    parts = [c for c in provided.default_catalog().components(kind) if c.declaration.shows_classes and not c.in_process]
    targets = [c.declaration.targets.get(framework, "") for c in parts]
    return sorted({target.partition(":")[2] for target in targets if target})
