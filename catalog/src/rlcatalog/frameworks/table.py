"""Frameworks: their declaration, the table of declared ones, and what is asked of it.

Plugins declare frameworks with the hook `rlcatalog_frameworks`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any, ClassVar

from rlcatalog import plugin_access, public_index
from rlcatalog.declaration import TEXTS, Form, Forms, text_like
from rlcatalog.errors import (
    DuplicateNameError,
    MissingFrameworkError,
    NotServedError,
    UnknownNameError,
    nearest,
)
from rlcatalog.shared_declarations import SharedDeclaration, SharedTable

#: The targets of a framework's own declaration; declarations that extend it have others.
_TARGETS = frozenset({
    "backend", "ops", "learner", "host", "separate_value", "separate_critic", "layers_after_memory",
    "add_time_dimension", "distribution", "policy_module", "kit", "before", "bookkeeping",
})  # fmt: skip
_REQUIRED_TARGETS = frozenset({"backend", "ops"})

_load = cache(resolve_name)


@dataclass(frozen=True)
class FrameworkSpec(SharedDeclaration):
    """A framework for models and distributions.

    Its targets name its code. Two are required: `"backend"`, the class that runs a policy
    (`rlcatalog.frameworks.Backend`), and `"ops"`, its `rlcatalog.frameworks.TensorOps`. The others
    are optional:

    - `"bookkeeping"`: the `rlcatalog.models.ModelBookkeeping` of its models, which reads and sets
      their weights;
    - `"learner"`: gradients, clipping, an optimizer and seeds (`rlcatalog.frameworks.Learner`);
    - `"host"`: the base class that a `model_interface` is mixed into
      (`rlcatalog.models.ModelWrapper`);
    - `"separate_value"`: its `rlcatalog.models.SeparateValue`;
    - `"separate_critic"`: its `rlcatalog.models.SeparateCritic`;
    - `"layers_after_memory"`: its `rlcatalog.models.LayersAfterMemory`;
    - `"add_time_dimension"`: a function that adds the time axis to padded rows;
    - `"distribution"`: a function that returns an action-distribution class for a class of the
      framework's distributions, or for a factory of them and its number of inputs. It returns
      anything else unchanged;
    - `"kit"`: functions for the conformance kit (`rlcatalog_testing.Kit`);
    - `"policy_module"`: a function that creates the result of `policy.as_module()` from the policy;
    - `"before"`: a function that rlcatalog calls before it imports a part of the framework.

    Other packages add targets to a framework with `extends`. rlcatalog-ppo adds the target `"ppo"`.
    rlcatalog-plain adds `"plain"` and `"plain_memory"`, the classes that turn a plain module into a
    trunk or a memory. rlcatalog-export adds `"freeze"`, a function `freeze(policy, rows, seed)`
    that returns a `rlcatalog_policy.FrozenBackend`.

    Attributes:
        module: The module that shows whether the framework is installed, and that defines its
            tensor classes.
        aliases: Other names for the framework.
        packages: Other top-level modules whose classes belong to the framework, such as
            `("keras",)`.
    """

    kind: ClassVar[str] = "framework"
    shows_classes = False
    forms: ClassVar[Forms] = {
        "module": Form(text_like(".*"), "the name of a top-level module"),
        "aliases": TEXTS,
        "packages": TEXTS,
    }
    #: Name or alias → framework, and `"name: target"` → the declaration that adds this target.
    table: ClassVar[SharedTable[FrameworkSpec]] = SharedTable("framework")

    module: str = ""
    aliases: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.extends is not None:
            return  # the framework's own declaration has the module and the required targets
        if not self.module.isidentifier():
            yield f"module must be the name of a top-level module, found {self.module!r}"
        unknown = sorted(self.targets.keys() - _TARGETS)
        if unknown:
            yield (
                f"unknown target {unknown[0]!r}.{nearest(unknown[0], _TARGETS)} Known:"
                f" {sorted(_TARGETS)}. Add others with a second FrameworkSpec that extends this"
                " one"
            )
        missing = sorted(_REQUIRED_TARGETS - self.targets.keys())
        if missing:
            yield f"targets must have {' and '.join(map(repr, missing))}"

    @property
    def entries(self) -> tuple[str, ...]:
        if self.extends is not None:
            return tuple(self._entry(target) for target in self.targets)
        return (self.name, *self.aliases)

    def _entry(self, target: str) -> str:
        """Return the table's entry for a target that another package adds."""
        return f"{self.name}: {target}"

    def enter(self) -> bool:
        extended = None
        if self.extends is not None:
            extended = frameworks().get(self.name)
        if extended is not None:
            for target in extended.targets.keys() & self.targets.keys():
                raise DuplicateNameError(self.describe_clash(self._entry(target), extended))
        return super().enter()

    def describe_clash(self, entry: str, other: SharedDeclaration) -> str:
        if self.extends is None:
            return super().describe_clash(entry, other)
        target = entry.removeprefix(self._entry(""))
        return f"framework {self.name!r} already has a target {target!r}; use another name."

    # --- of a framework, not of what extends one --------------------------------------------------

    def target(self, what: str) -> str | None:
        """Return the import path of a target that this or another package declares; None if there
        is none.
        """
        path = self.targets.get(what)
        if path is not None:
            return path
        extension = self.table.specs.get(self._entry(what))
        if extension is None:
            return None
        return extension.targets[what]

    def load(self, what: str, user: str = "rlcatalog") -> Any:
        """Import and return a target.

        Args:
            what: The target's name.
            user: The distribution that requests the target, for the error message.

        Raises:
            NotServedError: No package declares this target.
        """
        path = self.target(what)
        if path is None:
            cause = f"no installed package declares its {what!r}."
            unusable = self.unusable_provider(what)
            if unusable is not None:
                cause = f"its {what!r} {unusable}"
            raise NotServedError(f"{user} has no code for framework={self.name!r}: {cause}")
        return _load(path)

    def unusable_provider(self, what: str) -> str | None:
        """Return which installed package of the public index provides a missing target, and what
        keeps it from being used, as the end of a sentence; None if no such package is installed.
        """
        owner = public_index.provider_of("framework", self._entry(what))
        if owner is None:
            return None
        condition = plugin_access.plugins.condition_of(owner)
        if condition is None:
            return None
        return f"is provided by {owner}, which {condition}"

    @property
    def is_installed(self) -> bool:
        """Return whether the framework is installed, without importing it."""
        return importlib.util.find_spec(self.module) is not None

    def prepare(self) -> None:
        """Prepare the import of the framework."""
        if "before" in self.targets:
            self.load("before")()


