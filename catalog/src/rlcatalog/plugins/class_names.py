"""Lookup of installed plugins' classes by name, for `rlcatalog_torch`, `rlcatalog_tf` and similar
modules.
"""

from __future__ import annotations

from typing import Any

import rlcatalog
from rlcatalog import public_index
from rlcatalog.errors import AmbiguousChoiceError
from rlcatalog.plugins.part import Part


def part_class(module: str, name: str, framework: str, kind: str | None = None) -> Any:
    """Return an installed part's class by its name.

    Args:
        module: The name of the module, for error messages.
        name: The name of the attribute.
        framework: `"torch"`, `"tf"`, or `"numpy"` for parts that need no framework.
        kind: The kind of part; None allows any.

    Raises:
        AttributeError: No package provides this name.
        MissingPluginError: The package that provides it is missing, is disabled, or failed to load.
        AmbiguousChoiceError: Several plugins have a class with this name, and none of them is in
            the public index.
    """
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    owners = {}  # distribution → its part with a class of this name
    for part, class_name in _classes(framework, kind):
        if class_name == name:
            owners[part.distribution] = part
    owner = public_index.provider_of(f"export/{framework}", name)
    if owner in owners:
        return owners[owner].load(framework)
    registry = rlcatalog.default_catalog().registry
    registry.explain_missing(f"{module}.{name}", owner)  # raises an error if the owner is missing
    if owner is not None or not owners:
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}; `dir({module})` lists all names."
        )
    if len(owners) > 1:
        raise AmbiguousChoiceError(
            f"{module}.{name} is a class of {' and '.join(sorted(owners))}: import it from the"
            " one that you mean."
        )
    (part,) = owners.values()
    return part.load(framework)


def part_classes(framework: str, kind: str | None = None) -> list[str]:
    """Return the names that `part_class` finds."""
    return sorted({class_name for _, class_name in _classes(framework, kind)})


def _classes(framework: str, kind: str | None) -> list[tuple[Part, str]]:
    """Return (part, class name) of each plugin part with a class for this framework."""
    classes = []
    for part in rlcatalog.default_catalog().parts(kind):
        declaration = part.declaration
        if part.in_process or not declaration.shows_classes:
            continue
        if framework in declaration.targets:
            target = declaration.targets[framework]  # "package.module:Class"
            _, _, class_name = target.partition(":")
            classes.append((part, class_name))
    return classes
