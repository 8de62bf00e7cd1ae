"""Assembly of a model from its parts, always in this order: trunk → memory →
head → interface.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, cast

from rlcatalog.errors import ModelContractError, NotServedError, UnreadKeysWarning
from rlcatalog.frameworks import frameworks
from rlcatalog.models.construction import ModelPart, check_class
from rlcatalog.models.model import ModelV2, name_method, part_of
from rlcatalog.models.views import ViewRequirement
from rlcatalog.models.wrappers import SeparateValue
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.reporting import warn_caller
from rlcatalog.spaces.info import Space


def assemble(
    parts: list[ModelPart],
    obs_space: Space,
    action_space: Space | None,
    num_outputs: int | None,
    fresh_config: Callable[[], dict[str, Any]],
    name: str,
    interface: type | None = None,
    unclaimed: TrunkObservation | None = None,
    action_dist: Callable[..., Any] | None = None,
) -> ModelV2:
    """Build a chain of models, each with the previous one as its `trunk`.

    A head also gets `value_trunk`: if `vf_share_layers` is False, a second model like `trunk` for
    the value, otherwise None. Its third argument, `action_dist`, creates the distribution.

    With `vf_share_layers=False` and a state, the value gets a second chain up to the head
    (`SeparateValue`). With `vf_memory="none"`, that chain has no memory.

    Args:
        parts: The classes, from the inside out; the last one can be a head.
        obs_space: Space of encoded observations.
        action_space: The environment's action space.
        num_outputs: Width of the outermost part's output, or None for a trunk.
        fresh_config: A function that returns a new copy of the model config.
        name: The model's name.
        interface: A mixin that adds methods; it is combined with a wrapper class that contains the
            model.
        unclaimed: The part of the observation that the head leaves to the other models; None if it
            leaves the whole observation.
        action_dist: A callable that creates the action distribution, for the head.

    Raises:
        ModelContractError: A class is not a ModelV2, or breaks the trunk protocol.
        ConfigError: The class does not accept a keyword argument.

    Warns:
        UnreadKeysWarning: A class in RLlib's style was built without the keyword arguments that it
            does not accept.
    """
    if isinstance(num_outputs, Integral):
        num_outputs = int(num_outputs)  # the product of a shape is a NumPy number
    *inside, last = parts
    check_class(last.cls)
    inner_space = obs_space if unclaimed is None else unclaimed.space(obs_space)
    is_apart = last.slot != "trunk" and not fresh_config().get("vf_share_layers", True)

    def standard(outputs: int | None, space: Any = inner_space) -> tuple[Any, ...]:
        return space, action_space, outputs, fresh_config(), name

    def separate_value(
        actor: ModelV2, parts: list[ModelPart], outputs: int | None
    ) -> SeparateValue:
        cls = _separate_value_class(parts[-1].cls)
        kept = parts[:1] if fresh_config().get("vf_memory", "own") == "none" else parts
        held = {"trunk": actor, "value_trunk": _build_body(standard, kept, None)}
        held = {role: _checked_trunk(model, cls) for role, model in held.items()}
        return cast("SeparateValue", ModelPart(cls).construct(standard(outputs), held))

    def head(outputs: int | None) -> ModelV2:
        trunk = _checked_trunk(_build_body(standard, inside, None), last.cls)
        value_trunk: Any = None
        if is_apart and outputs is not None and list(trunk.get_initial_state()):
            trunk = pair = separate_value(trunk, inside, None)
            value_trunk = pair.value_features()
            _check_same_width(pair, last.cls)
        elif is_apart:
            value_trunk = _serving(
                _checked_trunk(_build_body(standard, inside, None), last.cls), unclaimed
            )
        held = {
            "trunk": _serving(trunk, unclaimed),
            "value_trunk": value_trunk,
            "action_dist": action_dist,
        }
        model = last.construct(standard(outputs, obs_space), held)
        model.view_requirements = _views_of_both(trunk, model)
        _check_carries(model, trunk)
        return model

    def build(outputs: int | None) -> ModelV2:
        if last.slot == "head":
            return head(outputs)
        if is_apart and outputs is not None:
            return separate_value(_build_body(standard, parts, None), parts, outputs)
        return _build_body(standard, parts, outputs)

    if interface is None or issubclass(last.cls, interface):
        model = build(num_outputs)
    else:
        host = ModelPart(_host_class(interface, last.cls, build))
        model = host.construct(standard(num_outputs, obs_space), {})
    _warn_of_left_out(parts)
    return model


def _build_body(
    standard: Callable[..., tuple[Any, ...]], parts: list[ModelPart], outputs: int | None
) -> ModelV2:
    """Build a trunk and, if there is one, a memory around it."""
    trunk, *memories = parts
    model = trunk.construct(standard(None if memories else outputs), {})
    for memory in memories:
        inner = _checked_trunk(model, memory.cls)
        model = memory.construct(standard(outputs), {"trunk": inner})
        model.view_requirements = _views_of_both(inner, model)
    return model


def _serving(trunk: ModelV2, unclaimed: TrunkObservation | None) -> ModelV2:
    """Restrict a head's trunk to the part of the observation that the head does not read."""
    trunk._rlcatalog.unclaimed = unclaimed
    if unclaimed is not None:
        _check_no_past_observations(trunk, unclaimed)
    return trunk


