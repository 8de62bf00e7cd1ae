"""The lookup of a whole pipeline, before a model is built; its warnings; and the memory of lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.actions import ActionMasks, mask_key
from rlcatalog.actions.masks import mask_steps, unused_masks
from rlcatalog.choice import Pins, Resolution, model_stages
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.choice.slots import Slots, collect_trunks
from rlcatalog.config import plain, same
from rlcatalog.errors import UnreadKeysWarning, UnsupportedSpaceError, UnusedMaskWarning
from rlcatalog.frameworks import default_framework, framework_name
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.plugins import Component, Request
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog.catalog import Catalog

T = TypeVar("T")

#: A config as the caller gave it, alone or with what else a lookup was given.
Config = Mapping[str, Any] | tuple[Any, ...] | None

#: How many lookups are remembered.
_MOST_LOOKUPS = 64


def find_resolution(
    catalog: Catalog,
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    config: Mapping[str, Any] | None,
    framework: str | None,
    pins: Pins | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Resolution:
    """Choose a part for every slot, from observation to action; see `Catalog.resolve`."""
    # The config, the framework and the two spaces.
    slots, values = catalog.slots, catalog.schema.parse(config, defaults)
    custom_model = slots.named("model", values["custom_model"])
    dist_names = named_dists(slots, values["custom_action_dist"])
    framework = framework_for(framework, custom_model, *dist_names.values())
    whole, action = SpaceInfo.read(obs_space), SpaceInfo.read(action_space, "action")
    # A custom model in RLlib's form, or a custom preprocessor, sees what the environment emits; any other model finds
    # the action mask in its output, not in its input.
    key = mask_key(whole, action, values["action_mask_key"])
    steps = () if key is None else mask_steps(whole, key)
    reads_mask = custom_model is not None and not getattr(custom_model.declaration, "plain", False)
    sees_mask = key is None or reads_mask or values["custom_preprocessor"] is not None
    seen = whole if sees_mask else whole.without(*steps)
    request = Request(seen, action, values.read_only(), framework, catalog=catalog, mask_key=key)
    # Preprocessor and filter.
    choices = {"preprocessor": slots.preprocessor(request, pins), "filter": slots.filter(request, pins)}
    preprocessor = catalog.preprocessor_for(seen, values, pins=pins, chosen=choices["preprocessor"].component)
    if not preprocessor.size:
        raise UnsupportedSpaceError(
            f"{seen.path}: {seen.describe()} holds no values, so that there is nothing for a model to see. Give the"
            " observation a value, if only a constant (gymnasium.wrappers.TransformObservation)."
        )
    request = replace(request, encoded_shape=preprocessor.shape, preprocessor=_seen_by_models(preprocessor))
    # The action distribution, which says how many outputs the model needs.
    dists = plan_dists(slots, request, dist_names, pins)
    if not dists.size:
        raise action.without_values(dists.component.name)
    request = replace(request, num_outputs=dists.size)
    # Trunk, memory and head. A config that contradicts their shapes is found here, before a framework is imported.
    parts, unclaimed = slots.model(request, custom_model, pins)
    with collect_trunks() as inner:
        layers = model_stages((choice.component for choice in parts.values()), request, dists.size, unclaimed)
    return Resolution(
        request, values, framework, {**choices, "action_dist": dists.choice, **parts}, preprocessor, dists,
        tuple(layers), pins, key, unclaimed, (*slots.env_wrappers(values), *inner), steps,
        unused_masks(whole, action, values["action_mask_key"]) if key is None else (),
    )  # fmt: skip


def framework_for(framework: str | None, *named: Component | None) -> str:
    """Return the framework of a lookup: the given one, that of a class of the program, or the default one."""
    if framework is not None:
        return framework_name(framework)
    custom = (c for c in named if c is not None and c.in_process and len(c.frameworks) == 1)
    return next((c.frameworks[0] for c in custom), None) or default_framework()


def _seen_by_models(preprocessor: Preprocessor) -> Preprocessor:
    """Return what a model finds behind its observations: where a codec makes their space itself, it may name another's.

    RLlib's codecs set `original_space` there, by which models restore the structure.
    """
    if type(preprocessor).observation_space is Preprocessor.observation_space:
        return preprocessor
    other = preprocessor_of(preprocessor.observation_space)
    return other if other is not None and other.shape == preprocessor.shape else preprocessor


# --- warnings --------------------------------------------------------------------------------------------------------


def warn_of(catalog: Catalog, resolution: Resolution) -> None:
    """Give the warnings of a lookup: of keys that nothing reads, once for all of them, and of unused action masks."""
    if resolution.unread:
        notes = []
        for key, condition in resolution.unread.items():
            readers = dict.fromkeys(c.name for c in catalog.components() if key in catalog.config_keys(c))
            note = f"read with {condition}" if condition else f"read by {' and '.join(readers)}" if readers else ""
            notes.append(f"{key} ({note})" if note else key)
        warn_caller(
            f"model config: nothing that was chosen reads {', '.join(notes)}. Leave out what has no effect here, or"
            " choose a part that reads it; explain() lists the parts and their keys.",
            UnreadKeysWarning,
        )
    if resolution.unused_masks:
        key, action = resolution.config["action_mask_key"], resolution.request.action
        assert action is not None
        way = f"If it is one, write the path of its Dicts into the model config: action_mask_key='part.{key}'."
        if not ActionMasks(action).size:
            way = f"{action.describe()} has no values that a mask could forbid."
        warn_caller(
            f"{' and '.join(resolution.unused_masks)} is named as an action mask and not used as one: the model sees it"
            f" as a feature. {way} If it is none, set action_mask_key to another name.",
            UnusedMaskWarning,
        )


# --- memory ----------------------------------------------------------------------------------------------------------


def recall(slots: Slots, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config) -> Any:
    """Return the answer to a lookup that was remembered, or None.

    Args:
        slots: Where answers are remembered; a catalog that changes has new ones.
        what: What is looked up, and what else the answer depends on.
        spaces: The spaces; the same objects, for comparing two spaces takes longer than most lookups.
        config: The config; equal in values and types.
    """
    for known, objects, given, answer in slots.answers:
        if known == what and all(map(is_, objects, spaces)) and same(given, config):
            return answer
    return None


def remember(slots: Slots, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config, answer: T) -> T:
    """Remember the answer to a lookup, and return it; see `recall`."""
    slots.answers = ((what, spaces, plain(config, alike=True), answer), *slots.answers[: _MOST_LOOKUPS - 1])
    return answer


def answer_of(slots: Slots, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config, find: Callable[[], T]) -> T:
    """Return the answer to a lookup, from memory where it was found before; see `recall`."""
    known: T | None = recall(slots, what, spaces, config)
    return remember(slots, what, spaces, config, find()) if known is None else known
