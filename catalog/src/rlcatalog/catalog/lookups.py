"""Lookups: what a catalog chooses, before anything is built."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rlcatalog.actions import ActionMasks, mask_key
from rlcatalog.actions.masks import mask_steps, unused_masks
from rlcatalog.choice import Pins, Resolution, model_stages
from rlcatalog.choice.action_plan import NamedDistributions, plan_actions
from rlcatalog.choice.in_process import in_process_model
from rlcatalog.choice.slots import collect_trunks
from rlcatalog.config import plain, same
from rlcatalog.config.flat import FlatConfig
from rlcatalog.errors import UnreadKeysWarning, UnsupportedSpaceError, UnusedMaskWarning
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.plugins import Request
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog.catalog import Catalog


#: A config as the caller gave it, alone or with what else a lookup was given.
Config = Mapping[str, Any] | tuple[Any, ...] | None


def find_resolution(
    catalog: Catalog,
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    config: Mapping[str, Any] | None,
    framework: str | None,
    pins: Pins | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Resolution:
    """Choose a part for every slot; see `Catalog.resolve`."""
    slots, values = catalog.slots, catalog.schema.parse(config, defaults)
    custom_model = slots.named("model", values["custom_model"], in_process_model)
    names = NamedDistributions(slots, values["custom_action_dist"], pins=pins)
    framework = slots.framework(framework, custom_model, *names.components)
    whole, action = SpaceInfo.read(obs_space), SpaceInfo.read(action_space, "action")
    key = mask_key(whole, action, values["action_mask_key"])
    # A custom model or preprocessor sees what the environment emits; any other model finds the mask in its output,
    # not in its input.
    steps = () if key is None else mask_steps(whole, key)
    whole_seen = key is None or custom_model is not None or values["custom_preprocessor"] is not None
    seen = whole if whole_seen else whole.without(*steps)
    request = Request(seen, action, values.read_only(), framework, catalog=catalog, mask_key=key)
    choices = {"preprocessor": slots.preprocessor(request, pins), "filter": slots.filter(request, pins)}
    preprocessor = catalog.preprocessor_for(request.obs, values, pins=pins, chosen=choices["preprocessor"].component)
    if not preprocessor.size:
        raise UnsupportedSpaceError(
            f"{seen.path}: {seen.describe()} holds no values, so that there is nothing for a model to see. Give the"
            " observation a value, if only a constant (gymnasium.wrappers.TransformObservation)."
        )
    request = replace(request, encoded_shape=preprocessor.shape, preprocessor=_seen_by_models(preprocessor))
    actions = plan_actions(slots, request, names)
    if not actions.size:
        raise action.without_values(actions.component.name)
    choices["action_dist"] = actions.choice
    request = replace(request, num_outputs=actions.size)
    parts, unclaimed = slots.model(request, custom_model, pins)
    keys_of = partial(catalog.config_keys, framework=framework)
    resolution = Resolution(
        request, values, framework, choices | parts, preprocessor, actions, keys_of, pins, key, unclaimed,
        slots.env_wrappers(values), steps,
        unused_masks(whole, action, values["action_mask_key"]) if key is None else (),
    )  # fmt: skip
    with collect_trunks() as inner:
        _ = resolution.shapes  # a config that contradicts the shapes is found before a framework is imported
    resolution.beside.extend(inner)
    return resolution


def _seen_by_models(preprocessor: Preprocessor) -> Preprocessor:
    """Return what a model finds behind its observations: where a codec makes their space itself, it may name another's.

    RLlib's codecs set `original_space` there, by which models restore the structure.
    """
    if type(preprocessor).observation_space is Preprocessor.observation_space:
        return preprocessor
    other = preprocessor_of(preprocessor.observation_space)
    return other if other is not None and other.shape == preprocessor.shape else preprocessor


def warn_of(catalog: Catalog, resolution: Resolution) -> None:
    """Give the warnings of a lookup."""
    if resolution.unread:
        _warn_of_unread(catalog, resolution)
    if resolution.unused_masks:
        _warn_of_unused_masks(resolution)


def _warn_of_unread(catalog: Catalog, resolution: Resolution) -> None:
    """Warn, once for all of them, of the keys that nothing reads."""
    parts = catalog.components()
    notes = {}
    for key, condition in resolution.unread.items():
        readers = dict.fromkeys(c.name for c in parts if key in catalog.config_keys(c))
        notes[key] = f"read with {condition}" if condition else f"read by {' and '.join(readers)}" if readers else ""
    keys = ", ".join(f"{key} ({note})" if note else key for key, note in notes.items())
    warn_caller(
        f"model config: nothing that was chosen reads {keys}. Leave out what has no effect here, or choose a part that"
        " reads it; explain() lists the parts and their keys.",
        UnreadKeysWarning,
    )


def _warn_of_unused_masks(resolution: Resolution) -> None:
    """Warn of entries of the observation that are named as an action mask is, and are none."""
    key, action = resolution.config["action_mask_key"], resolution.request.action
    assert action is not None
    way = f"If it is one, write the path of its Dicts into the model config: action_mask_key='part.{key}'."
    if not ActionMasks(action).size:
        way = f"{action.describe()} has no values that a mask could forbid."
    warn_caller(
        f"{' and '.join(resolution.unused_masks)} is named as an action mask and not used as one: the model sees it as"
        f" a feature. {way} If it is none, set action_mask_key to another name.",
        UnusedMaskWarning,
    )


def find_action_dist(
    catalog: Catalog,
    action_space: gymnasium.Space[Any],
    config: Mapping[str, Any] | None,
    dist_type: str | type | None,
    framework: str | None,
) -> tuple[Any, int]:
    """Return distribution class and number of inputs; see `Catalog.action_dist`."""
    slots, values = catalog.slots, catalog.parse_config(config)
    names = NamedDistributions(slots, values["custom_action_dist"], dist_type)
    if framework is None:  # the model that makes the inputs decides as well
        framework = slots.framework(
            None, *names.components, slots.named("model", values["custom_model"], in_process_model)
        )
    framework = slots.framework(framework)
    info = SpaceInfo.read(action_space, "action")
    plan = plan_actions(slots, Request(info, info, values.read_only(), framework), names)
    return plan.load(framework, values.read_only()), plan.size


def _encoded(catalog: Catalog, obs_space: gymnasium.Space[Any], values: FlatConfig) -> Any:
    """Return the space that the catalog's models see for one of an environment, a Dict or Tuple; any other as it is."""
    if hasattr(obs_space, "original_space"):
        return obs_space
    info = SpaceInfo.read(obs_space)
    return catalog.preprocessor_for(info, values, check="never").observation_space if info.is_composite else obs_space


