"""Declarations, which a plugin's hooks return: frozen objects of strings and small functions.

A declaration gives a part's name, the requests that it fits, and the import path of its code.
rlcatalog imports a target such as `"rlcatalog_fcnet.torch:FullyConnectedNetwork"` on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from rlcatalog import provided
from rlcatalog.errors import DeclarationError, shown
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins.discovery import normalize
from rlcatalog.plugins.request import Request

#: A test for a field's value, and the expected form for messages.
Form = tuple[Callable[[Any], bool], str]
Forms = Mapping[str, Form]


def text_like(pattern: str) -> Callable[[Any], bool]:
    """Return a function that tests whether a value is a string that matches a pattern."""
    return lambda value: (
        isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
    )


def are_texts(value: Any) -> bool:
    """Return whether a value is a tuple of strings."""
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)


_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_PATH: Form = (text_like(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"), "a string 'package.module:Name'")
_FUNCTION: Form = (callable, "a function")
TEXTS: Form = (are_texts, "a tuple of text")

#: The config keys that `rlcatalog.models.post_fcnet` and `output_plan` read: the layers after a
#: trunk.
OUTPUT_KEYS = (
    "vf_share_layers", "free_log_std", "no_final_linear", "post_fcnet_hiddens",
    "post_fcnet_activation", "post_fcnet_weights_initializer",
    "post_fcnet_weights_initializer_config", "post_fcnet_bias_initializer",
    "post_fcnet_bias_initializer_config",
)  # fmt: skip
#: The config keys that apply to a plain module: the form of images, and the layers after it.
PLAIN_KEYS = ("module_images", "image_layout", *OUTPUT_KEYS)


class Rank(IntEnum):
    """How well a part fits; in each slot, the part with the highest rank is chosen."""

    FALLBACK = 1
    GENERIC = 2
    SPECIFIC = 3


class Match(NamedTuple):
    """A part's rank (None if it does not fit), and the reason.

    Example:
        >>> def match(request):
        ...     fits = request.obs.kind == "box" and len(request.obs.shape) == 1
        ...     return Match(Rank.GENERIC, "a vector") if fits else Match(None, "takes vectors")
    """

    rank: Rank | None
    why: str


@dataclass(frozen=True)
class Stage:
    """One stage of a model, as shown by `explain`.

    Attributes:
        name: Name of the stage, such as `hidden 1 (tanh)`.
        shape: Shape of the stage's output for one observation; None if known only after building.
        weights: Number of weights in the stage; None if known only after building.
            `rlcatalog summary` adds them up. Before building, loading rejects a config that
            requires more weights than the file contains.
        whole: Whether `weights` counts all weights; False if it is a lower bound.
    """

    name: str
    shape: tuple[int, ...] | None
    weights: int | None = None
    whole: bool = True


@dataclass(frozen=True)
class Declaration:
    """Base class of all declarations.

    Attributes:
        name: The name that users write into a config.
        targets: Import path of the class by framework: `{"torch": "pkg.torch:Class", "tf":
            "pkg.tf:Class"}`, or `{"numpy": "pkg.codecs:Class"}` for parts that need no
            framework.
        summary: One line for `rlcatalog list`.
        match: A function that returns whether, how well and why the part fits a request. If
            None, the part is chosen by name, by its `switch` or by its `kinds`.
        config: Import path of the msgspec struct with the part's config keys, or None.
        reads: Names of other config keys that the part reads: shared keys of the kernel, or
            another package's keys. Undeclared keys are rejected when the plugin is loaded.
        ignores: A function that returns the keys that have no effect for a request, each with the
            condition under which it has one, such as `"preprocessor_pref='rllib'"`. rlcatalog
            reports them unless another part reads them. If None, the part reads all its
            keys.
        extends: `"distribution/name"` of the part to which this declaration adds targets for
            other frameworks, or None. In that case, `reads` is the only other field that is used.
        examples: Import path of a function that returns `rlcatalog_testing.Example`s, for the
            conformance kit. If None, the kit uses the standard spaces that the part fits.
        switch: The config key that turns the part on in its slot, or None. The values None and
            False turn it off. Without a `match`, the part fits with rank `SPECIFIC` if it is
            on, and does not fit otherwise.
        kinds: The kinds of space that the part supports: `SpaceInfo.kind` or the qualified
            name of a space class. rlcatalog calls `match` only for these; without a `match`, the
            part fits all of them. If empty, it supports all spaces.
    """

    kind: ClassVar[str] = ""
    #: The keys that targets may have; None: framework names, including names that plugins add.
    targets_allowed: ClassVar[frozenset[str] | None] = None
    #: Whether users import targets by name, from `rlcatalog_torch` and similar modules.
    shows_classes: ClassVar[bool] = True
    #: Field → test and expected form; a default of None is also allowed. Subclasses add their
    #: fields.
    forms: ClassVar[Forms] = {
        "name": (text_like(_NAME), "a word of letters, digits, '_', '-' and '.'"),
        "summary": (text_like(".*"), "one line of text"),
        "match": _FUNCTION,
        "config": _PATH,
        "reads": TEXTS,
        "ignores": _FUNCTION,
        "extends": (text_like(rf"[A-Za-z0-9][A-Za-z0-9_.\-]*/{_NAME}"), "'distribution/name'"),
        "examples": _PATH,
        "switch": (text_like(".+"), "the name of a config key"),
        "kinds": TEXTS,
    }

    name: str
    targets: Mapping[str, str]
    summary: str
    match: Callable[[Request], Match] | None = None
    config: str | None = None
    reads: tuple[str, ...] = ()
    ignores: Callable[[Request], Mapping[str, str]] | None = None
    extends: str | None = None
    examples: str | None = None
    switch: str | None = None
    kinds: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.forms = {**Declaration.forms, **cls.forms}

    def __post_init__(self) -> None:
        self.check_fields()

    def check_fields(self) -> None:
        """Check the fields, and normalise them.

        Raises:
            DeclarationError: A field has the wrong form; the message names the declaration.
        """
        for problem in self.problems():
            raise DeclarationError(f"{type(self).__name__}({shown(self.name)}): {problem}.")

    def problems(self) -> Iterator[str]:
        """Yield the problems with the fields, and normalise the fields."""
        for name, (fits, form) in self.forms.items():
            value = getattr(self, name)
            if not fits(value) and not (value is None and getattr(type(self), name, "") is None):
                yield f"{name} must be {form}, found {shown(value)}"
        if (
            not isinstance(self.targets, Mapping)
            or not self.targets
            or not are_texts(tuple(self.targets))
        ):
            yield "targets must map a framework to 'package.module:Class'"
        for framework, target in self.targets.items():
            if self.targets_allowed is not None and framework not in self.targets_allowed:
                yield (
                    f"unknown framework {shown(framework)} in targets; known:"
                    f" {sorted(self.targets_allowed)}"
                )
            if not _PATH[0](target):
                yield f"target {shown(target)} must be a string 'package.module:Class'"
        if self.extends is not None:
            distribution, _, name = self.extends.partition("/")
            object.__setattr__(self, "extends", f"{normalize(distribution)}/{name}")
            if name != self.name:
                yield (
                    "an extension has the same name as the extended part; found"
                    f" extends={self.extends!r}. Name this part {name!r}"
                )

    @property
    def functions(self) -> list[str]:
        """The fields that hold a function."""
        return [
            name
            for name, form in self.forms.items()
            if form is _FUNCTION and getattr(self, name) is not None
        ]

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the declaration's targets."""
        return tuple(self.targets)

    def target_of(self, name: str) -> str:
        """Return the import path of the code for one of `served`."""
        return self.targets[name]

    def adapted(self, target: Callable[..., Any], framework: str) -> Any:
        """Return the object that parts are built from for one of `served`, if not the target
        itself.
        """
        return target

    @property
    def entries(self) -> tuple[str, ...]:
        """The declaration's entries in a table that all catalogs of the process share; empty for
        most kinds.
        """
        return ()

    def enter(self) -> bool:
        """Enter the declaration into that table; return whether it is new.

        Raises:
            DuplicateNameError: Another declaration already has one of its entries.
        """
        return provided.enter(self)

    def leave(self) -> None:
        """Remove the declaration from that table."""
        provided.leave(self)

    def describe_clash(self, entry: str, other: Any) -> str:
        """Describe the problem that another declaration already has this entry."""
        return f"{self.kind} {entry!r} already exists; use another name."

    @property
    def named_keys(self) -> tuple[str, ...]:
        """The config keys that the declaration names."""
        return (
            self.reads
            if self.switch is None or self.switch in self.reads
            else (*self.reads, self.switch)
        )

    def is_on(self, config: Mapping[str, Any]) -> bool:
        """Return whether a config turns the part on."""
        value = None if self.switch is None else config.get(self.switch)
        return value is not None and value is not False

    def judge(self, request: Request) -> Match:
        """Return whether, how well and why the part fits a request."""
        if self.kinds:
            # `request.space_for` without a call: every candidate of every slot is asked.
            space = (request.action or request.obs) if self.kind == "action_dist" else request.obs
            if space.distance(self.kinds) is None:
                return Match(None, f"takes {' or '.join(self.kinds)}, not {space.kind}")
            if self.match is None and self.switch is None:
                return Match(Rank.GENERIC, f"the space is a {space.kind}")
        if self.match is not None:
            return self.match(request)
        if self.switch is None:
            return Match(None, "only chosen by name")
        if self.is_on(request.config):
            return Match(Rank.SPECIFIC, f"{self.switch} is set")
        return Match(None, f"{self.switch} is not set")


