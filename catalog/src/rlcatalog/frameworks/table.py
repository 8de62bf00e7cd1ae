"""The table of frameworks: what each is called, what must be importable for it, and where its code stands.

The kernel's own are declared in `rlcatalog/plugin.py`; a further one comes with the hook `rlcatalog_frameworks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from rlcatalog import provided
from rlcatalog.errors import DuplicateNameError, MissingFrameworkError, UnknownNameError, nearest


class Framework(NamedTuple):
    """One framework.

    Attributes:
        name: Its name, as users type it.
        module: The module whose presence says that it is installed, and which its tensors' classes come from.
        targets: Import path of what the framework does: `"engine"` runs a policy, `"ops"` are its `TensorOps`,
            `"host"` is the class that a `model_interface` is mixed over, `"separate_value"` its
            `rlcatalog.models.SeparateValue`.
        aliases: Other names for it.

    A target `"before"` is a function to be called before anything of the framework is imported.
    """

    name: str
    module: str
    targets: Mapping[str, str]
    aliases: tuple[str, ...] = ()

    def load(self, what: str) -> Any:
        """Import and return one of the targets."""
        return _load(self.targets[what])

    @property
    def is_installed(self) -> bool:
        """Whether it is installed; nothing is imported."""
        return importlib.util.find_spec(self.module) is not None

    def prepare(self) -> None:
        """Do what must be done before the framework is imported; cheap where there is nothing to do."""
        if "before" in self.targets:
            self.load("before")()


#: Name → framework, in the order in which one is looked for; the kernel's own are entered at the first question. It is
#: replaced, never changed: other threads may be going over it.
_TABLE: dict[str, Framework] = {}
_CHANGING = threading.RLock()


def frameworks() -> Mapping[str, Framework]:
    """Return name → framework: the kernel's own, and those of the plugins that any catalog has loaded."""
    global _TABLE
    if not _TABLE:
        with _CHANGING:
            _TABLE = _TABLE or {spec.name: spec.framework() for spec in provided.frameworks()}
    return _TABLE


def add_framework(framework: Framework) -> bool:
    """Enter a framework into the table; return whether it was not there before.

    Raises:
        DuplicateNameError: One of its names is another one's.
    """
    global _TABLE
    with _CHANGING:
        for other in frameworks().values():
            taken = {framework.name, *framework.aliases} & {other.name, *other.aliases}
            if taken and other != framework:
                raise DuplicateNameError(f"framework {min(taken)!r} is known already; call this one something else.")
        is_new = framework.name not in _TABLE
        _TABLE = {**_TABLE, framework.name: framework}
    return is_new


def forget_framework(name: str) -> None:
    """Take a framework out of the table."""
    global _TABLE
    with _CHANGING:
        _TABLE = {known: framework for known, framework in _TABLE.items() if known != name}


def framework_name(framework: str) -> str:
    """Return a framework's name for its name or an alias.

    Raises:
        UnknownNameError: The name is none of them.
    """
    for spec in frameworks().values():
        if isinstance(framework, str) and framework in (spec.name, *spec.aliases):
            return spec.name
    aliases = [f"{alias!r} is an alias of {spec.name!r}" for spec in frameworks().values() for alias in spec.aliases]
    raise UnknownNameError(
        f"Unknown framework {framework!r}.{nearest(str(framework), frameworks())}"
        f" Known: {', '.join(map(repr, frameworks()))} ({'; '.join(aliases)})."
    )


def default_framework() -> str:
    """Return the first framework of the table that is installed; the first of all where none is."""
    return next((name for name, spec in frameworks().items() if spec.is_installed), next(iter(frameworks())))


def require_framework(framework: str, distribution: str = "rlcatalog") -> None:
    """Raise unless the framework is installed; nothing is imported.

    Raises:
        MissingFrameworkError: It is not; the message names the extra to install.
    """
    spec = frameworks()[framework]
    if not spec.is_installed:
        raise MissingFrameworkError(
            f"framework={framework!r} needs the package {spec.module!r}, which is not installed here."
            f" Install it with: pip install '{distribution or 'rlcatalog'}[{framework}]'"
        )


def framework_of(cls: type) -> Framework | None:
    """Return the framework that a class of tensors is of, or None for anything else (NumPy's arrays)."""
    roots = {base.__module__.partition(".")[0] for base in cls.__mro__}
    return next((spec for spec in frameworks().values() if spec.module in roots), None)


@cache
def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
