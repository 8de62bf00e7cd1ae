"""Lookup and construction of individual components: methods of `Catalog`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlcatalog.actions import mask_key
from rlcatalog.catalog.lookups import answer_of, framework_for
from rlcatalog.choice import MODEL_SLOTS, Pins, model_stages
from rlcatalog.choice.dist_plan import named_dists, plan_dists
from rlcatalog.config.flat import FlatConfig, ReadOnlyConfig
from rlcatalog.config.values import plain_values
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import require_framework
from rlcatalog.observations import Preprocessor, preprocessor_of
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.observations.watch import check_answers
from rlcatalog.plugins import Component, Request
from rlcatalog.plugins.component import blame_part
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    from rlcatalog.catalog.catalog import Catalog
    from rlcatalog.models import ModelV2


# --- preprocessors --------------------------------------------------------------------------------


def preprocessor_for(
    catalog: Catalog,
    space: Space | SpaceInfo,
    options: Mapping[str, Any] | None = None,
    *,
    check: str | None = None,
    pins: Pins | None = None,
    chosen: Mapping[str, Component | None] | None = None,
) -> Preprocessor:
    """Create the preprocessor for a space.

    Args:
        space: The space, or its SpaceInfo.
        options: A complete model config.
        check: When to check observations; None takes this setting from the options.
        pins: The choices of an earlier lookup to repeat, including the choices for children.
        chosen: Path → component, for spaces whose component has already been chosen; others are
            looked up.

    Raises:
        UnsupportedSpaceError: No installed preprocessor supports a leaf; the message names it.
        PartError: The target is not a preprocessor class, or its constructor breaks the contract.
    """
    info = space if isinstance(space, SpaceInfo) else SpaceInfo.read(space)
    options = plain_values(options or {})  # a copy, because it may change them
    # RLlib's preprocessors look here.
    options["custom_options"] = options.get("custom_model_config", {})
    check = check or options.get("check_observations", "first")
    if (component := (chosen or {}).get(info.path)) is None:
        component = catalog.slots.preprocessor(
            Request(info, config=ReadOnlyConfig(options)), pins
        ).component
    assert component is not None
    cls = component.load("numpy")
    if not (isinstance(cls, type) and issubclass(cls, Preprocessor)):
        raise component.fault(
            f"its target must be a subclass of rlcatalog.Preprocessor, found {shown(cls)}."
        )
    try:
        with blame_part(component):
            if cls.__init__ is Preprocessor.__init__:
                # Root checks.
                find_child = partial(
                    preprocessor_for, catalog, check="never", pins=pins, chosen=chosen
                )
                made = cls(info.space, options, check=check, info=info, find_child=find_child)
            else:  # a custom class with a constructor in RLlib's form
                made = cls(info.space, dict(options))
    except ModelContractError as error:
        if component.distribution and component.provider not in str(error):
            error.args = (f"{component.title}: {error}",)
        raise
    if not hasattr(made, "size"):
        raise component.fault(
            f"{cls.__qualname__}.__init__() must call rlcatalog.Preprocessor.__init__(); it did"
            " not."
        )
    if made.check_mode != check:
        made.set_check(check)
    made.component, made.made_by = component, catalog
    made.is_watched = not component.is_indexed
    if made.is_watched:
        check_answers(made)
    return made


# --- distributions --------------------------------------------------------------------------------


def action_dist(
    catalog: Catalog,
    action_space: Space,
    config: Mapping[str, Any] | None = None,
    dist_type: str | type | None = None,
    framework: str | None = None,
) -> tuple[Any, int]:
    """Return the distribution class for an action space; see `ModelCatalog.get_action_dist`.

    Raises:
        UnsupportedSpaceError: No distribution supports the space or one of its subspaces; the
            message names the leaf.
    """
    slots = catalog.slots

    def find() -> tuple[Any, int]:
        values = catalog.parse_config(config)
        names = named_dists(slots, values["custom_action_dist"], dist_type)
        # A custom model decides, too, because it computes the inputs.
        custom_model = slots.named("model", values["custom_model"]) if framework is None else None
        chosen = framework_for(framework, *names.values(), custom_model)
        info = SpaceInfo.read(action_space, "action")
        plan = plan_dists(slots, Request(info, info, values.read_only(), chosen), names)
        return plan.load(chosen, values.read_only()), plan.size

    return answer_of(slots, ("action_dist", framework), (action_space,), (config, dist_type), find)


# --- models ---------------------------------------------------------------------------------------


def model_v2(
    catalog: Catalog,
    obs_space: Space,
    action_space: Space,
    num_outputs: int | None,
    config: Mapping[str, Any] | None = None,
    framework: str | None = None,
    name: str = "default_model",
    interface: type | None = None,
    default_model: type | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> ModelV2:
    """Build a model for encoded observations; see `ModelCatalog.get_model_v2`."""
    slots = catalog.slots

    def find() -> dict[str, Any]:
        parsed = catalog.parse_config(config)
        values = FlatConfig(parsed)
        values["custom_model"] = values["custom_model"] or default_model
        custom = slots.named("model", values["custom_model"])
        chosen = framework_for(framework, custom)
        # Models of the catalog see a Dict or Tuple encoded; a class in RLlib's form sees the
        # structure.
        space, info = obs_space, SpaceInfo.read(obs_space)
        stays = hasattr(space, "original_space") or (custom is not None and custom.undeclared)
        is_plain = custom is not None and getattr(custom.declaration, "plain", False)
        if not stays and (info.is_composite or (is_plain and info.kind != "box")):
            space = catalog.preprocessor_for(space, values, check="never").observation_space
        original = SpaceInfo.read(getattr(space, "original_space", space))
        encoded = space.shape if SpaceInfo.read(space).kind == "box" else None
        action = SpaceInfo.read(action_space, "action")
        request = Request(
            original,
            action,
            values.read_only(),
            chosen,
            encoded,
            num_outputs,
            preprocessor=preprocessor_of(space),
            catalog=catalog,
            mask_key=mask_key(original, action, values["action_mask_key"]),
        )
        slot_choices, unclaimed = slots.model(request, custom, None)
        choices = {slot: choice.component for slot, choice in slot_choices.items()}
        # Raises where config and shapes disagree.
        model_stages(choices.values(), request, num_outputs, unclaimed)
        dist = (
            catalog.action_dist(action_space, config, framework=chosen)[0]
            if choices["head"]
            else None
        )
        return {
            "obs_space": space,
            "choices": choices,
            "config": parsed,
            "framework": chosen,
            "unclaimed": unclaimed,
            "action_dist": dist,
        }

    what, spaces = ("model", framework, num_outputs), (obs_space, action_space)
    made_of = answer_of(slots, what, spaces, (config, default_model), find)
    return model(
        action_space=action_space,
        num_outputs=num_outputs,
        name=name,
        interface=interface,
        kwargs=kwargs,
        **made_of,
    )


def model(
    choices: Mapping[str, Component | None],
    obs_space: Space,
    action_space: Space | None,
    num_outputs: int | None,
    config: FlatConfig,
    framework: str,
    *,
    name: str = "default_model",
    interface: type | None = None,
    kwargs: Mapping[str, Any] | None = None,
    unclaimed: TrunkObservation | None = None,
    action_dist: Callable[..., Any] | None = None,
) -> ModelV2:
    """Build a model from the components for its slots; see also `rlcatalog.models.assemble`.

    Args:
        choices: The component for each slot, or None.
        obs_space: Space of encoded observations.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        config: The config; the trunk gets `custom_model_config`.
        framework: The framework.
        name: The model's name.
        interface: A mixin that adds methods.
        kwargs: Additional keyword arguments for the trunk.
        unclaimed: The part of the observation that the head does not read.
        action_dist: A callable that creates the action distribution, for the head.

    Raises:
        PartError: A target cannot be imported, or is not a model class of this framework.
    """
    from rlcatalog.models import ModelPart, assemble  # lookups do not need them

    require_framework(framework)
    parts = []
    named = next(
        (slot for slot, c in choices.items() if c and c.name == config["custom_model"]), "trunk"
    )
    for slot in MODEL_SLOTS:
        if (component := choices.get(slot)) is None:
            continue
        custom = (
            config.fresh()["custom_model_config"]
            if slot == named and config["custom_model"] is not None
            else {}
        )
        own = {**(kwargs or {} if slot == "trunk" else {}), **custom}
        cls = component.load(framework)
        if component.is_third_party and getattr(cls, "framework_of_class", None) != framework:
            raise component.fault(
                f"its target must be a model class of {framework!r}, found {shown(cls)}."
            )
        parts.append(ModelPart(cls, slot, own, component))
    trunk = choices.get("trunk")

    def fresh() -> FlatConfig:
        values = config.fresh()
        if trunk is not None and trunk.declaration.plain:  # type: ignore[attr-defined]
            # An instance in the config would be found among its model's weights.
            values["custom_model"] = trunk.name
        return values

    return assemble(
        parts, obs_space, action_space, num_outputs, fresh, name, interface, unclaimed, action_dist
    )