class PreprocessorSpec(Declaration):
    """A `Preprocessor` class: the codec for one or more kinds of space."""

    kind: ClassVar[str] = "preprocessor"
    targets_allowed = frozenset({"numpy"})


class FilterSpec(Declaration):
    """A `Filter` class, a stateful stage between preprocessor and model; chosen by
    `observation_filter`.
    """

    kind: ClassVar[str] = "filter"
    targets_allowed = frozenset({"numpy"})


class EnvWrapperSpec(Declaration):
    """A function `wrap(env, config) -> env`; `match` sees the environment as `request.env`."""

    kind: ClassVar[str] = "env_wrapper"
    targets_allowed = frozenset({"numpy"})


@dataclass(frozen=True)
class ModelSpec(Declaration):
    """A model class.

    Attributes:
        slot: `"trunk"`, `"memory"` or `"head"`; a memory and a head are built around the trunk.
        claims: For a head, a function that returns the keys of a Dict observation that the head
            reads itself. Trunk and memory are chosen for the remaining keys, and see only those.
        describe: A function that returns the stages and their shapes without importing a framework.
            If None, they are "known after build".
        pinned_keys: For a model that requests other models, a function that returns config keys
            with the names of the models chosen. A saved policy stores them, so that loading does
            not repeat the choice.
        plain: Whether its targets are plain modules: a class, an instance or a factory of
            `torch.nn.Module` or `keras.Layer`. Such a model is a trunk, and reads the keys of
            `PLAIN_KEYS`.

    Example:
        >>> @hookimpl
        ... def rlcatalog_models():
        ...     return [ModelSpec("acme_net", {"torch": "acme_net.torch:Net"}, "a residual net")]
        >>> rlcatalog_models()[0].slot
        'trunk'
    """

    kind: ClassVar[str] = "model"
    forms: ClassVar[Forms] = {
        "slot": (text_like("trunk|memory|head"), "trunk, memory or head"),
        "claims": _FUNCTION,
        "describe": _FUNCTION,
        "pinned_keys": _FUNCTION,
        "plain": (lambda value: isinstance(value, bool), "True or False"),
    }

    slot: str = "trunk"
    claims: Callable[[Request], Sequence[str]] | None = None
    describe: Callable[[Request], Sequence[Stage]] | None = None
    pinned_keys: Callable[[Request], Mapping[str, Any]] | None = None
    plain: bool = False

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.plain and self.slot != "trunk":
            yield (
                f"a plain module is a trunk; found slot={self.slot!r}. Derive it from"
                " TorchModelV2 or TFModelV2"
            )
        if self.plain and not self.extends:
            object.__setattr__(self, "reads", tuple(dict.fromkeys((*self.reads, *PLAIN_KEYS))))

    def adapted(self, target: Callable[..., Any], framework: str) -> Any:
        return frameworks()[framework].load("plain").of(target) if self.plain else target