def find_model_parts(
    catalog: Catalog,
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    num_outputs: int | None,
    config: Mapping[str, Any] | None,
    framework: str | None,
    default: type | None,
) -> dict[str, Any]:
    """Choose the parts of a model; return arguments of `Catalog.model`."""
    slots, parsed = catalog.slots, catalog.parse_config(config)
    values = FlatConfig(parsed)
    values["custom_model"] = values["custom_model"] or default
    custom = slots.named("model", values["custom_model"], in_process_model)
    framework = slots.framework(framework, custom)
    if custom is None or not custom.undeclared:  # one in RLlib's form is given the space as it stands
        obs_space = _encoded(catalog, obs_space, values)
    original = SpaceInfo.read(getattr(obs_space, "original_space", obs_space))
    encoded = obs_space.shape if SpaceInfo.read(obs_space).kind == "box" else None
    action = SpaceInfo.read(action_space, "action")
    request = Request(
        original, action, values.read_only(), framework, encoded, num_outputs, preprocessor=preprocessor_of(obs_space),
        catalog=catalog, mask_key=mask_key(original, action, values["action_mask_key"]),
    )  # fmt: skip
    slot_choices, unclaimed = slots.model(request, custom, None)
    choices = {slot: choice.component for slot, choice in slot_choices.items()}
    model_stages(choices.values(), request, num_outputs, unclaimed)
    action_dist = catalog.action_dist(action_space, config, framework=framework)[0] if choices["head"] else None
    return {
        "obs_space": obs_space, "choices": choices, "config": parsed, "framework": framework, "unclaimed": unclaimed,
        "action_dist": action_dist,
    }  # fmt: skip


class LookupCache:
    """Remembers what lookups found.

    Args:
        size: How many lookups are remembered; then it is begun anew.
    """

    def __init__(self, size: int = 64) -> None:
        self._size, self._count, self._filling = size, 0, threading.Lock()
        self._entries: dict[tuple[Any, ...], list[tuple[Any, Any, tuple[Any, ...]]]] = {}

    def get(self, what: tuple[Any, ...], spaces: tuple[Any, ...], config: Config) -> Any:
        """Return what was put under the same; None where nothing was.

        Args:
            what: What is looked up, and what else it depends on, hashable.
            spaces: The spaces; the same objects, for comparing two spaces takes longer than most lookups.
            config: The config, as the caller gave it; equal in values and types.
        """
        for known, result, _ in self._entries.get((*what, *map(id, spaces)), ()):
            if same(known, config):
                return result
        return None

    def put(
        self,
        what: tuple[Any, ...],
        spaces: tuple[Any, ...],
        config: Config,
        result: Resolution | tuple[Any, ...] | dict[str, Any],
    ) -> None:
        """Remember what a lookup found; see `get`."""
        known = plain(config, alike=True)
        with self._filling:
            if self._count >= self._size:
                self.clear()
            self._count += 1
            # The spaces stand in the entry: their ids stay theirs as long as it is remembered.
            self._entries.setdefault((*what, *map(id, spaces)), []).append((known, result, spaces))

    def clear(self) -> None:
        """Forget everything."""
        self._entries, self._count = {}, 0