def _host_class(interface: type, inner: Any, build: Callable[[int | None], ModelV2]) -> type:
    """Return a class that contains a complete model and has an interface's methods."""

    def build_inner(outputs: int | None) -> ModelV2:
        model = build(outputs)
        return model if outputs is not None else _checked_trunk(model, interface)

    host = frameworks()[inner.framework_of_class].load("host")
    return type(interface.__name__, (interface, host), {"build_inner": staticmethod(build_inner)})


def _warn_of_left_out(parts: list[ModelPart]) -> None:
    """Warn if a model was built without some of its keyword arguments."""
    for part in parts:
        if part.left_out:
            names = ", ".join(map(repr, sorted(part.left_out)))
            warn_caller(
                f"custom_model_config: {part.cls.__name__}.__init__ does not accept {names}. As in"
                " RLlib, the class is"
                ' built without them and can read them from model_config["custom_model_config"].',
                UnreadKeysWarning,
            )


def _checked_trunk(trunk: ModelV2, outer: type) -> ModelV2:
    if not isinstance(trunk.num_outputs, Integral):
        raise ModelContractError(
            f"{type(trunk).__name__} was built as the trunk of {outer.__name__}, with"
            " num_outputs=None, but did not set self.num_outputs to the width of its"
            f" output{part_of(trunk)}."
        )
    views = [name for name in trunk.view_requirements if name.startswith("state_in_")]
    if getattr(outer, "is_memory", False) and (views or list(trunk.get_initial_state())):
        why = f"it has the view {views[0]!r}" if views else "get_initial_state() is not empty"
        raise NotServedError(
            f"{type(trunk).__name__} is itself recurrent ({why}); {outer.__name__} cannot be"
            " wrapped around it. Turn the memory off in the config."
        )
    return trunk


def _separate_value_class(cls: type) -> Any:
    """Return the framework's class for models with separate chains for the policy and the value."""
    framework = frameworks()[cls.framework_of_class]  # type: ignore[attr-defined]
    if "separate_value" not in framework.targets:
        raise NotServedError(
            f"framework {framework.name!r} has no separate_value, which {cls.__name__}, a model"
            " with a state, needs for vf_share_layers=False. Remove vf_share_layers."
        )
    return framework.load("separate_value")


def _check_carries(head: ModelV2, trunk: ModelV2) -> None:
    own, inner = (len(list(model.get_initial_state())) for model in (head, trunk))
    if own < inner:
        raise ModelContractError(
            f"{name_method(head, 'get_initial_state')} returned {own} tensors, but its trunk"
            f" {type(trunk).__name__} has a state of {inner}, which would be lost at each step."
            " Return self.trunk.get_initial_state(), and the trunk's new state from forward()."
        )


def _check_same_width(both: SeparateValue, head: type) -> None:
    widths = both.trunk.num_outputs, both.value_trunk.num_outputs
    if widths[0] != widths[1]:
        raise NotServedError(
            f"vf_memory='none': {head.__name__} needs features of the same width for the logits"
            f" and the value. The memory's have {widths[0]}, the trunk's {widths[1]}. Remove"
            " vf_memory, or make both equally wide."
        )


def _check_no_past_observations(model: ModelV2, unclaimed: TrunkObservation) -> None:
    views = model.view_requirements.items()
    past = [
        name
        for name, view in views
        if name != "obs" and (view.data_col or name) in ("obs", "new_obs")
    ]
    if past:
        raise NotServedError(
            f"{type(model).__name__} requests the view {past[0]!r} of observations, but its head"
            f" removes {', '.join(map(repr, unclaimed.claimed)) or 'the mask'} and passes only the"
            " current observation. Stack observations in the environment"
            " (gymnasium.wrappers.FrameStackObservation), or remove the head."
        )


def _views_of_both(trunk: ModelV2, outer: ModelV2) -> dict[str, ViewRequirement]:
    """Return the views of a model and of its trunk."""
    for name in sorted(set(trunk.view_requirements) & set(outer.view_requirements) - {"obs"}):
        asked, inner = outer.view_requirements[name], trunk.view_requirements[name]
        if (asked.data_col, str(asked.shift)) != (inner.data_col, str(inner.shift)):
            raise ModelContractError(
                f"{type(outer).__name__} and its trunk {type(trunk).__name__} request different"
                f" views under the name {name!r}: {asked} and {inner}. Rename the view of the"
                " trunk."
            )
    return {**trunk.view_requirements, **outer.view_requirements}
