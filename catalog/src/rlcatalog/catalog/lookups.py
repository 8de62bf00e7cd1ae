"""Lookup of a whole pipeline before the model is built, with warnings and a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.actions import ActionMasks, mask_key
from rlcatalog.actions.masks import mask_steps, unused_masks
from rlcatalog.choice import Pins, Resolution, model_stages
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.choice.slots import Slots, collect_trunks
from rlcatalog.config import plain, same
from rlcatalog.errors import (
    ActionRangeWarning,
    ImageLayoutWarning,
    OneHotWarning,
    UnreadKeysWarning,
    UnsupportedSpaceError,
    UnusedMaskWarning,
)
from rlcatalog.frameworks import default_framework, framework_name
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.plugins import Component, Request
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import ImageLayout
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.catalog.catalog import Catalog

T = TypeVar("T")

#: The caller's config, alone or with the other arguments of a lookup.
Config = Mapping[str, Any] | tuple[Any, ...] | None

#: Kinds of leaves that are encoded as one-hot vectors.
ONE_HOT_KINDS = ("discrete", "multi_discrete", "text")
#: Number of one-hot inputs of a leaf above which a lookup warns.
MOST_ONE_HOTS = 10_000
#: Number of cached lookups.
_MOST_LOOKUPS = 64


def find_resolution(
    catalog: Catalog,
    obs_space: Space,
    action_space: Space,
    config: Mapping[str, Any] | None,
    framework: str | None,
    pins: Pins | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Resolution:
    """Choose a component for every slot, from observation to action; see `Catalog.resolve`."""
    # The config, the framework and the two spaces.
    slots, values = catalog.slots, catalog.schema.parse(config, defaults)
    custom_model = slots.named("model", values["custom_model"])
    dist_names = named_dists(slots, values["custom_action_dist"])
    framework = framework_for(framework, custom_model, *dist_names.values())
    whole, action = SpaceInfo.read(obs_space), SpaceInfo.read(action_space, "action")
    # A custom preprocessor, and a custom model in RLlib's form, see the whole observation, with the
    # action mask. For other models the mask is applied to the output.
    key = mask_key(whole, action, values["action_mask_key"])
    steps = () if key is None else mask_steps(whole, key)
    reads_mask = custom_model is not None and not getattr(custom_model.declaration, "plain", False)
    sees_mask = key is None or reads_mask or values["custom_preprocessor"] is not None
    seen = whole if sees_mask else whole.without(*steps)
    request = Request(seen, action, values.read_only(), framework, catalog=catalog, mask_key=key)
    # Preprocessor and filter.
    choices = {
        "preprocessor": slots.preprocessor(request, pins),
        "filter": slots.filter(request, pins),
    }
    root = {seen.path: choices["preprocessor"].component}
    preprocessor = catalog.preprocessor_for(seen, values, pins=pins, chosen=root)
    if not preprocessor.size:
        raise UnsupportedSpaceError(
            f"{seen.path}: {seen.describe()} has no values, so a model would have no input. Add a"
            " value to the observation, such as a constant"
            " (gymnasium.wrappers.TransformObservation)."
        )
    request = request.replace(
        encoded_shape=preprocessor.shape, preprocessor=_seen_by_models(preprocessor)
    )
    # The action distribution, which determines the number of model outputs.
    dists = plan_dists(slots, request, dist_names, pins)
    if not dists.size:
        raise action.without_values(dists.component.name)
    request = request.replace(num_outputs=dists.size)
    # Trunk, memory and head. A config with contradictory shapes fails here, before a framework is
    # imported.
    parts, unclaimed = slots.model(request, custom_model, pins)
    with collect_trunks() as inner:
        layers = model_stages(
            (choice.component for choice in parts.values()), request, dists.size, unclaimed
        )
    return Resolution(
        request,
        values,
        framework,
        {**choices, "action_dist": dists.choice, **parts},
        preprocessor,
        dists,
        tuple(layers),
        pins,
        key,
        unclaimed,
        (*slots.env_wrappers(values), *inner),
        steps,
        unused_masks(whole, action, values["action_mask_key"]) if key is None else (),
    )


def framework_for(framework: str | None, *named: Component | None) -> str:
    """Return a lookup's framework: the one given, or a registered class's, or the default."""
    if framework is not None:
        return framework_name(framework)
    custom = (c for c in named if c is not None and c.in_process and len(c.frameworks) == 1)
    return next((c.frameworks[0] for c in custom), None) or default_framework()


def _seen_by_models(preprocessor: Preprocessor) -> Preprocessor:
    """Return the preprocessor whose structure models restore from their observations.

    A codec in RLlib's style may create its observation space and set its `original_space` to the
    space of a different preprocessor.
    """
    if type(preprocessor).observation_space is Preprocessor.observation_space:
        return preprocessor
    other = preprocessor_of(preprocessor.observation_space)
    return other if other is not None and other.shape == preprocessor.shape else preprocessor


# --- warnings -------------------------------------------------------------------------------------


def warn_of(catalog: Catalog, resolution: Resolution) -> None:
    """Warn once about all keys that no chosen component reads, about images that can be read in
    two ways, about very many one-hot inputs, about unused action masks, and about actions that are
    hard to reach.
    """
    for box in resolution.action_ranges:
        for problem in box.problems:
            warn_caller(problem, ActionRangeWarning)
    if resolution.unread:
        notes = []
        for key, condition in resolution.unread.items():
            readers = dict.fromkeys(
                c.name for c in catalog.components() if key in catalog.config_keys(c)
            )
            note = (
                f"read with {condition}"
                if condition
                else f"read by {' and '.join(readers)}"
                if readers
                else ""
            )
            notes.append(f"{key} ({note})" if note else key)
        warn_caller(
            f"model config: no chosen part reads {', '.join(notes)}. Remove keys without effect,"
            " or choose a part that reads them; explain() lists the parts and their keys.",
            UnreadKeysWarning,
        )
    for path, layout in resolution.image_layouts.items():
        if not layout.is_certain:
            other = ImageLayout(layout.has_frames, not layout.channels_first)
            key = "chw" if layout.channels_first else "hwc"
            other_key = "hwc" if layout.channels_first else "chw"
            warn_caller(
                f"{path}: the image's axes can be read in two ways; the net reads them as"
                f" {layout}. If this is right, set image_layout={key!r}; if they are {other}, set"
                f" image_layout={other_key!r}.",
                ImageLayoutWarning,
            )
    for leaf in resolution.preprocessor.leaves():
        count = leaf.stop - leaf.start
        if leaf.kind in ONE_HOT_KINDS and count > MOST_ONE_HOTS:
            warn_caller(
                f"{leaf.path} becomes {count:,} one-hot inputs, so that a dense layer of 256 units"
                f" has {256 * count:,} weights for it. Set _disable_preprocessor_api=True to pass"
                " its integers to a custom model that embeds them (for a Text,"
                " text_encoding='index'), or map them to fewer in an environment wrapper.",
                OneHotWarning,
            )
    if resolution.unused_masks:
        key, action = resolution.config["action_mask_key"], resolution.action
        way = f"If it is one, set its path in the model config: action_mask_key='part.{key}'."
        if not ActionMasks(action).size:
            way = f"{action.describe()} has no values that a mask could forbid."
        warn_caller(
            f"{' and '.join(resolution.unused_masks)} is named like an action mask, but is not"
            f" used as one: the model sees it as a feature. {way} If it is not a mask, set"
            " action_mask_key to another name.",
            UnusedMaskWarning,
        )


# --- cache ----------------------------------------------------------------------------------------


def recall(slots: Slots, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config) -> Any:
    """Return the cached result of a lookup, or None.

    Args:
        slots: The object that contains the cache; a catalog that changes gets a new one.
        what: The request, and everything else that the result depends on.
        spaces: The spaces, compared by identity, because comparing their values takes longer than
            most lookups.
        config: The config, compared by values and types.
    """
    for known, objects, given, answer in slots.answers:
        if known == what and all(map(is_, objects, spaces)) and same(given, config):
            return answer
    return None


def remember(
    slots: Slots, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config, answer: T
) -> T:
    """Cache the result of a lookup, and return it; see `recall`."""
    slots.answers = (
        (what, spaces, plain(config, alike=True), answer),
        *slots.answers[: _MOST_LOOKUPS - 1],
    )
    return answer


def answer_of(
    slots: Slots,
    what: tuple[Any, ...],
    spaces: tuple[Any, ...],
    config: Config,
    find: Callable[[], T],
) -> T:
    """Return the result of a lookup, from the cache if possible; see `recall`."""
    known: T | None = recall(slots, what, spaces, config)
    return remember(slots, what, spaces, config, find()) if known is None else known
