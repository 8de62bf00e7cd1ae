"""Examples: the spaces and configs that the conformance kit tries a part with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.catalog import Catalog
from rlcatalog.choice import Resolution
from rlcatalog.errors import CatalogError
from rlcatalog.plugins import Component, ModelSpec


@dataclass(frozen=True)
class Example:
    """Spaces and a config with which a part is chosen.

    Attributes:
        obs: The observation space.
        action: The action space.
        config: Keys of the model config that the part is chosen by, beside its name.
    """

    obs: spaces.Space[Any]
    action: spaces.Space[Any]
    config: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        config = f", {dict(self.config)}" if self.config else ""
        return f"{self.obs} → {self.action}{config}"


VECTOR = spaces.Box(-1, 1, (4,), np.float32)
TWO: spaces.Space[Any] = spaces.Discrete(2)
#: Observation spaces of every common kind.
OBSERVATIONS: tuple[spaces.Space[Any], ...] = (
    VECTOR,
    spaces.Box(-1, 1, (3, 2), np.float32),
    spaces.Box(0, 255, (42, 42, 3), np.uint8),
    spaces.Discrete(5, start=2),
    spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(4)}),
    spaces.Tuple([spaces.Box(0, 255, (42, 42, 1), np.uint8), spaces.MultiBinary(3)]),
)
#: Action spaces of every common kind.
ACTIONS: tuple[spaces.Space[Any], ...] = (
    spaces.Discrete(3, start=1),
    spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32)),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Tuple([TWO, spaces.Box(-1, 1, (2,), np.float32)]),
    spaces.Dict({"a": spaces.Discrete(3), "b": spaces.MultiDiscrete([2, 2])}),
)
#: Every observation space with one action space, and the other way round.
STANDARD = tuple(Example(obs, TWO) for obs in OBSERVATIONS) + tuple(Example(VECTOR, action) for action in ACTIONS)
#: Kind of part → the config key that names one.
NAMING = {
    "trunk": "custom_model",
    "action_dist": "custom_action_dist",
    "preprocessor": "custom_preprocessor",
    "filter": "observation_filter",
}


def kind_of(component: Component) -> str:
    """Return the kind that checks are chosen by: a model's slot, else the component's kind."""
    return component.declaration.slot if isinstance(component.declaration, ModelSpec) else component.kind


def examples_of(component: Component, catalog: Catalog) -> list[Example]:
    """Return the declared examples of a part, or the standard ones in which it is chosen when it is named."""
    if (path := component.declaration.examples) is not None:
        return list(component.imported(path)())
    return [found for example in STANDARD if is_chosen(component, catalog, found := named(component, example))]


def named(component: Component, example: Example) -> Example:
    """Return the example with the part's name in its config, where its kind is called by name."""
    key = NAMING.get(kind_of(component))
    return example if key is None else Example(example.obs, example.action, {key: component.address, **example.config})


def is_chosen(component: Component, catalog: Catalog, example: Example, framework: str | None = None) -> bool:
    """Whether a lookup of the example chooses the part, for the whole space or one within it."""
    try:
        found = catalog.resolve(example.obs, example.action, example.config, framework)
    except CatalogError:
        return False
    return any(part is component for part in parts_in(found))


def parts_in(resolution: Resolution) -> Iterator[Component]:
    """Yield every part that a lookup chose."""
    yield from (choice.component for choice in resolution.choices.values() if choice.component is not None)
    yield from (plan.component for plan in resolution.actions.walk())
    preprocessors = [resolution.preprocessor]
    for preprocessor in preprocessors:
        preprocessors += preprocessor.children
        if preprocessor.component is not None:
            yield preprocessor.component


def observations_of(example: Example, rows: int, seed: int = 0) -> Sequence[Any]:
    """Draw observations of an example."""
    example.obs.seed(seed)
    return [example.obs.sample() for _ in range(rows)]
