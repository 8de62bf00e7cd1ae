"""Check: one requirement of a contract, as a function that raises an error if a
`Subject` violates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from rlcatalog.catalog import Catalog
from rlcatalog.choice import Resolution
from rlcatalog.errors import CatalogError, ConfigError, NotServedError
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins import Part
from rlcatalog_policy import Policy, build
from rlcatalog_testing.examples import Example, examples_of, named, quiet

T = TypeVar("T")

#: Data that a part's checks share: a key that names it → examples, a policy, …
SharedData = dict[Any, Any]


class NotApplicable(Exception):
    """A check does not apply to a part; the text gives the reason."""


class ExampleError(AssertionError):
    """An example that a part declares cannot be used in any check."""


def require(holds: bool, what: str) -> None:
    """Raise an AssertionError with the text `what` unless a condition holds, even under
    `python -O`.
    """
    if not holds:
        raise AssertionError(what)


def _applies_to_every_part(_: Subject) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One requirement of a contract.

    Attributes:
        name: Name of the check, such as `output_width`.
        kinds: The kinds of part to which it applies: `"trunk"`, `"memory"`, `"head"`,
            `"action_dist"`, `"preprocessor"`, `"action_codec"`, `"filter"`, `"env_wrapper"`,
            `"env_adapter"`, `"command"`, `"engine"`, `"framework"`, `"exporter"`.
        hint: Advice for authors.
        run: Function that raises an error if a part violates the requirement.
        each: Function that yields the arguments for each call of `run`: a single argument or a
            tuple. If None, `run` is called once, with the part. A check applies to a part if it
            applies to at least one of these.
        every_framework: Whether the check runs once for each framework of the part, instead of only
            once.
        where: Function that returns whether the check can apply to a part, based only on the
            declaration, without building the part.
        stops: Whether a failure skips the following checks, which would fail for the same reason.
        between_frameworks: Whether the check compares a part's code in several frameworks. A
            package that adds code to another package's part is checked by it, too, although it does
            not run once for each framework.
    """

    name: str
    kinds: tuple[str, ...]
    hint: str
    run: Callable[..., None]
    each: Callable[[Subject], Iterable[Any]] | None = None
    every_framework: bool = True
    where: Callable[[Subject], bool] = _applies_to_every_part
    stops: bool = False
    between_frameworks: bool = False

    def __call__(self, subject: Subject) -> None:
        """Check a part."""
        trials: Iterable[Any] = [subject]
        if self.each is not None:
            trials = self.each(subject)
        was_tried = False
        first_reason: NotApplicable | None = None
        for trial in trials:
            # Not isinstance: a named tuple is a single argument.
            arguments = trial if type(trial) is tuple else (trial,)
            try:
                self.run(*arguments)
                was_tried = True
            except NotApplicable as reason:
                if first_reason is None:
                    first_reason = reason
        if first_reason is not None and not was_tried:
            raise first_reason


def check(
    *kinds: str,
    hint: str,
    each: Callable[[Subject], Iterable[Any]] | None = None,
    every_framework: bool = True,
    where: Callable[[Subject], bool] = _applies_to_every_part,
    stops: bool = False,
    between_frameworks: bool = False,
) -> Callable[[Callable[..., None]], Check]:
    """Decorator that turns a function into a check with the same name.

    The arguments become the check's attributes.

    Example:
        >>> @check("trunk", hint="let forward return [B, num_outputs]")
        ... def output_width(part):
        ...     for example in part.examples:
        ...         policy = part.build(example)
        ...         step = policy.act(observations_of(example, 3))
        ...         require(step.dist_inputs.shape == (3, ...), "...")
    """

    def make_check(run: Callable[..., None]) -> Check:
        return Check(
            run.__name__,
            kinds,
            hint,
            run,
            each,
            every_framework,
            where,
            stops,
            between_frameworks,
        )

    return make_check


