"""The table of frameworks: names, the default, and the framework of a tensor.

Plugins declare frameworks with the hook `rlcatalog_frameworks`; see `rlcatalog.FrameworkSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlcatalog import provided
from rlcatalog.errors import MissingFrameworkError, UnknownNameError, nearest

if TYPE_CHECKING:
    from rlcatalog.plugins import FrameworkSpec


def frameworks() -> Mapping[str, FrameworkSpec]:
    """Return name → framework: first the installed ones in the public index, in its order, then
    third-party ones.
    """
    return {
        spec.name: spec
        for spec in provided.declarations["framework"].values()
        if spec.extends is None
    }


def find_framework(name: str) -> FrameworkSpec | None:
    """Return the framework with this name or alias, or None."""
    spec: FrameworkSpec | None = (
        provided.declarations["framework"].get(name) if isinstance(name, str) else None
    )
    return spec if spec is not None and spec.extends is None else None


def framework_name(framework: str) -> str:
    """Return the framework's name, given its name or an alias.

    Raises:
        MissingFrameworkError: Its package is missing, disabled or failed to load.
        UnknownNameError: No framework has this name.
    """
    if (spec := find_framework(framework)) is not None:
        return spec.name
    if framework in provided.framework_names():
        require_framework(framework)
    aliases = [
        f"{alias!r} is an alias of {known.name!r}"
        for known in frameworks().values()
        for alias in known.aliases
    ]
    raise UnknownNameError(
        f"Unknown framework {framework!r}.{nearest(str(framework), frameworks())}"
        f" Known: {', '.join(map(repr, frameworks()))} ({'; '.join(aliases)})."
    )


def default_framework() -> str:
    """Return the first installed framework in the public index, or its first framework if none is
    installed.
    """
    names = provided.framework_names()
    return next(
        (name for name in names if name in frameworks() and frameworks()[name].is_installed),
        names[0],
    )


def require_framework(framework: str) -> None:
    """Check that the framework is installed, without importing it.

    Raises:
        MissingFrameworkError: The framework is not installed; the message names the extra to
            install.
    """
    spec = frameworks().get(framework)
    if spec is not None and spec.is_installed:
        return
    if spec is not None:
        problem = f"the package {spec.module!r}, which is not installed"
    elif (condition := provided.condition_of(f"rlcatalog-{framework}")) is not None:
        raise MissingFrameworkError(
            f"framework={framework!r} needs the package 'rlcatalog-{framework}', which {condition}"
        )
    else:
        problem = f"the package 'rlcatalog-{framework}', which is not installed"
    hint = "Install it as its authors describe."
    if framework in provided.framework_names():
        hint = provided.install_hint(f"rlcatalog[{framework}]")
    raise MissingFrameworkError(f"framework={framework!r} needs {problem}. {hint}")


def framework_of(cls: type) -> FrameworkSpec | None:
    """Return the framework of a class or of its nearest base that has one; None for
    NumPy arrays.
    """
    known = {
        package: spec for spec in frameworks().values() for package in (spec.module, *spec.packages)
    }
    roots = (base.__module__.partition(".")[0] for base in cls.__mro__)
    return next((known[root] for root in roots if root in known), None)
