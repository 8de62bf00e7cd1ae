"""Check: one requirement of a contract, a function of one `Part` that raises where the part breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlcatalog.catalog import Catalog
from rlcatalog.plugins import Component
from rlcatalog.testing.examples import Example, examples_of

if TYPE_CHECKING:
    from rlcatalog.policy import Policy


class NotApplicable(Exception):
    """Raised by a check for a part that it has nothing to say about; the text says why."""


def require(holds: bool, what: str) -> None:
    """Raise an AssertionError that says `what` unless it holds; unlike an `assert`, under `python -O` too."""
    if not holds:
        raise AssertionError(what)


@dataclass(frozen=True)
class Check:
    """One requirement of a contract.

    Attributes:
        name: What it is called: `output_width`.
        kinds: The kinds of part it is for: `"trunk"`, `"memory"`, `"head"`, `"action_dist"`, `"preprocessor"`,
            `"action_codec"`, `"filter"`, `"env_wrapper"`, `"command"`, `"framework"`.
        hint: What an author does about it.
        run: Raises where a part breaks it.
        every_framework: Whether it runs once per framework of the part; else once.
    """

    name: str
    kinds: tuple[str, ...]
    hint: str
    run: Callable[[Part], None]
    every_framework: bool = True

    def __call__(self, part: Part) -> None:
        """Check a part."""
        self.run(part)


def check(*kinds: str, hint: str, every_framework: bool = True) -> Callable[[Callable[[Part], None]], Check]:
    """Make a function a check; its name is the check's.

    Example:
        >>> @check("trunk", hint="let forward return [B, num_outputs]")
        ... def output_width(part):
        ...     for example in part.examples:
        ...         policy = part.build(example)
        ...         require(policy.act(observations_of(example, 3)).dist_inputs.shape == (3, ...), "...")
    """

    def make(run: Callable[[Part], None]) -> Check:
        return Check(run.__name__, kinds, hint, run, every_framework)

    return make


@dataclass(frozen=True)
class Part:
    """A part of a plugin as checks see it.

    Attributes:
        component: The part.
        catalog: The catalog it is tried in.
        framework: `"torch"`, `"tf"`, …; None where the check or the part needs none.
    """

    component: Component
    catalog: Catalog
    framework: str | None = None
    _built: dict[str, Policy] = field(default_factory=dict, repr=False)

    @cached_property
    def examples(self) -> list[Example]:
        """The spaces and configs it is tried with, one at least.

        Raises:
            AssertionError: It fits no standard space, and declares no examples.
        """
        found = examples_of(self.component, self.catalog)
        require(
            bool(found),
            "it is chosen in no standard example; declare"
            " examples='package.module:function', which returns a list of rlcatalog.testing.Example",
        )
        return found

    def build(self, example: Example, **config: Any) -> Policy:
        """Build a policy of the example, with fresh weights; `config` is added to the example's."""
        return self.catalog.build(example.obs, example.action, {**example.config, **config}, self.framework)

    def policy(self, example: Example) -> Policy:
        """Return a policy of the example that checks share: they leave its weights alone."""
        key = str(example)
        if key not in self._built:
            self._built[key] = self.build(example)
        return self._built[key]
