"""Declarations shared by all catalogs of a process: action codecs and frameworks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any, ClassVar

from rlcatalog import provided, public_index
from rlcatalog.errors import DuplicateNameError, NotServedError, nearest
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins.declarations import TEXTS, Declaration, Forms, are_texts, text_like

#: The targets of a framework's declaration.
_TARGETS = frozenset({
    "backend", "ops", "learner", "host", "separate_value", "add_time_dimension", "distribution",
    "policy_module", "kit", "before",
})  # fmt: skip


_load = cache(resolve_name)


def _are_classes(kinds: Any) -> bool:
    return are_texts(kinds) and kinds != ()


class ActionCodecSpec(Declaration):
    """An `ActionCodec` class, which handles actions from certain kinds of space.

    Attributes:
        kinds: The qualified names of the space classes that it handles, including their subclasses.
    """

    kind: ClassVar[str] = "action_codec"
    targets_allowed = frozenset({"numpy"})
    forms: ClassVar[Forms] = {
        "kinds": (_are_classes, "a tuple of names of space classes, such as ('acme.spaces.Dial',)")
    }

    @property
    def entries(self) -> tuple[str, ...]:
        return self.kinds

    def describe_clash(self, entry: str, other: Any) -> str:
        codec = other.targets["numpy"]
        return (
            f"actions of the kind {entry!r} already have a codec, {codec}; declare a new space"
            " class."
        )


@dataclass(frozen=True)
class FrameworkSpec(Declaration):
    """A framework for models and distributions.

    Its targets name its code. Two are required: `"backend"`, the class that runs a policy
    (`rlcatalog.frameworks.Backend`), and `"ops"`, its `rlcatalog.frameworks.TensorOps`. The others
    are optional:

    - `"learner"`: gradients, clipping, an optimizer and seeds (`rlcatalog.frameworks.Learner`);
    - `"host"`: the base class that a `model_interface` is mixed into
      (`rlcatalog.models.ModelWrapper`);
    - `"separate_value"`: its `rlcatalog.models.SeparateValue`;
    - `"add_time_dimension"`: a function that adds the time axis to padded rows;
    - `"distribution"`: a function that returns an action-distribution class for a class of the
      framework's distributions, or for a factory of them and its number of inputs. It returns
      anything else unchanged;
    - `"kit"`: functions for the conformance kit (`rlcatalog_testing.Kit`);
    - `"policy_module"`: a function that creates the result of `policy.as_module()` from the policy;
    - `"before"`: a function that rlcatalog calls before it imports a part of the framework.

    Other packages add targets with `extends`: rlcatalog-ppo adds `"ppo"`, and rlcatalog-fcnet
    `"plain"`, the class that turns a plain module into a model. The target `"freeze"` is a function
    `freeze(policy, rows, seed)` that returns a `rlcatalog_policy.FrozenBackend`.

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
        "module": (text_like(".*"), "the name of a top-level module"),
        "aliases": TEXTS,
        "packages": TEXTS,
    }

    module: str = ""
    aliases: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.extends is not None:
            return
        if not self.module.isidentifier():
            yield f"module must be the name of a top-level module, found {self.module!r}"
        if unknown := sorted(set(self.targets) - _TARGETS):
            yield (
                f"unknown target {unknown[0]!r}.{nearest(unknown[0], _TARGETS)} Known:"
                f" {sorted(_TARGETS)}. Add others with a second FrameworkSpec that extends this"
                " one"
            )
        if missing := {"backend", "ops"} - set(self.targets):
            yield f"targets must have {' and '.join(map(repr, sorted(missing)))}"

    @property
    def entries(self) -> tuple[str, ...]:
        if self.extends is not None:
            return tuple(self._entry(what) for what in self.targets)
        return (self.name, *self.aliases)

    def _entry(self, what: str) -> str:
        """Return the table key for a target that another package adds."""
        return f"{self.name}: {what}"

    def enter(self) -> bool:
        own = frameworks().get(self.name) if self.extends is not None else None
        for what in () if own is None else own.targets.keys() & self.targets.keys():
            raise DuplicateNameError(self.describe_clash(self._entry(what), own))
        return super().enter()

    def describe_clash(self, entry: str, other: Any) -> str:
        if self.extends is None:
            return super().describe_clash(entry, other)
        what = entry.removeprefix(self._entry(""))
        return f"framework {self.name!r} already has a target {what!r}; use another name."

    # --- of a framework, not of what extends one --------------------------------------------------

    def target(self, what: str) -> str | None:
        """Return the import path of a target that this or another package declares; None if there
        is none.
        """
        added = provided.declarations["framework"].get(self._entry(what))
        return self.targets.get(what) or (None if added is None else added.targets[what])

    def load(self, what: str, user: str = "rlcatalog") -> Any:
        """Import and return a target.

        Args:
            what: The target's name.
            user: The distribution that requests the target, for the error message.

        Raises:
            NotServedError: No package declares this target.
        """
        if (target := self.targets.get(what) or self.target(what)) is None:
            unusable = self.unusable_provider(what)
            cause = f"no installed package declares its {what!r}."
            if unusable is not None:
                cause = f"its {what!r} {unusable}"
            raise NotServedError(f"{user} has no code for framework={self.name!r}: {cause}")
        return _load(target)

    def unusable_provider(self, what: str) -> str | None:
        """Return which installed package of the public index provides a missing target, and what
        keeps it from being used, as the end of a sentence; None if no such package is installed.
        """
        owner = public_index.provider_of("framework", self._entry(what))
        condition = None if owner is None else provided.condition_of(owner)
        return None if condition is None else f"is provided by {owner}, which {condition}"

    @property
    def is_installed(self) -> bool:
        """Return whether the framework is installed, without importing it."""
        return importlib.util.find_spec(self.module) is not None

    def prepare(self) -> None:
        """Prepare the import of the framework."""
        if "before" in self.targets:
            self.load("before")()
