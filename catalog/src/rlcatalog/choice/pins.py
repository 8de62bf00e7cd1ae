"""Pins: what a lookup chose, by name, so that a later one, in any process, chooses the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlcatalog.choice.resolution import Resolution
from rlcatalog.choice.slots import MODEL_SLOTS
from rlcatalog.plugins import Component
from rlcatalog.plugins.registry import Registry

#: The slots that are pinned by name, beside preprocessors and distributions.
PINNED_SLOTS = ("filter", *MODEL_SLOTS)


@dataclass(frozen=True)
class Pins:
    """Names of chosen parts, `"distribution/name"` each.

    Attributes:
        parts: By slot; a slot that was empty is left out and stays empty.
        preprocessors: By path: the codecs of an observation space and of its parts.
        action_dists: By place: the distributions of an action space and of its parts.
        versions: Distribution → version, where the parts were chosen.
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    preprocessors: Mapping[str, str] = field(default_factory=dict)
    action_dists: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resolution: Resolution) -> Pins:
        """Return the names of everything a lookup chose."""
        filled = {slot: resolution.choices[slot].component for slot in PINNED_SLOTS}
        parts = {slot: component for slot, component in filled.items() if component is not None}
        preprocessors = dict(resolution.preprocessor.components())
        action_dists = {node.place: node.component for node in resolution.actions.walk()}
        everything = [*parts.values(), *preprocessors.values(), *action_dists.values()]
        versions = {c.distribution: c.version for c in everything if c.distribution}
        return cls(_names(parts), _names(preprocessors), _names(action_dists), dict(sorted(versions.items())))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pins:
        """Return the pins that `as_dict` wrote."""
        return cls(**data)

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the pins as plain data."""
        return asdict(self)

    def check(self, registry: Registry) -> None:
        """Raise unless each part is there.

        Raises:
            MissingPluginError: The package of one is not usable here.
            UnknownNameError: There is no such part.
        """
        for kind, name in self._named():
            registry.get(kind, name)

    def _named(self) -> Iterator[tuple[str, str]]:
        for slot, name in self.parts.items():
            yield ("model" if slot in MODEL_SLOTS else slot), name
        for kind, names in (("preprocessor", self.preprocessors), ("action_dist", self.action_dists)):
            yield from ((kind, name) for name in names.values())


def _names(parts: Mapping[str, Component]) -> dict[str, str]:
    return {place: component.address for place, component in parts.items()}
