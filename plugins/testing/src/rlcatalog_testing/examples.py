"""Examples: the spaces and configs that the conformance kit tries a part with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import ModelSpec
from rlcatalog.catalog import Catalog
from rlcatalog.choice import Resolution
from rlcatalog.errors import CatalogError, CatalogWarning
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import mask_steps
from rlcatalog.plugins import Component
from rlcatalog.spaces import SpaceInfo


@dataclass(frozen=True)
class Example:
    """Spaces and a config with which a part is chosen.

    Attributes:
        obs: The observation space.
        action: The action space.
        config: Keys of the model config that the part is chosen by, beside its name.
        draw: `draw(rng)` returns an observation, for a part that not every one of the space will do for; None: any.
    """

    obs: spaces.Space[Any]
    action: spaces.Space[Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[np.random.Generator], Any] | None = None

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


@contextmanager
def quiet() -> Iterator[None]:
    """Look parts up by their names without the warnings about that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # custom_preprocessor is
        warnings.simplefilter("ignore", CatalogWarning)
        yield


def kind_of(component: Component) -> str:
    """Return the kind that checks are chosen by: a model's slot, else the component's kind."""
    return component.declaration.slot if isinstance(component.declaration, ModelSpec) else component.kind


def examples_of(component: Component, catalog: Catalog) -> list[Example]:
    """Return the declared examples of a part, and few standard ones with all the spaces that it fits.

    A part that is only chosen by name does not say what it fits: its declared examples are all.

    Raises:
        PartError: The declared function raised, or returned something else.
    """
    declared = [] if component.declaration.examples is None else _declared(component)
    if declared and component.declaration.match is None:
        return declared
    return declared + _standard(component, catalog)


def _standard(component: Component, catalog: Catalog) -> list[Example]:
    fitting = [obs for obs in OBSERVATIONS if _fits(component, catalog, obs, TWO)]
    if not fitting:
        return [named(component, Example(VECTOR, action)) for action in ACTIONS
                if _fits(component, catalog, VECTOR, action)]  # fmt: skip
    actions = [action for action in ACTIONS if _fits(component, catalog, fitting[0], action)] or [TWO]
    # Each space once, in as few pairs as there are spaces; where two do not go together, each by itself.
    found = []
    for index in range(max(len(fitting), len(actions))):
        obs, action = fitting[index % len(fitting)], actions[index % len(actions)]
        if _fits(component, catalog, obs, action):
            found.append(named(component, Example(obs, action)))
            continue
        found += [named(component, Example(obs, TWO))] if index < len(fitting) else []
        found += [named(component, Example(fitting[0], action))] if index < len(actions) else []
    return found


def _declared(component: Component) -> list[Example]:
    path = component.declaration.examples
    assert path is not None
    function = component.import_target(path)
    try:
        found = list(function())
    except Exception as error:
        raise component.fault(f"its examples function {path!r} raised {type(error).__name__}: {error}") from error
    if not found or not all(isinstance(example, Example) for example in found):
        raise component.fault(
            f"its examples function {path!r} must return rlcatalog_testing.Examples, one at least; found {found!r}."
        )
    says_what_it_fits = component.declaration.match is not None or bool(getattr(component.declaration, "kinds", ()))
    # Named, a codec would be asked for the whole observation, and not for the part of it that is of its kind.
    by_name = not (component.kind == "preprocessor" and says_what_it_fits)
    return [named(component, example) if by_name else example for example in found]


def _fits(component: Component, catalog: Catalog, obs: Any, action: Any) -> bool:
    return is_chosen(component, catalog, named(component, Example(obs, action)))


def named(component: Component, example: Example) -> Example:
    """Return the example with the part's name in its config, where its kind is called by name."""
    key = NAMING.get(kind_of(component))
    if key is None or key in example.config:
        return example
    return Example(example.obs, example.action, {key: component.address, **example.config}, example.draw)


def _own_framework(component: Component) -> str | None:
    """Return a framework that a part has code for, where the default one has none."""
    names = [name for name in component.frameworks if name in frameworks()]
    return names[0] if names and default_framework() not in names else None


def is_chosen(component: Component, catalog: Catalog, example: Example, framework: str | None = None) -> bool:
    """Whether a lookup of the example chooses the part, for the whole space or one within it.

    A part that says what it fits has to say so of the example, even where the config names it.
    """
    try:
        with quiet():
            found = catalog.resolve(example.obs, example.action, example.config, framework or _own_framework(component))
    except CatalogError:
        return False
    says = component.declaration.match is not None or bool(getattr(component.declaration, "kinds", ()))
    if says and NAMING.get(kind_of(component)) in example.config:
        verdicts = [verdict for choice in choices_in(found) for verdict in choice.verdicts]
        return any(candidate is component and answer.rank is not None for candidate, answer in verdicts)
    return any(part is component for part in parts_in(found))


def choices_in(resolution: Resolution) -> Iterator[Any]:
    """Yield every choice of a lookup, but for those of the parts of an observation."""
    yield from resolution.choices.values()
    yield from (plan.choice for plan in resolution.dists.walk())


def parts_in(resolution: Resolution) -> Iterator[Component]:
    """Yield every part that a lookup chose."""
    yield from (choice.component for choice in resolution.choices.values() if choice.component is not None)
    yield from (plan.component for plan in resolution.dists.walk())
    preprocessors = [resolution.preprocessor]
    for preprocessor in preprocessors:
        preprocessors += preprocessor.children
        if preprocessor.component is not None:
            yield preprocessor.component


def observations_of(example: Example, rows: int, seed: int = 0) -> Sequence[Any]:
    """Draw observations of an example; an action mask in them allows everything."""
    if example.draw is not None:
        rng = np.random.default_rng(seed)
        return [example.draw(rng) for _ in range(rows)]
    example.obs.seed(seed)
    found = [example.obs.sample() for _ in range(rows)]
    key = example.config.get("action_mask_key", "action_mask")
    return [_allowing(sample, mask_steps(SpaceInfo.read(example.obs), key)) for sample in found]


def _allowing(sample: Any, steps: Sequence[str]) -> Any:
    """Return an observation with a mask that allows everything in place of its own, if it has one."""
    if not isinstance(sample, Mapping) or steps[0] not in sample:
        return sample
    inner = sample[steps[0]]
    return {**sample, steps[0]: _ones(inner) if len(steps) == 1 else _allowing(inner, steps[1:])}


def _ones(mask: Any) -> Any:
    if isinstance(mask, Mapping):
        return {key: _ones(part) for key, part in mask.items()}
    return tuple(map(_ones, mask)) if isinstance(mask, tuple) else np.ones_like(mask)
