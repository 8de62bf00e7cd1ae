"""The table of frameworks: what each is called, what must be importable for it, and where its code stands.

Plugins declare frameworks with the hook `rlcatalog_frameworks`. The first question enters the frameworks of the public
index; a catalog enters others when it loads their plugins.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, NamedTuple

from rlcatalog import provided
from rlcatalog.errors import (
    DuplicateNameError,
    MissingFrameworkError,
    NotServedError,
    UnknownNameError,
    nearest,
)

_load = cache(resolve_name)


class Framework(NamedTuple):
    """One framework.

    Attributes:
        name: Its name, as users type it.
        module: The module whose presence says that it is installed, and which its tensors' classes come from.
        targets: Import path of what the framework does, by name; see `rlcatalog.FrameworkSpec`.
        aliases: Other names for it.
    """

    name: str
    module: str
    targets: Mapping[str, str]
    aliases: tuple[str, ...] = ()

    def load(self, what: str, user: str = "rlcatalog") -> Any:
        """Import and return one of the targets, of the framework's own package or of one that extends it.

        Args:
            what: The target's name.
            user: The distribution that asks, for the message.

        Raises:
            NotServedError: There is none of this name.
        """
        target = self.targets.get(what) or _EXTENSIONS.get((self.name, what))
        if target is None:
            raise NotServedError(f"{user} has no code for framework={self.name!r}: nothing here declares its {what!r}.")
        return _load(target)

    def target(self, what: str) -> str | None:
        """Return the import path of a target, or None where there is none of this name."""
        return self.targets.get(what) or _EXTENSIONS.get((self.name, what))

    @property
    def is_installed(self) -> bool:
        """Whether it is installed; nothing is imported."""
        return importlib.util.find_spec(self.module) is not None

    def prepare(self) -> None:
        """Do what must be done before the framework is imported; cheap where there is nothing to do."""
        if "before" in self.targets:
            self.load("before")()


#: Name → framework, in the order in which one is looked for; those of the public index are entered at the first
#: question. It is replaced, never changed: other threads may be going over it.
_TABLE: dict[str, Framework] = {}
#: (framework, target's name) → import path that another package brings.
_EXTENSIONS: dict[tuple[str, str], str] = {}
_CHANGING = threading.RLock()
_filled = _filling = False


def frameworks() -> Mapping[str, Framework]:
    """Return name → framework: those of the public index that are installed, in its order, then third-party ones."""
    if not _filled:
        _fill()
    return _TABLE


def _fill() -> None:
    """Enter the frameworks of the public index; other threads wait until all are there."""
    global _filled, _filling
    with _CHANGING:
        if _filled or _filling:  # entering one asks for those so far
            return
        _filling = True
        try:
            for spec in provided.frameworks():
                spec.enter()
            _filled = True
        finally:
            _filling = False


def add_framework(framework: Framework) -> None:
    """Enter a framework into the table.

    Raises:
        DuplicateNameError: One of its names is another one's.
    """
    global _TABLE
    with _CHANGING:
        for other in frameworks().values():
            taken = {framework.name, *framework.aliases} & {other.name, *other.aliases}
            if taken and other != framework:
                raise DuplicateNameError(f"framework {min(taken)!r} is known already; call this one something else.")
        _TABLE = {**frameworks(), framework.name: framework}


def extend_framework(name: str, targets: Mapping[str, str]) -> None:
    """Add what another package brings for a framework.

    Raises:
        DuplicateNameError: The framework, or a third package, has a target of this name already.
    """
    global _EXTENSIONS
    with _CHANGING:
        own = frameworks()[name].targets if name in frameworks() else {}
        for what, target in targets.items():
            if (own.get(what) or _EXTENSIONS.get((name, what), target)) != target:
                raise DuplicateNameError(
                    f"framework {name!r} has a target {what!r} already; call this one something else."
                )
        _EXTENSIONS = {**_EXTENSIONS, **{(name, what): target for what, target in targets.items()}}


def framework_name(framework: str) -> str:
    """Return a framework's name for its name or an alias.

    Raises:
        MissingFrameworkError: Its package is not usable here.
        UnknownNameError: The name is none of them.
    """
    for spec in frameworks().values():
        if isinstance(framework, str) and framework in (spec.name, *spec.aliases):
            return spec.name
    if framework in provided.framework_names():
        require_framework(framework)
    aliases = [f"{alias!r} is an alias of {spec.name!r}" for spec in frameworks().values() for alias in spec.aliases]
    raise UnknownNameError(
        f"Unknown framework {framework!r}.{nearest(str(framework), frameworks())}"
        f" Known: {', '.join(map(repr, frameworks()))} ({'; '.join(aliases)})."
    )


def default_framework() -> str:
    """Return the first framework of the public index that is installed; the first of all where none is."""
    names = provided.framework_names()
    return next((name for name in names if name in frameworks() and frameworks()[name].is_installed), names[0])


def require_framework(framework: str, distribution: str = "rlcatalog") -> None:
    """Raise unless the framework is installed; nothing is imported.

    Raises:
        MissingFrameworkError: It is not; the message names the extra to install.
    """
    spec = frameworks().get(framework)
    if spec is None or not spec.is_installed:
        package = f"'rlcatalog-{framework}'" if spec is None else repr(spec.module)
        raise MissingFrameworkError(
            f"framework={framework!r} needs the package {package}, which is not installed here"
            f"{', or disabled' if spec is None else ''}."
            f" Install it with: pip install '{distribution or 'rlcatalog'}[{framework}]'"
        )


def framework_of(cls: type) -> Framework | None:
    """Return the framework that a class of tensors is of, or None for anything else (NumPy's arrays)."""
    roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
    return next((spec for spec in frameworks().values() if spec.module in roots), None)
