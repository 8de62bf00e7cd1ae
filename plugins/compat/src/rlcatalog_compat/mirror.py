"""The mirror's modules, created on import from the table in `names.toml`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rlcatalog import default_catalog
from rlcatalog.errors import MissingFrameworkError, NotServedError, nearest
from rlcatalog.frameworks import require_framework
from rlcatalog_compat.frameworks import absent
from rlcatalog_compat.names import modules, reason_for, supported_paths

PREFIX = "rlcatalog_compat."
#: Ray packages in the table; defined here so that loading the plugin does not read the table.
ROOTS = ("air", "rllib", "train", "tune", "util")


class NotMirroredError(NotServedError, ImportError):
    """A module or name of RLlib does not exist in rlcatalog-compat; the message says why."""


class NameNotMirroredError(NotServedError, AttributeError):
    """A module of rlcatalog-compat lacks a name that RLlib has.

    It is also an AttributeError, so that `hasattr` works.
    """


class Mirror(ModuleType):
    """Mirror module, whose names are looked up in the table on each access."""

    def __getattr__(self, name: str) -> Any:
        return lookup(self.__name__, name)

    def __dir__(self) -> list[str]:
        path = self.__name__.removeprefix(PREFIX)
        names = set()
        for other_path in supported_paths():
            parent, _, name = other_path.rpartition(".")
            if parent == path:
                names.add(name)
        if path in modules():
            names.update(modules()[path].names)
        return sorted(names)


class _Finder(MetaPathFinder, Loader):
    """Finder for the mirror's modules; it raises an error with the reason for other
    RLlib modules.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a mirror module's spec, or None for other modules."""
        inside = fullname.removeprefix(PREFIX)
        if inside == fullname or inside.partition(".")[0] not in ROOTS:
            return None
        parent, _, name = inside.rpartition(".")
        if parent in modules() and name in modules()[parent].names:
            return None  # a name, not a module
        if inside not in supported_paths():
            # Also called for names: for `from module import name`, Python tries a module if there
            # is no attribute.
            raise NotMirroredError(missing(inside))
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the empty module."""
        return Mirror(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Describe the module; its names are loaded on first use."""
        path = module.__name__.removeprefix(PREFIX)
        module.__doc__ = f"The mirror of ray.{path}; see rlcatalog_compat.names."
        names: list[str] = []
        if path in modules():
            names = sorted(modules()[path].names)
        module.__dict__["__all__"] = names


def install() -> None:
    """Install the finder once, ahead of the import system's other finders."""
    if not any(type(finder) is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def lookup(module: str, name: str) -> Any:
    """Return the object that a name in a mirror module refers to.

    Args:
        module: The module, `"rlcatalog_compat.rllib..."`.
        name: The requested name.

    Raises:
        NameNotMirroredError: The RLlib name is unsupported or unknown.
        AttributeError: The name begins with an underscore, like the names that Python itself looks
            up.
    """
    path = ""  # `rlcatalog_compat` itself, which stands for `ray`
    full_path = name
    if module.startswith(PREFIX):
        path = module.removeprefix(PREFIX)
        full_path = f"{path}.{name}"
    entry = modules().get(path)
    if entry is not None and name in entry.names:
        return resolve(entry.names[name], name)
    if full_path in supported_paths():
        return importlib.import_module(PREFIX + full_path)
    if name.startswith("_"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    raise NameNotMirroredError(missing(full_path))


def missing(path: str) -> str:
    """Return why an RLlib module or name is not supported.

    Args:
        path: The module and the name in it, without `ray.`.
    """
    why = reason_for(path)
    if why:
        return f"ray.{path} is not supported: {why}."
    parent, _, name = path.rpartition(".")
    suggestion = ""
    if parent in modules():
        suggestion = nearest(name, modules()[parent].names)
    return (
        f"ray.{path} is unknown to rlcatalog-compat.{suggestion} docs/porting.md lists the"
        " supported names."
    )


def _why_unusable(module: str) -> str | None:
    """Return why a module cannot be imported if it needs a framework that is missing, or None."""
    for framework in ("torch", "tf"):
        if module.endswith((f".{framework}", f"_{framework}")):
            try:
                require_framework(framework)
            except MissingFrameworkError as error:
                return str(error)
    return None


def resolve(target: str, name: str) -> Any:
    """Return the object that a target refers to; if its framework is missing, a class that raises
    an error when used.

    Args:
        target: `"module:attribute"`.
        name: RLlib's name.

    Raises:
        MissingPluginError: The package that provides it is not installed.
    """
    home, _, attribute = target.partition(":")
    why_unusable = _why_unusable(home)
    if why_unusable is not None:
        # RLlib files define classes for both frameworks, and must be importable with only one of
        # them.
        return absent(name, why_unusable)
    package = home.partition(".")[0]
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name == package:
            default_catalog().registry.explain_missing(name, package.replace("_", "-"))
        raise
    # `names.toml` names this attribute of one of our modules.
    return getattr(module, attribute)
