"""Building a model from the parts of its slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlcatalog.choice import MODEL_SLOTS, Resolution
from rlcatalog.choice.critic import is_complete, policy_side
from rlcatalog.config.flat import FlatConfig
from rlcatalog.errors import shown
from rlcatalog.frameworks import require_framework
from rlcatalog.observations.visible_observation import VisibleObservation
from rlcatalog.plugins import Part
from rlcatalog.spaces.info import Space

if TYPE_CHECKING:
    from rlcatalog.models import ModelV2


def build_model(
    choices: Mapping[str, Part | None],
    obs_space: Space,
    action_space: Space | None,
    num_outputs: int | None,
    config: FlatConfig,
    framework: str,
    *,
    name: str = "default_model",
    interface: type | None = None,
    kwargs: Mapping[str, Any] | None = None,
    unclaimed: VisibleObservation | None = None,
    action_dist: Callable[..., Any] | None = None,
) -> ModelV2:
    """Build a model from the parts for its slots; see also `rlcatalog.models.assemble`.

    It never builds a critic of its own; `build_chosen_model` does.

    Args:
        choices: The part for each slot, or None.
        obs_space: Space of encoded observations.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        config: The config; the parts that it names get `custom_model_config` and `memory_config`.
        framework: The framework.
        name: The model's name.
        interface: A mixin that adds methods.
        kwargs: Additional keyword arguments for the trunk.
        unclaimed: The part of the observation that the head does not read.
        action_dist: A callable that creates the action distribution, for the head.

    Raises:
        PartError: A target cannot be imported, or is not a model class of this framework.
        ConfigError: `freeze_parts` names a part that the model does not have.
    """
    # Lookups do not need them.
    from rlcatalog.models import ModelPart, assemble
    from rlcatalog.models.weights_by_part import set_frozen_parts

    require_framework(framework)
    slots_of_options = _slots_of_options(choices, config)
    parts = []
    for slot in MODEL_SLOTS:
        part = choices.get(slot)
        if part is None:
            continue
        arguments: dict[str, Any] = {}
        if slot == "trunk" and kwargs is not None:
            arguments |= kwargs
        options_key = slots_of_options.get(slot, "custom_model_config")
        if slot in slots_of_options:
            arguments |= config.fresh()[options_key]  # a copy, which the model may change
        cls = _load_model_class(part, framework)
        parts.append(ModelPart(cls, slot, arguments, part, options_key))

    trunk = choices.get("trunk")
    memory = choices.get("memory")

    def config_for_a_part() -> FlatConfig:
        values = config.fresh()
        if values["critic"] is not None:
            values["critic"] = {}  # it may contain a module, which is not this model's
        if trunk is not None and trunk.is_plain:
            # A plain module may be an instance. A model keeps its config as an attribute, and the
            # framework would find the instance there and count its weights a second time.
            values["custom_model"] = trunk.name
        if memory is not None and memory.is_plain:
            values["memory"] = memory.name
        return values

    model = assemble(
        parts,
        obs_space,
        action_space,
        num_outputs,
        config_for_a_part,
        name,
        interface,
        unclaimed,
        action_dist,
    )
    frozen_parts = config.get("freeze_parts")
    if frozen_parts:
        set_frozen_parts(model, frozen_parts)
    return model


def build_chosen_model(
    resolution: Resolution,
    encoded_space: Space,
    action_space: Space | None,
    action_dist: Callable[..., Any] | None,
) -> ModelV2:
    """Build the model that a lookup chose, with its critic if it has one of its own.

    Args:
        resolution: The lookup's choices.
        encoded_space: The space of encoded and filtered observations.
        action_space: The environment's action space.
        action_dist: A callable that creates the action distribution, for the head.

    Raises:
        PartError: A target cannot be imported, or is not a model class of this framework.
        ConfigError: `freeze_parts` names a part that the model does not have.
    """
    # Lookups do not need them.
    from rlcatalog.models.assembly import join_sides
    from rlcatalog.models.construction import StandardArguments
    from rlcatalog.models.weights_by_part import set_frozen_parts

    critic_resolution = resolution.critic
    config = resolution.config
    if critic_resolution is not None:
        config = policy_side(config)
    policy = _build_side(
        resolution, config, encoded_space, action_space, resolution.num_outputs, action_dist
    )
    if critic_resolution is None:
        return policy
    critic_is_complete = is_complete(critic_resolution.slots_of_model)
    critic = _build_side(
        critic_resolution,
        critic_resolution.config,
        encoded_space,
        action_space,
        num_outputs=1 if critic_is_complete else None,
        action_dist=None,
    )
    standard = StandardArguments(
        encoded_space, action_space, resolution.num_outputs, config.fresh(), "default_model"
    )
    model = join_sides(policy, critic, standard, critic_is_complete=critic_is_complete)
    frozen_parts = resolution.config["freeze_parts"]
    if frozen_parts:
        set_frozen_parts(model, frozen_parts)
    return model


def _build_side(
    resolution: Resolution,
    config: FlatConfig,
    encoded_space: Space,
    action_space: Space | None,
    num_outputs: int | None,
    action_dist: Callable[..., Any] | None,
) -> ModelV2:
    """Build the policy's model or its critic.

    Args:
        resolution: The choices for this side.
        config: Its config.
        encoded_space: The space of whole encoded observations.
        action_space: See `build_chosen_model`.
        num_outputs: Width of the output, or None for a trunk.
        action_dist: See `build_chosen_model`.
    """
    model = build_model(
        resolution.parts_by_slot(*MODEL_SLOTS),
        resolution.space_for_model(encoded_space),
        action_space,
        num_outputs,
        config,
        resolution.framework,
        unclaimed=resolution.unclaimed,
        action_dist=action_dist,
    )
    model._rlcatalog_bookkeeping.visible = resolution.visible
    return model


def _load_model_class(part: Part, framework: str) -> Any:
    cls = part.load(framework)
    # A plugin's target may be anything.
    if part.is_third_party and getattr(cls, "framework_of_class", None) != framework:
        raise part.fault(f"its target must be a model class of {framework!r}, found {shown(cls)}.")
    return cls


def _slots_of_options(choices: Mapping[str, Part | None], config: FlatConfig) -> dict[str, str]:
    """Return slot → the config key that has the keyword arguments of its part, for the parts that
    the config names.
    """
    slots = {}
    name = config["custom_model"]
    if name is not None:
        slots["trunk"] = "custom_model_config"  # for a class, which is no name
        for slot, part in choices.items():
            if part is not None and part.name == name:
                slots = {slot: "custom_model_config"}
                break
    if config["memory"] is not None:
        slots["memory"] = "memory_config"
    return slots
