"""Examples: spaces and configs for the conformance kit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import Catalog, SpaceInfo
from rlcatalog.choice import Resolution
from rlcatalog.errors import CatalogError, CatalogWarning, raised_as
from rlcatalog.frameworks import default_framework, frameworks
from rlcatalog.internals import mask_key_path
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
    "memory": "memory",
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


def examples_of(part: Part, catalog: Catalog) -> list[Example]:
    """Return the examples that a part declares, and a few standard examples that cover all spaces
    that the part fits.

    A part that is only chosen by name does not declare what it fits, so only its declared examples
    are used.

    Raises:
        PartError: The declared function raised an error or returned something else.
    """
    path = part.declaration.examples
    if path is None:
        return _standard_examples(part, catalog)
    declared = _declared_examples(part, path)
    if part.declaration.match is None:
        return declared
    return declared + _standard_examples(part, catalog)


def _standard_examples(part: Part, catalog: Catalog) -> list[Example]:
    """Return examples that have each standard space that the part fits once, in as few pairs as
    possible.
    """

    def fits(obs: spaces.Space[Any], action: spaces.Space[Any]) -> bool:
        return is_chosen(part, catalog, named(part, Example(obs, action)))

    observations = [obs for obs in OBSERVATIONS if fits(obs, TWO)]
    if not observations:
        return [named(part, Example(VECTOR, action)) for action in ACTIONS if fits(VECTOR, action)]
    actions = [action for action in ACTIONS if fits(observations[0], action)]
    if not actions:
        actions = [TWO]
    examples = []
    for index in range(max(len(observations), len(actions))):
        # The shorter list begins again.
        obs = observations[index % len(observations)]
        action = actions[index % len(actions)]
        if fits(obs, action):
            examples.append(Example(obs, action))
            continue
        # Spaces that cannot be combined are used separately.
        is_new_obs = index < len(observations)
        if is_new_obs:
            examples.append(Example(obs, TWO))
        is_new_action = index < len(actions)
        if is_new_action:
            examples.append(Example(observations[0], action))
    return [named(part, example) for example in examples]


def _declared_examples(part: Part, path: str) -> list[Example]:
    list_examples = part.import_target(path)
    with raised_as(lambda why: part.fault(f"its examples function {path!r} raised {why}")):
        examples = list(list_examples())
    are_examples = all(isinstance(example, Example) for example in examples)
    if not examples or not are_examples:
        raise part.fault(
            f"its examples function {path!r} must return at least one rlcatalog_testing.Example,"
            f" found {examples!r}."
        )
    if part.kind == "preprocessor" and _says_what_it_fits(part):
        # Chosen by name, it would encode the whole observation, not only the part of its kind.
        return examples
    return [named(part, example) for example in examples]


def named(part: Part, example: Example) -> Example:
    """Return the example with the part's name in its config, if parts of this kind are chosen by
    name.
    """
    key = NAMING.get(part.slot)
    if key is None or key in example.config:
        return example
    has_own_way_in = part.switch is not None or _says_what_it_fits(part)
    if part.slot == "memory" and has_own_way_in:
        return example  # beside the name, the part's own keys would have no effect
    config = {key: part.address, **example.config}
    return Example(example.obs, example.action, config, example.draw)


def is_chosen(part: Part, catalog: Catalog, example: Example) -> bool:
    """Return whether a lookup for the example chooses the part, for the whole space or for a space
    within it.

    A part with a `match` must match the example, even if the config names the part.
    """
    framework: str | None = None
    supported = [name for name in part.frameworks if name in frameworks()]
    if supported and default_framework() not in supported:
        framework = supported[0]
    try:
        with quiet():
            resolution = catalog.resolve(example.obs, example.action, example.config, framework)
    except CatalogError:
        return False
    is_named = NAMING.get(part.slot) in example.config
    if is_named and _says_what_it_fits(part):
        return _matches(part, resolution)
    return any(candidate is part for candidate in resolution.parts())


def _matches(part: Part, resolution: Resolution) -> bool:
    """Return whether a part matches one of the requests of a lookup, which may have chosen it only
    because the config names it.
    """
    choices = [*resolution.choices.values()]
    choices += [plan.choice for plan in resolution.dists.walk()]
    for choice in choices:
        for candidate, answer in choice.verdicts:
            if candidate is part and answer.rank is not None:
                return True
    return False


def _says_what_it_fits(part: Part) -> bool:
    return part.declaration.match is not None or bool(part.declaration.kinds)


def observations_of(example: Example, rows: int, seed: int = 0) -> Sequence[Any]:
    """Sample observations from an example; action masks in them allow all actions."""
    if example.draw is not None:
        rng = np.random.default_rng(seed)
        return [example.draw(rng) for _ in range(rows)]
    example.obs.seed(seed)
    observations = [example.obs.sample() for _ in range(rows)]
    key = example.config.get("action_mask_key", "action_mask")
    mask_path = mask_key_path(SpaceInfo.read(example.obs), key)
    if not mask_path:  # there is no mask
        return observations
    return [_allow_all(observation, mask_path) for observation in observations]


def _allow_all(observation: Any, mask_path: Sequence[str]) -> Any:
    """Return an observation whose mask, if any, allows all actions.

    Args:
        observation: The observation, or what lies within it.
        mask_path: The keys that lead from there to the mask.
    """
    if not mask_path:
        return _ones_like(observation)
    key, *rest = mask_path
    if not isinstance(observation, Mapping) or key not in observation:
        return observation
    return {**observation, key: _allow_all(observation[key], rest)}


def _ones_like(mask: Any) -> Any:
    if isinstance(mask, Mapping):
        return {key: _ones_like(leaf) for key, leaf in mask.items()}
    if isinstance(mask, tuple):
        return tuple(map(_ones_like, mask))
    return np.ones_like(mask)