def frameworks() -> Mapping[str, FrameworkSpec]:
    """Return name → framework: first the installed ones in the public index, in its order, then
    third-party ones.
    """
    return {spec.name: spec for spec in FrameworkSpec.table.specs.values() if spec.extends is None}


def find_framework(name: str) -> FrameworkSpec | None:
    """Return the framework with this name or alias, or None."""
    if not isinstance(name, str):
        return None  # a user may pass anything, even what is not hashable
    spec = FrameworkSpec.table.specs.get(name)
    if spec is None or spec.extends is not None:
        return None
    return spec


def framework_name(framework: str) -> str:
    """Return the framework's name, given its name or an alias.

    Raises:
        MissingFrameworkError: Its package is missing, disabled or failed to load.
        UnknownNameError: No framework has this name.
    """
    spec = find_framework(framework)
    if spec is not None:
        return spec.name
    if framework in public_index.frameworks():
        require_framework(framework)  # raises an error that says what to install
    declared = frameworks()
    aliases = []
    for spec in declared.values():
        aliases += [f"{alias!r} is an alias of {spec.name!r}" for alias in spec.aliases]
    raise UnknownNameError(
        f"Unknown framework {framework!r}.{nearest(str(framework), declared)}"
        f" Known: {', '.join(map(repr, declared))} ({'; '.join(aliases)})."
    )


def default_framework() -> str:
    """Return the first installed framework in the public index, or its first framework if none is
    installed.
    """
    declared = frameworks()
    names = public_index.frameworks()
    for name in names:
        if name in declared and declared[name].is_installed:
            return name
    return names[0]


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
        package = spec.module
    else:
        package = f"rlcatalog-{framework}"
        condition = plugin_access.plugins.condition_of(package)
        if condition is not None:
            raise MissingFrameworkError(
                f"framework={framework!r} needs the package {package!r}, which {condition}"
            )
    hint = "Install it as its authors describe."
    if framework in public_index.frameworks():
        hint = plugin_access.plugins.install_hint(f"rlcatalog[{framework}]")
    raise MissingFrameworkError(
        f"framework={framework!r} needs the package {package!r}, which is not installed. {hint}"
    )


def framework_of(cls: type) -> FrameworkSpec | None:
    """Return the framework of a class or of its nearest base that has one; None for
    NumPy arrays.
    """
    framework_by_package = {}
    for spec in frameworks().values():
        for package in (spec.module, *spec.packages):
            framework_by_package[package] = spec
    for base in cls.__mro__:
        package = base.__module__.split(".")[0]
        if package in framework_by_package:
            return framework_by_package[package]
    return None