class _LatestPart:
    """The shared data of the part whose policy was requested last.

    Cases live as long as pytest runs. The policies that they have built need not, so the data of
    the part before is cleared when the next part begins.
    """

    def __init__(self) -> None:
        self._shared: SharedData = {}

    def begin(self, shared: SharedData) -> None:
        """Clear the previous part's data, unless the data is the same part's."""
        if shared is not self._shared:
            self._shared.clear()
            self._shared = shared


_LATEST_PART = _LatestPart()


@dataclass(frozen=True)
class Subject:
    """A plugin's part as the checks see it.

    In a framework for which another package brings the part's code (`extends`), that package is
    checked, not the part's own.

    Attributes:
        part: The part.
        catalog: The catalog for the trial.
        framework: `"torch"`, `"tf"`, …; None if the check or the part needs no framework.
        shared: Data that the part's checks share across frameworks, such as examples and policies.
        notes: Faults of other packages that the running check met; they do not count against the
            part.
        faults: Suspected part of another package → its fault, or None if it has none.
        extension: The extension that is checked, if other packages add code to the part, too.
    """

    part: Part
    catalog: Catalog
    framework: str | None = None
    shared: SharedData = field(default_factory=dict, repr=False)
    notes: list[str] = field(default_factory=list, repr=False)
    faults: dict[str, str | None] = field(default_factory=dict, repr=False)
    extension: Part | None = None

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return an object that this part's checks share under a key; the first call creates it."""
        if key not in self.shared:
            self.shared[key] = make()
        value: T = self.shared[key]
        return value

    @property
    def code(self) -> Part:
        """The declaration that names the code under test: the part's own, or the extension that
        brings the part's code for the framework.
        """
        if self.framework is None or self.framework not in frameworks():
            return self.part
        extensions = self.part.extensions.get(self.framework, [])
        if self.extension is not None and self.extension in extensions:
            return self.extension
        return extensions[0] if extensions else self.part

    @property
    def distribution(self) -> str:
        """The distribution that is checked."""
        return self.code.distribution

    @property
    def examples(self) -> list[Example]:
        """The part's examples for which all parts around it have code in the framework, at least
        one.

        Raises:
            AssertionError: The part fits no standard space and declares no examples, or an
                example's config is invalid.
            NotApplicable: For none of the examples, all parts around it have code in the framework.
        """
        examples = self._all_examples
        if self.framework is None:
            return examples
        served = [example for example in examples if self.serves(example)]
        if not served:
            raise NotApplicable(f"{examples[0]}: {self._missing_code(examples[0])}")
        return served

    @property
    def unserved(self) -> dict[str, str]:
        """The examples that `examples` leaves out, each with the reason."""
        reasons: dict[str, str] = {}
        if self.framework is None:
            return reasons
        for example in self._all_examples:
            why = self._missing_code(example)
            if why is not None:
                reasons[str(example)] = why
        return reasons

    @property
    def _all_examples(self) -> list[Example]:
        """The part's examples, whatever the framework."""
        examples = self.once("examples", self._read_examples)
        require(
            bool(examples),
            "it is not chosen in any standard example; declare examples='package.module:function',"
            " which returns a list of rlcatalog_testing.Example",
        )
        return examples

    def serves(self, example: Example) -> bool:
        """Return whether all parts around the part have code in the framework for an example."""
        return self._missing_code(example) is None

    def _missing_code(self, example: Example) -> str | None:
        """Return which part around the part has no code in the framework for an example; None if
        all have.
        """
        key = ("missing code", self.framework, str(example))
        return self.once(key, partial(self._find_missing_code, example))

    def _find_missing_code(self, example: Example) -> str | None:
        try:
            resolution = self._resolve_in_any_framework(example)
        except CatalogError:
            return None  # the checks report the error
        for part in resolution.parts():
            needs_framework = part.declaration.targets_allowed is None
            has_code = self.framework in part.frameworks
            if needs_framework and not has_code and part is not self.part:
                return f"{part.title} has no code for framework={self.framework!r}"
        if self.framework in self.part.extensions:
            # Another package's code may leave out what the part's own frameworks serve.
            try:
                self.resolve(example)
            except NotServedError as error:
                return str(error)
        return None

    def _resolve_in_any_framework(self, example: Example) -> Resolution:
        """Return the catalog's choice for an example: in the framework, or if nothing there fits,
        in the first one of the part's own package.
        """
        own_frameworks = self.within(framework=None).frameworks
        try:
            return self.resolve(example)
        except CatalogError:
            if not own_frameworks or self.framework == own_frameworks[0]:
                raise
            return self.within(own_frameworks[0]).resolve(example)

    def _read_examples(self) -> list[Example]:
        examples = examples_of(self.part, self.catalog)
        for number, example in enumerate(examples, 1):
            try:
                with quiet():
                    self.catalog.parse_config(example.config)
            except CatalogError as error:
                where = self.part.declaration.examples or "the standard ones"
                raise ExampleError(
                    f"example {number} of {where} cannot be used: {error}"
                ) from error
        return examples

    @property
    def few(self) -> list[Example]:
        """Two of the examples: the first one and, if there is one, an example with different
        classes of spaces.
        """
        first, *others = self.examples
        other_obs = []
        other_action = []
        for example in others:
            if type(example.obs) is not type(first.obs):
                other_obs.append(example)
            elif type(example.action) is not type(first.action):
                other_action.append(example)
        unlike_first = [*other_obs, *other_action]
        return [first, *unlike_first[:1]]

    def distinct(self, space: str) -> list[Example]:
        """Return one example per config and space (`"obs"` or `"action"`), with the part's name in
        the config.
        """
        examples: dict[str, Example] = {}
        for unnamed in self.examples:
            example = named(self.part, unnamed)
            its_space = example.obs if space == "obs" else example.action
            examples.setdefault(f"{its_space!r} {dict(example.config)!r}", example)
        return list(examples.values())

    @property
    def frameworks(self) -> list[str]:
        """The installed frameworks for which the package that is checked has code of the part."""
        known = frameworks()
        names = []
        for name in self.part.frameworks:
            if name not in known or not known[name].is_installed:
                continue
            if self.within(name).distribution == self.distribution:
                names.append(name)
        return names

    @property
    def compared_frameworks(self) -> list[str]:
        """The installed frameworks whose results must agree: those of the package that is checked,
        after the first one of the part's own package.
        """
        own_frameworks = self.within(framework=None).frameworks
        if self.distribution == self.part.distribution:
            return own_frameworks
        return [*own_frameworks[:1], *self.frameworks]

    def within(self, framework: str | None) -> Subject:
        """Return the same part in a different framework; both share the objects that have been
        built.
        """
        return replace(self, framework=framework)

    def sharing(self) -> Iterator[dict[str, Any]]:
        """Yield config keys for layers that policy and value share and, if supported, for separate
        layers.
        """
        yield {}
        reads_key = "vf_share_layers" in self.catalog.config_keys(self.part, self.framework)
        if reads_key and not self._refuses_separate_layers():
            yield {"vf_share_layers": False}

    def _refuses_separate_layers(self) -> bool:
        """Return whether the part is a plain module that cannot be built twice, such as an instance
        or a module with a `num_outputs` argument.
        """
        if not self.part.is_plain:
            return False
        try:
            self.policy(self.examples[0], vf_share_layers=False)
        except ConfigError:
            return True
        return False

    def resolve(self, example: Example, config: Mapping[str, Any] | None = None) -> Resolution:
        """Return the catalog's choice for an example, with the example's own config or the given
        one.
        """
        if config is None:
            config = example.config
        with quiet():
            return self.catalog.resolve(example.obs, example.action, config, self.framework)

    def build(self, example: Example, **config: Any) -> Policy:
        """Build a policy for the example, with new weights; `config` is added to the example's
        config.
        """
        config = {**example.config, **config}
        with quiet():
            return build(example.obs, example.action, config, self.framework, catalog=self.catalog)

    def policy(self, example: Example, **config: Any) -> Policy:
        """Return a policy for the example that several checks share; they must not change its
        config or shapes.
        """
        _LATEST_PART.begin(self.shared)
        key = (self.framework, str(example), str(config))
        return self.once(key, lambda: self.build(example, **config))
