"""Examples: spaces and configs for the conformance kit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import Catalog, ModelSpec, SpaceInfo
from rlcatalog.errors import CatalogError, CatalogWarning, raised_as
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import mask_steps
from rlcatalog.plugins import Part


@dataclass(frozen=True)
class Example:
    """Spaces and a config for which the catalog chooses a part.

    Attributes:
        obs: The observation space.
        action: The action space.
        config: Model config keys that select the part, in addition to its name.
        draw: `draw(rng)` returns an observation, for a part that does not accept all observations
            in the space. If None, observations are sampled from the space.
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
#: Every observation space with one action space, and vice versa.
STANDARD = tuple(Example(obs, TWO) for obs in OBSERVATIONS) + tuple(
    Example(VECTOR, action) for action in ACTIONS
)
#: Kind of part → the config key that names a part of this kind.
NAMING = {
    "trunk": "custom_model",
    "action_dist": "custom_action_dist",
    "preprocessor": "custom_preprocessor",
    "filter": "observation_filter",
}


@contextmanager
def quiet() -> Iterator[None]:
    """Look up parts by name, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # custom_preprocessor is deprecated
        warnings.simplefilter("ignore", CatalogWarning)
        yield


def kind_of(part: Part) -> str:
    """Return the kind that selects the checks: a model's slot, or otherwise the
    part's kind.
    """
    return part.declaration.slot if isinstance(part.declaration, ModelSpec) else part.kind


def examples_of(part: Part, catalog: Catalog) -> list[Example]:
    """Return the examples that a part declares, and a few standard examples that cover all spaces
    that the part fits.

    A part that is only chosen by name does not declare what it fits, so only its declared examples
    are used.

    Raises:
        PartError: The declared function raised an error or returned something else.
    """
    declared = [] if part.declaration.examples is None else _declared(part)
    if declared and part.declaration.match is None:
        return declared
    return declared + _standard(part, catalog)


def _standard(part: Part, catalog: Catalog) -> list[Example]:
    def fits(obs: Any, action: Any) -> bool:
        return is_chosen(part, catalog, named(part, Example(obs, action)))

    fitting = [obs for obs in OBSERVATIONS if fits(obs, TWO)]
    if not fitting:
        return [named(part, Example(VECTOR, action)) for action in ACTIONS if fits(VECTOR, action)]
    actions = [action for action in ACTIONS if fits(fitting[0], action)] or [TWO]
    # Each space once, in as few pairs as possible; spaces that cannot be combined are used
    # separately.
    pairs = []
    for index in range(max(len(fitting), len(actions))):
        obs, action = fitting[index % len(fitting)], actions[index % len(actions)]
        if fits(obs, action):
            pairs.append((obs, action))
            continue
        pairs += [(obs, TWO)] if index < len(fitting) else []
        pairs += [(fitting[0], action)] if index < len(actions) else []
    return [named(part, Example(*pair)) for pair in pairs]


def _declared(part: Part) -> list[Example]:
    path = part.declaration.examples
    assert path is not None
    function = part.import_target(path)
    with raised_as(lambda why: part.fault(f"its examples function {path!r} raised {why}")):
        found = list(function())
    if not found or not all(isinstance(example, Example) for example in found):
        raise part.fault(
            f"its examples function {path!r} must return at least one rlcatalog_testing.Example,"
            f" found {found!r}."
        )
    # A codec chosen by name would encode the whole observation, not only the part of its kind.
    by_name = not (part.kind == "preprocessor" and _says_what_it_fits(part))
    return [named(part, example) if by_name else example for example in found]


def named(part: Part, example: Example) -> Example:
    """Return the example with the part's name in its config, if parts of this kind are chosen by
    name.
    """
    if (key := NAMING.get(kind_of(part))) is None or key in example.config:
        return example
    return Example(example.obs, example.action, {key: part.address, **example.config}, example.draw)


def is_chosen(part: Part, catalog: Catalog, example: Example) -> bool:
    """Return whether a lookup for the example chooses the part, for the whole space or for a space
    within it.

    A part with a `match` must match the example, even if the config names the part.
    """
    served = [name for name in part.frameworks if name in frameworks()]
    framework = served[0] if served and default_framework() not in served else None
    try:
        with quiet():
            resolution = catalog.resolve(example.obs, example.action, example.config, framework)
    except CatalogError:
        return False
    if _says_what_it_fits(part) and NAMING.get(kind_of(part)) in example.config:
        choices = [*resolution.choices.values(), *(plan.choice for plan in resolution.dists.walk())]
        verdicts = [verdict for choice in choices for verdict in choice.verdicts]
        return any(candidate is part and answer.rank is not None for candidate, answer in verdicts)
    return any(chosen is part for chosen in resolution.parts())


def _says_what_it_fits(part: Part) -> bool:
    return part.declaration.match is not None or bool(getattr(part.declaration, "kinds", ()))


def observations_of(example: Example, rows: int, seed: int = 0) -> Sequence[Any]:
    """Sample observations from an example; action masks in them allow all actions."""
    if example.draw is not None:
        rng = np.random.default_rng(seed)
        return [example.draw(rng) for _ in range(rows)]
    example.obs.seed(seed)
    observations = [example.obs.sample() for _ in range(rows)]
    key = example.config.get("action_mask_key", "action_mask")
    steps = mask_steps(SpaceInfo.read(example.obs), key)
    return [_allowing(observation, steps) for observation in observations]


def _allowing(sample: Any, steps: Sequence[str]) -> Any:
    """Return an observation whose mask, if any, allows all actions."""
    if not steps:
        return _ones(sample)
    if not isinstance(sample, Mapping) or steps[0] not in sample:
        return sample
    return {**sample, steps[0]: _allowing(sample[steps[0]], steps[1:])}


def _ones(mask: Any) -> Any:
    if isinstance(mask, Mapping):
        return {key: _ones(leaf) for key, leaf in mask.items()}
    return tuple(map(_ones, mask)) if isinstance(mask, tuple) else np.ones_like(mask)
