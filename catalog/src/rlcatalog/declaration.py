"""`Declaration`, the base class of what plugins' hooks return, and the answers of its functions.

Most kinds of declarations are in the room `plugins`. Frameworks and action codecs are declared in
the rooms that use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rlcatalog.errors import DeclarationError, shown

if TYPE_CHECKING:
    # Upward, for checkers alone: the functions of a declaration take a request, which needs this
    # file.
    from rlcatalog.plugins.request import Request

# --- forms of fields ------------------------------------------------------------------------------


class Form(NamedTuple):
    """Form of a declaration's field.

    Attributes:
        fits: A test for the field's value.
        expected: The expected form, for messages.
    """

    fits: Callable[[Any], bool]
    expected: str


Forms = Mapping[str, Form]


def _is_text_like(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


def text_like(pattern: str) -> Callable[[Any], bool]:
    """Return a function that tests whether a value is a string that matches a pattern."""
    return partial(_is_text_like, pattern)


def are_texts(value: Any) -> bool:
    """Return whether a value is a tuple of strings."""
    return isinstance(value, tuple) and all(isinstance(text, str) for text in value)


_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
_PATH = Form(text_like(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"), "a string 'package.module:Name'")
FUNCTION = Form(callable, "a function")
TEXTS = Form(are_texts, "a tuple of text")


def normalize(name: str) -> str:
    """Return a distribution's name in its canonical spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


