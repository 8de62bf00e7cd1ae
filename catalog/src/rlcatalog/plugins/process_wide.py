"""Declarations of what all catalogs of a process share: action codecs and frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rlcatalog.errors import nearest
from rlcatalog.frameworks.table import Framework, add_framework, extend_framework
from rlcatalog.plugins.declarations import TEXTS, Declaration, Forms, are_texts, text_like
from rlcatalog.spaces.action_codecs import add_action_codec

#: What a framework's own declaration may name.
_TARGETS = frozenset({"backend", "ops", "learner", "host", "separate_value", "add_time_dimension", "kit", "before"})


def _are_classes(kinds: Any) -> bool:
    return are_texts(kinds) and kinds != ()


@dataclass(frozen=True)
class ActionCodecSpec(Declaration):
    """An `ActionCodec` class: all there is to know of the actions of some kinds of space.

    Attributes:
        kinds: The qualified names of the space classes whose actions it knows, those of their subclasses included.
    """

    kind: ClassVar[str] = "action_codec"
    targets_allowed = frozenset({"numpy"})
    forms: ClassVar[Forms] = {
        "kinds": (_are_classes, "a tuple of names of space classes, such as ('acme.spaces.Dial',)")
    }

    @property
    def entries(self) -> tuple[str, ...]:
        return self.kinds

    def enter(self) -> None:
        add_action_codec(self.kinds, self.targets["numpy"])


@dataclass(frozen=True)
class FrameworkSpec(Declaration):
    """A framework that models and distributions are written in.

    Its targets are what it does. Required are `"backend"`, the class that runs a policy
    (`rlcatalog.frameworks.Backend`), and `"ops"`, its `rlcatalog.frameworks.TensorOps`. Optional are:

    - `"learner"`: gradients, clipping, an optimizer, seeds and devices (`rlcatalog.frameworks.Learner`);
    - `"host"`: the class that a `model_interface` is mixed over (`rlcatalog.models.ModelWrapper`);
    - `"separate_value"`: its `rlcatalog.models.SeparateValue`;
    - `"add_time_dimension"`: a function that gives padded rows their time axis;
    - `"kit"`: what the conformance kit asks (`rlcatalog_testing.Kit`);
    - `"before"`: a function to be called before anything of the framework is imported.

    Other packages add targets with `extends`: rlcatalog-ppo adds `"ppo"`. The target `"freeze"` is a function
    `freeze(policy, rows, seed)` that returns a `rlcatalog_policy.FrozenBackend`.

    Attributes:
        module: The module whose presence says that it is installed, and which its tensors' classes come from.
        aliases: Other names for it.
    """

    kind: ClassVar[str] = "framework"
    shows_classes = False
    forms: ClassVar[Forms] = {"module": (text_like(".*"), "the name of a top-level module"), "aliases": TEXTS}

    module: str = ""
    aliases: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.extends is not None:
            return
        if not self.module.isidentifier():
            yield f"module must be the name of a top-level module, found {self.module!r}"
        if unknown := sorted(set(self.targets) - _TARGETS):
            yield (
                f"unknown target {unknown[0]!r}.{nearest(unknown[0], _TARGETS)} Known: {sorted(_TARGETS)}."
                " Add others with a second FrameworkSpec that extends this one"
            )
        if missing := {"backend", "ops"} - set(self.targets):
            yield f"targets must have {' and '.join(map(repr, sorted(missing)))}"

    @property
    def entries(self) -> tuple[str, ...]:
        if self.extends is not None:
            return tuple(f"{self.name}: {what}" for what in self.targets)
        return (self.name, *self.aliases)

    def enter(self) -> None:
        if self.extends is not None:
            extend_framework(self.name, self.targets)
        else:
            add_framework(Framework(self.name, self.module, self.targets, self.aliases))
