"""Part: what a plugin declares under a name, with its origin and access to its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, TypeVar

from rlcatalog import public_index
from rlcatalog.errors import (
    AmbiguousChoiceError,
    CatalogError,
    NotServedError,
    PartError,
    raised_as,
    shown,
)
from rlcatalog.frameworks import frameworks, require_framework
from rlcatalog.plugins.declarations import Declaration, ModelSpec

T = TypeVar("T")


@dataclass
class Part:
    """One named building block, such as a model or a distribution, and its origin.

    Attributes:
        declaration: The plugin's declaration.
        distribution: Distribution that provides the part; empty for a part registered in
            process.
        version: That distribution's version.
        objects: Classes by framework, for a part registered in process.
        extensions: Framework → parts of other packages that add code for it: one, or all of
            them if several packages have such code and none owns the framework.
        kind: The kind: `"model"`, `"preprocessor"`, …
        name: The name that users write into a config.
        slot: The slot that the part fills: the declared slot of a model, otherwise the kind.
        switch: The config key that turns the part on, or None.
        in_process: Whether the part was registered by the running program.
        is_indexed: Whether the public index lists the part under its name.
        is_third_party: Whether the part belongs to a plugin that the public index does not
            list.
        is_plain: Whether the part is a plain module, which sees encoded observations only.
        dense_layers: The beginnings of the config keys of the dense layers with which a trunk ends.
        undeclared: Whether the part is a registered class that declares no keys, such as one
            of RLlib's custom classes.
        address: `"distribution/name"`; for a registered class, only the name.
        provider: Distribution and version as one string.
        title: Text such as `"model 'glu' (acme-glu 1.0)"`, for error messages.
    """

    declaration: Declaration
    distribution: str
    version: str
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    extensions: dict[str, list[Part]] = field(default_factory=dict, repr=False)

    #: Framework → the target that `load` has imported.
    _targets: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        declaration = self.declaration
        self.kind = declaration.kind
        self.name = declaration.name
        self.switch = declaration.switch
        self.slot = declaration.kind
        self.is_plain = False
        self.dense_layers: tuple[str, ...] = ()
        if isinstance(declaration, ModelSpec):
            self.slot = declaration.slot
            self.is_plain = declaration.plain
            self.dense_layers = declaration.dense_layers
        self.in_process = not self.distribution  # a class of the running program has none
        if self.in_process:
            self.address = self.name
            self.provider = "registered in process"
            self.is_indexed = False
            self.is_third_party = False
            self.undeclared = declaration.config is None and not declaration.reads
        else:
            self.address = f"{self.distribution}/{self.name}"
            self.provider = f"{self.distribution} {self.version}"
            owner = public_index.provider_of(self.kind, self.name)
            self.is_indexed = owner == self.distribution
            self.is_third_party = not self.is_indexed
            self.undeclared = False
        self.title = f"{self.kind} {self.name!r} ({self.provider})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_targets": {}}

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Frameworks that the part has code for, or `"numpy"` or `"cli"` for a part that
        needs none.
        """
        return (*self.declaration.target_names, *self.extensions)

    @property
    def label(self) -> str:
        """Text such as `"model 'glu' of acme-glu 1.0"`, for messages about a class; empty for a
        registered class.
        """
        if self.in_process:
            return ""
        return f"{self.kind} {self.name!r} of {self.provider}"

    def check_framework(self, target: str) -> None:
        """Check that the part has code for a framework, and that the framework
        is installed.
        """
        is_framework = target in frameworks() or target in public_index.frameworks()
        if not is_framework:
            return  # such as "numpy", which every process has
        # The packages that have code for it, if none of them owns the framework.
        rivals = self.extensions.get(target, [])
        if len(rivals) > 1:
            providers = " and ".join(rival.provider for rival in rivals)
            raise AmbiguousChoiceError(
                f"{self.title}: {providers} provide its code for {target!r}. Disable one of them:"
                f" RLCATALOG_DISABLE_PLUGINS={rivals[0].distribution}."
            )
        if target not in self.frameworks:
            raise NotServedError(
                f"{self.title} has no code for framework={target!r}; it supports:"
                f" {', '.join(self.frameworks)}."
            )
        require_framework(target)

    def ask(self, name: str, *arguments: Any, returns: Callable[[Any], T]) -> T:
        """Call one of the declaration's functions and convert its result.

        Args:
            name: The field that holds the function.
            *arguments: Its arguments.
            returns: A function that converts the result, and raises TypeError or ValueError for a
                result of the wrong kind.

        Raises:
            PartError: The function raised an error, or its result is of the wrong kind.
        """
        what = f"its {name} function"
        function = vars(self.declaration)[name]
        # An error of rlcatalog is about the request, not about the part, so it stays as it is.
        with raised_as(lambda why: self.fault(f"{what} raised {why}."), CatalogError):
            answer = function(*arguments)
        with raised_as(lambda why: self.fault(f"{what} returned {shown(answer)}: {why}.")):
            return returns(answer)

    def fault(self, what: str) -> PartError:
        """Return an error that names this part."""
        return PartError(f"{self.title}: {what}", self)

    def load(self, framework: str) -> Any:
        """Import and return the target for a framework.

        Raises:
            NotServedError: The part has no target for this framework.
            MissingFrameworkError: The framework is not installed.
            PartError: The import failed, or the module does not contain the class.
        """
        if framework in self._targets:
            return self._targets[framework]
        self.check_framework(framework)
        if framework in self.extensions and framework not in self.objects:
            only_extension = self.extensions[framework][0]  # `check_framework` refuses several
            return only_extension.load(framework)
        target = self.objects.get(framework)
        if target is None:
            spec = frameworks().get(framework)
            if spec is not None:
                spec.prepare()
            target = self.import_target(self.declaration.target_of(framework))
        target = self.declaration.adapt(target, framework)
        self._targets[framework] = target
        return target

    def import_target(self, target: str) -> Any:
        """Import a class or a function that the declaration names.

        Raises:
            PartError: The import failed, or the module does not contain it.
        """
        with raised_as(lambda why: self.fault(f"its target {target!r} cannot be imported: {why}")):
            target_object = resolve_name(target)
        if not callable(target_object):
            raise self.fault(
                f"its target {target!r} must be a class or a function, found"
                f" {shown(target_object)}."
            )
        return target_object


def call_target(part: Part, framework: str, *arguments: Any, **options: Any) -> Any:
    """Call a part's target and return the result.

    Raises:
        CatalogError: The target cannot be imported, or raised one of rlcatalog's errors.
        PartError: The target raised any other error.
    """
    target = part.load(framework)
    with blame_part(part):
        return target(*arguments, **options)


def blame_part(part: Part, what: str = "") -> AbstractContextManager[None]:
    """Run a part's code and report errors under its name; rlcatalog's own errors propagate
    unchanged.

    Args:
        part: The part.
        what: Name of the method that runs, for the error message.

    Raises:
        PartError: The code raised an error that does not come from rlcatalog.
    """
    title = part.title
    if what:
        title += f": its {what}"
    return raised_as(lambda why: PartError(f"{title} raised {why}", part), CatalogError)