# --- declarations ---------------------------------------------------------------------------------


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
class Declaration:
    """Base class of all declarations.

    Attributes:
        name: The name that users write into a config, of letters, digits, `_`, `-` and `.`. It
            starts with the name of your package.
        targets: Import path of the class by framework: `{"torch": "pkg.torch:Class", "tf":
            "pkg.tf:Class"}`, or `{"numpy": "pkg.codecs:Class"}` for parts that need no
            framework. Commands use the key `"cli"`, engines `"engine"`, checks `"checks"`.
            rlcatalog imports the code when it first needs it.
        summary: One line for `rlcatalog list`.
        match: A function `match(request)` that returns `Match(rank, why)`: how well the part fits,
            or None if it does not, and the reason. It is also asked about a part that the config
            names; then `request.is_named` is True, and None is an error. Without a `match`, the
            part is chosen by name, by its `switch` or by its `kinds`.
        config: Import path of the msgspec struct with the part's config keys, or None. Each key has
            a type, a default and a `Meta(description=...)`, and its name starts with your
            package's name.
        reads: Names of other config keys that the part reads: shared keys of the kernel, or
            another package's keys. Unknown keys are rejected when the plugin is loaded, unless the
            public index lists them for a package that is not installed.
        ignores: A function that returns the keys that have no effect for a request, each with the
            condition under which it has one, such as `"preprocessor_pref='rllib'"`. rlcatalog
            reports them unless another part reads them. If None, the part reads all its
            keys.
        extends: `"distribution/name"` of the part to which this declaration adds targets for
            other frameworks, or None; `name` must be the name of that part. Apart from these,
            only `reads` is used: the keys that the added code reads. If two packages add the same
            target, the framework's own package wins; otherwise, using the target raises an error.
        examples: Import path of a function that returns `rlcatalog_testing.Example`s, for the
            conformance kit. If None, the kit uses the standard spaces that the part fits. With a
            `match`, it uses these in addition.
        switch: The config key that turns an optional part on in its slot, or None. The values None
            and False turn it off. Without a `match`, the part fits with rank `SPECIFIC` if it
            is on, and does not fit otherwise.
        kinds: The kinds of space that the part supports: of actions for distributions and action
            codecs, of observations for all other parts. A kind is a `SpaceInfo.kind`, such as
            `"box"`, or the qualified name of a space class; the nearest class wins. rlcatalog
            calls `match` only for these; without a `match`, the part fits all of them, with rank
            `GENERIC`. If empty, it supports all spaces. A name in the config does not select the
            part for other kinds.
    """

    kind: ClassVar[str] = ""
    #: The keys that targets may have; None: framework names, including names that plugins add.
    targets_allowed: ClassVar[frozenset[str] | None] = None
    #: Whether users import targets by name, from `rlcatalog_torch` and similar modules.
    shows_classes: ClassVar[bool] = True
    #: Field → form; a default of None is also allowed. Subclasses add their fields.
    forms: ClassVar[Forms] = {
        "name": Form(text_like(_NAME), "a word of letters, digits, '_', '-' and '.'"),
        "summary": Form(text_like(".*"), "one line of text"),
        "match": FUNCTION,
        "config": _PATH,
        "reads": TEXTS,
        "ignores": FUNCTION,
        "extends": Form(text_like(rf"[A-Za-z0-9][A-Za-z0-9_.\-]*/{_NAME}"), "'distribution/name'"),
        "examples": _PATH,
        "switch": Form(text_like(".+"), "the name of a config key"),
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
        """Check the fields, and complete them.

        Raises:
            DeclarationError: A field has the wrong form; the message names the declaration.
        """
        problem = next(self.problems(), None)
        if problem is not None:
            raise DeclarationError(f"{type(self).__name__}({shown(self.name)}): {problem}.")
        self.complete_fields()

    def problems(self) -> Iterator[str]:
        """Yield the problems with the fields.

        Only the first one is shown, and nothing after it runs. So each check can rely on the ones
        before it.
        """
        defaults = {field.name: field.default for field in fields(self)}
        for name, form in self.forms.items():
            value = vars(self)[name]
            if value is None and defaults[name] is None:  # an optional field
                continue
            if not form.fits(value):
                yield f"{name} must be {form.expected}, found {shown(value)}"
        yield from self._problems_of_targets()
        if self.extends is not None:
            _, _, name = self.extends.partition("/")  # "distribution/name"
            if name != self.name:
                yield (
                    "an extension has the same name as the extended part; found"
                    f" extends={self.extends!r}. Name this part {name!r}"
                )

    def _problems_of_targets(self) -> Iterator[str]:
        is_mapping = isinstance(self.targets, Mapping)
        if not is_mapping or not self.targets or not are_texts(tuple(self.targets)):
            yield "targets must map a framework to 'package.module:Class'"
        for framework, target in self.targets.items():
            if self.targets_allowed is not None and framework not in self.targets_allowed:
                yield (
                    f"unknown framework {shown(framework)} in targets; known:"
                    f" {sorted(self.targets_allowed)}"
                )
            if not _PATH.fits(target):
                yield f"target {shown(target)} must be a string 'package.module:Class'"

    def complete_fields(self) -> None:
        """Write names of distributions in their canonical spelling, and add what fields imply."""
        if self.extends is not None:
            distribution, _, name = self.extends.partition("/")
            self._set_field("extends", f"{normalize(distribution)}/{name}")

    def _set_field(self, name: str, value: Any) -> None:
        """Set a field while the declaration is created; later it is frozen."""
        object.__setattr__(self, name, value)

    def has(self, name: str) -> bool:
        """Return whether a field that a kind of declaration may have is set, such as a function
        of models.
        """
        return vars(self).get(name) is not None

    @property
    def functions(self) -> list[str]:
        """The fields that hold a function."""
        names = [name for name, form in self.forms.items() if form is FUNCTION]
        return [name for name in names if self.has(name)]

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the declaration's targets."""
        return tuple(self.targets)

    def target_of(self, name: str) -> str:
        """Return the import path of the code for one of `target_names`."""
        return self.targets[name]

    def adapt(self, target: Callable[..., Any], framework: str) -> Any:
        """Return what users of a part get for an imported target: in general the target itself."""
        return target

    @property
    def named_keys(self) -> tuple[str, ...]:
        """The config keys that the declaration names."""
        if self.switch is None or self.switch in self.reads:
            return self.reads
        return (*self.reads, self.switch)

    def is_on(self, config: Mapping[str, Any]) -> bool:
        """Return whether a config turns the part on."""
        if self.switch is None:
            return False
        value = config.get(self.switch)
        return value is not None and value is not False

    def judge(self, request: Request) -> Match:
        """Return whether, how well and why the part fits a request."""
        if self.kinds:
            space = request.space_for(self.kind)
            is_of_these_kinds = space.distance(self.kinds) is not None
            if not is_of_these_kinds:
                return Match(rank=None, why=f"takes {' or '.join(self.kinds)}, not {space.kind}")
            if self.match is None and self.switch is None:
                return Match(Rank.GENERIC, f"the space is a {space.kind}")
        if self.match is not None:
            return self.match(request)
        if self.switch is None:
            return Match(rank=None, why="only chosen by name")
        if self.is_on(request.config):
            return Match(Rank.SPECIFIC, f"{self.switch} is set")
        return Match(rank=None, why=f"{self.switch} is not set")

    # --- tables that all catalogs of the process share --------------------------------------------

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
        return False

    def leave(self) -> None:
        """Remove the declaration from that table."""