@dataclass(frozen=True)
class ActionDistSpec(Declaration):
    """An action-distribution class.

    Attributes:
        size: A function of the action space and the model config that returns the number of model
            outputs. It must agree with the class's `required_model_output_shape`. A composite can
            omit it.
        composite: Whether it joins distributions that the catalog chooses for the children of a
            Tuple or Dict. Its size is the sum of their sizes.
        wraps_default: Whether it wraps the distribution that the catalog would otherwise choose.
            `size` then gets that distribution's size as a third argument.
        initial_std: A function of the action space and the model config that returns the standard
            deviation of raw actions before training, if their mean is then 0. rlcatalog warns if
            they hardly reach the actions within the bounds. If None, it does not check this, as for
            distributions that draw within the bounds.

    Example:
        >>> def size(action, config):
        ...     return 2 * int(np.prod(action.shape))
        >>> targets = {"torch": "acme_dist.torch:Laplace"}
        >>> ActionDistSpec("acme_laplace", targets, "independent Laplace values", size=size).kind
        'action_dist'
    """

    kind: ClassVar[str] = "action_dist"
    forms: ClassVar[Forms] = {"size": _FUNCTION, "initial_std": _FUNCTION}

    composite: bool = False
    wraps_default: bool = False
    size: Callable[..., int] | None = None
    initial_std: Callable[..., float] | None = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.size is None and not self.composite and not self.extends:
            yield "size must be a function of the action SpaceInfo and the config"


