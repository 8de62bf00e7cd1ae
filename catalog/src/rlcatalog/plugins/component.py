"""Component: a named part with what its plugin declared, where it comes from, and how its code is reached."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    ModelContractError,
    NotServedError,
    PartError,
    raised_as,
    shown,
)
from rlcatalog.frameworks import frameworks, require_framework
from rlcatalog.plugins import public_index
from rlcatalog.plugins.declarations import Declaration

T = TypeVar("T")


@dataclass
class Component:
    """One named part and where it comes from.

    Attributes:
        declaration: What the plugin said about it.
        distribution: Distribution that provides it; empty for one registered in process.
        version: That distribution's version.
        objects: Classes by framework, for a component registered in process.
        extensions: Framework → the component of another package that brings the code for it.
        rivals: Framework → the components of several packages that bring it, none of them the framework's own.
    """

    declaration: Declaration
    distribution: str
    version: str
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    extensions: dict[str, Component] = field(default_factory=dict, repr=False)
    rivals: dict[str, list[Component]] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """The kind: `"model"`, `"preprocessor"`, …"""
        return self.declaration.kind

    @property
    def name(self) -> str:
        """The name users write into a config."""
        return self.declaration.name

    @property
    def in_process(self) -> bool:
        """Whether it was registered by the running program."""
        return not self.distribution

    @cached_property
    def is_listed(self) -> bool:
        """Whether it is the one that the public index has under its name."""
        return not self.in_process and public_index.provider_of(self.kind, self.name) == self.distribution

    @property
    def is_strange(self) -> bool:
        """Whether it is a plugin's that the public index does not list."""
        return not (self.in_process or self.is_listed)

    @property
    def undeclared(self) -> bool:
        """Whether it is a class of the running program that declares no keys, as RLlib's custom classes do."""
        declaration = self.declaration
        return self.in_process and declaration.config is None and not declaration.reads

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Frameworks there is code for, or `"numpy"` or `"cli"` for parts that need none."""
        return (*self.declaration.served, *self.extensions)

    @property
    def address(self) -> str:
        """`"distribution/name"`, by which it is found again; the name alone for one of the running program."""
        return f"{self.distribution}/{self.name}" if self.distribution else self.name

    @property
    def provider(self) -> str:
        """Distribution and version as one text."""
        return f"{self.distribution} {self.version}" if self.distribution else "registered in process"

    @property
    def label(self) -> str:
        """`"model 'glu' of acme-glu 1.0"`, for messages beside a class; empty for one of the running program."""
        return f"{self.kind} {self.name!r} of {self.provider}" if self.distribution else ""

    def check_framework(self, target: str) -> None:
        """Raise unless the component has this target, and its framework is installed."""
        framework = _framework_of(target)
        if framework is not None:
            if target in self.rivals:
                who = " and ".join(c.provider for c in self.rivals[target])
                raise AmbiguousChoiceError(
                    f"{self.kind} {self.name!r} ({self.provider}): {who} bring its code for {target!r}. Disable one of"
                    f" them: RLCATALOG_DISABLE_PLUGINS={self.rivals[target][0].distribution}."
                )
            if target not in self.frameworks:
                raise NotServedError(
                    f"{self.kind} {self.name!r} ({self.provider}) has no code for framework={target!r};"
                    f" it serves: {', '.join(self.frameworks)}."
                )
            require_framework(framework, self.distribution)

    def ask(self, name: str, *arguments: Any, returns: Callable[[Any], T]) -> T:
        """Call a function of the declaration and convert what it returns.

        Args:
            name: The field that holds the function.
            *arguments: Its arguments.
            returns: Converts the answer, and raises TypeError or ValueError where it is of the wrong kind.

        Raises:
            PartError: The function raised, or its answer is of the wrong kind.
        """
        # An error of ours is about the request, not about the plugin.
        with raised_as(lambda why: self.fault(f"its {name} function raised {why}."), CatalogError):
            answer = getattr(self.declaration, name)(*arguments)
        with raised_as(lambda why: self.fault(f"its {name} function returned {shown(answer)}: {why}.")):
            return returns(answer)

    def fault(self, what: str) -> PartError:
        """Return the error that says what is wrong with this component."""
        return PartError(f"{self.kind} {self.name!r} ({self.provider}): {what}", self)

    def load(self, framework: str) -> Any:
        """Import and return the target for a framework.

        Raises:
            NotServedError: The component has none for it.
            MissingFrameworkError: The framework is not installed.
            PartError: The import failed, or the module lacks the class.
        """
        self.check_framework(framework)
        if framework in self.objects:
            return self.objects[framework]
        if framework in self.extensions:
            return self.extensions[framework].load(framework)
        target, needed = self.declaration.target_of(framework), _framework_of(framework)
        if needed is not None:
            frameworks()[needed].prepare()
        return self.imported(target)

    def imported(self, target: str) -> Any:
        """Import a class or a function that the declaration names.

        Raises:
            PartError: The import failed, or the module lacks it.
        """
        module, _, attribute = target.partition(":")
        with raised_as(lambda why: self.fault(f"its target {target!r} cannot be imported: {why}")):
            found = getattr(importlib.import_module(module), attribute)
        if not callable(found):
            raise self.fault(f"its target {target!r} must be a class or a function, found {shown(found)}.")
        return found


def _framework_of(target: str) -> str | None:
    """Return the framework that a target is code for; None: of none."""
    return target if target in {*frameworks(), *public_index.frameworks()} else None


def call_target(component: Component, framework: str, *arguments: Any, **options: Any) -> Any:
    """Call a part's target and return what it makes.

    Raises:
        CatalogError: It cannot be imported, or refuses the arguments.
        PartError: It raised anything else.
    """
    target = component.load(framework)
    with blamed(component):
        return target(*arguments, **options)


@contextmanager
def named(component: Component) -> Iterator[None]:
    """Run a part's code; where it breaks its contract, the error says whose part it is."""
    try:
        yield
    except ModelContractError as error:
        if component.distribution and component.provider not in str(error):
            error.args = (f"{component.kind} {component.name!r} ({component.provider}): {error}",)
        raise


@contextmanager
def blamed(component: Component, what: str = "") -> Iterator[None]:
    """Run a part's code under its name.

    Args:
        component: The part.
        what: What of it runs, where the message should say: a method's name.

    Raises:
        PartError: The code raised something that is not ours.
    """

    def error(why: str) -> PartError:
        who = f"{component.kind} {component.name!r} ({component.provider}){what and f': its {what}'}"
        return PartError(f"{who} raised {why}", component)

    with raised_as(error, CatalogError):  # ours is about the environment, the observation or the config
        yield