class CommandSpec(Declaration):
    """A sub-command of `rlcatalog`: `targets={"cli": "pkg.cli:function"}` names a
    typer function.
    """

    kind: ClassVar[str] = "command"
    targets_allowed = frozenset({"cli"})


class EngineSpec(Declaration):
    """An engine: `targets={"engine": "pkg.engine:Class"}` names a `rlcatalog_runs.Engine`;
    `rlcatalog train` uses it.

    `rlcatalog train --help` imports the target's module, so import heavy modules there only when
    the engine is created.
    """

    kind: ClassVar[str] = "engine"
    targets_allowed = frozenset({"engine"})
    shows_classes = False


class CheckSpec(Declaration):
    """A conformance-kit check: `targets={"checks": "pkg.checks:function"}` names a
    `rlcatalog_testing.Check`.
    """

    kind: ClassVar[str] = "check"
    targets_allowed = frozenset({"checks"})


@dataclass(frozen=True)
class ExporterSpec(Declaration):
    """A format for exported policies; its name is the `format` of
    `policy.export(path, format=...)`.

    Its target `"runner"` is a function `load(path) -> rlcatalog_export.Runner` that loads such a
    file to run it. The function that writes such a file, `write(policy, path) ->
    rlcatalog_export.Exported`, is a framework's target: a `FrameworkSpec` that extends it adds
    `"export-NAME"`.

    Attributes:
        suffix: File suffix, such as `".onnx"`, which selects the format if none is named; empty for
            a format that writes folders.
    """

    kind: ClassVar[str] = "exporter"
    targets_allowed = frozenset({"runner"})
    shows_classes = False
    forms: ClassVar[Forms] = {
        "suffix": (text_like(r"(\.[A-Za-z0-9_.\-]+)?"), "text such as '.onnx'")
    }

    suffix: str = ""

    @property
    def served(self) -> tuple[str, ...]:
        """The runner, and the frameworks whose policies it can export."""
        return (*self.targets, *(name for name in frameworks() if self._writer(name) is not None))

    def target_of(self, name: str) -> str:
        """Return the import path of the runner, or of a framework's writer."""
        return self._writer(name) or self.targets[name]

    def _writer(self, framework: str) -> str | None:
        spec = frameworks().get(framework)
        return None if spec is None else spec.target(f"export-{self.name}")

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if "runner" not in self.targets:
            yield "targets must have 'runner', which runs exported files"
