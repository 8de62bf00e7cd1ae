"""Assembly of a model from its parts: trunk → memory → head → interface, always in this order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import ModelContractError, NotServedError, UnreadKeysWarning
from rlcatalog.frameworks import frameworks
from rlcatalog.models.construction import ModelPart, check_class
from rlcatalog.models.model import ModelV2, name_method, part_of
from rlcatalog.models.separate_value import SeparateValue
from rlcatalog.models.views import ViewRequirement
from rlcatalog.observations.trunk_observation import TrunkObservation

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.frameworks.ops import Tensor


def assemble(
    parts: list[ModelPart],
    obs_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any] | None,
    num_outputs: int | None,
    fresh_config: Callable[[], dict[str, Any]],
    name: str,
    interface: type | None = None,
    unclaimed: TrunkObservation | None = None,
    action_dist: Callable[..., Any] | None = None,
) -> ModelV2:
    """Build a chain of parts, each holding the one before it as `trunk`.

    A head is given more: `value_trunk`, another model like `trunk` for the value alone where `vf_share_layers` is
    False, else None; and `action_dist`, what makes the distribution it serves.

    Where `vf_share_layers` is False and there is a state, the value has a chain of its own beside the policy's, up to
    the head (`SeparateValue`); where `vf_memory` is `"none"`, that chain has no memory.

    Args:
        parts: The classes, from the inside out; the last may be a head.
        obs_space: Space of encoded observations.
        action_space: The environment's action space.
        num_outputs: Width of the outermost part's output, or None for a trunk.
        fresh_config: Makes a model config that the caller of it may keep.
        name: The model's name.
        interface: A mixin that adds methods; it is mixed over a host that holds the model.
        unclaimed: What the head leaves of the observation for the other parts; None where that is all of it.
        action_dist: What makes the action distribution, for the head.

    Raises:
        ModelContractError: A class is not a ModelV2, or does not keep the trunk protocol.
        ConfigError: A keyword argument that the class does not take.

    Warns:
        UnreadKeysWarning: A class in RLlib's form was built without keyword arguments that it does not take.
    """
    if isinstance(num_outputs, Integral):
        num_outputs = int(num_outputs)  # a product of a shape is NumPy's
    inner_space = obs_space if unclaimed is None else unclaimed.space(obs_space)

    def chain(outputs: int | None) -> ModelV2:
        *inside, last = parts
        apart = last.slot != "trunk" and not fresh_config().get("vf_share_layers", True)
        if last.slot != "head":
            separate = apart and outputs is not None
            return pair(inner(parts, None), parts, outputs) if separate else inner(parts, outputs)
        trunk = _checked_trunk(inner(inside, None), last.cls)
        value_trunk: ModelV2 | None = None
        if apart and outputs is not None and list(trunk.get_initial_state()):
            trunk = both = pair(trunk, inside, None)
            value_trunk = both.value_side()
            _check_same_width(both, last.cls)
        elif apart:
            value_trunk = serving(_checked_trunk(inner(inside, None), last.cls))
        held = {"trunk": serving(trunk), "value_trunk": value_trunk, "action_dist": action_dist}
        head = last.construct((obs_space, action_space, outputs, fresh_config(), name), held)
        head.view_requirements = _views_of_both(trunk, head)
        _check_carries(head, trunk)
        return head

    def pair(trunk: ModelV2, inside: list[ModelPart], outputs: int | None) -> SeparateValue:
        beside = inside
        if fresh_config().get("vf_memory", "own") == "none":
            beside = [part for part in inside if part.slot != "memory"]
        cls = _separate_value(inside[-1].cls)
        held = {"trunk": _checked_trunk(trunk, cls), "value_trunk": _checked_trunk(inner(beside, None), cls)}
        made = ModelPart(cls).construct((inner_space, action_space, outputs, fresh_config(), name), held)
        assert isinstance(made, SeparateValue)
        return made

    def serving(model: ModelV2) -> ModelV2:
        """Let a head's trunk see what the head leaves of the observation."""
        model._rlcatalog.unclaimed = unclaimed
        if unclaimed is not None:
            _check_no_past_observations(model, unclaimed)
        return model

    def inner(inside: list[ModelPart], outputs: int | None) -> ModelV2:
        model: ModelV2 | None = None
        for part in inside:
            wanted = outputs if part is inside[-1] else None
            held = {} if model is None else {"trunk": _checked_trunk(model, part.cls)}
            outer = part.construct((inner_space, action_space, wanted, fresh_config(), name), held)
            if model is not None:
                outer.view_requirements = _views_of_both(model, outer)
            model = outer
        assert model is not None
        return model

    last = parts[-1].cls
    check_class(last)
    if interface is None or issubclass(last, interface):
        return _warn_of_left_out(parts, chain(num_outputs))
    base = frameworks()[last.framework_of_class].load("host")  # type: ignore[attr-defined]

    def build_inner(outputs: int | None) -> ModelV2:
        model = chain(outputs)
        return model if outputs is not None else _checked_trunk(model, interface)

    mixed = type(interface.__name__, (interface, base), {"build_inner": staticmethod(build_inner)})
    host = ModelPart(mixed).construct((obs_space, action_space, num_outputs, fresh_config(), name), {})
    return _warn_of_left_out(parts, host)


def _warn_of_left_out(parts: list[ModelPart], model: ModelV2) -> ModelV2:
    """Return a model, and warn where a part of it was built without some of its keyword arguments."""
    for part in parts:
        if part.left_out:
            names = ", ".join(map(repr, sorted(part.left_out)))
            warnings.warn(
                f"custom_model_config: {part.cls.__name__}.__init__ takes no {names}. It is built without, as in RLlib,"
                ' and finds them in model_config["custom_model_config"].',
                UnreadKeysWarning,
                stacklevel=2,
            )
    return model


def _checked_trunk(trunk: ModelV2, outer: type) -> ModelV2:
    if not isinstance(trunk.num_outputs, Integral):
        raise ModelContractError(
            f"{type(trunk).__name__} was built as the trunk of {outer.__name__}, with num_outputs=None, and did not"
            f" announce the width of its output in self.num_outputs{part_of(trunk)}."
        )
    views = [name for name in trunk.view_requirements if name.startswith("state_in_")]
    if getattr(outer, "is_memory", False) and (views or list(trunk.get_initial_state())):
        why = f"it has the view {views[0]!r}" if views else "get_initial_state() is not empty"
        raise NotServedError(
            f"{type(trunk).__name__} is recurrent itself ({why}); {outer.__name__} cannot be wrapped around it. Switch"
            " the memory off in the config."
        )
    return trunk


def _separate_value(cls: type) -> type[SeparateValue]:
    """Return the class that puts two chains of a framework side by side."""
    framework = frameworks()[cls.framework_of_class]  # type: ignore[attr-defined]
    if "separate_value" not in framework.targets:
        raise NotServedError(
            f"framework {framework.name!r} has no separate_value, which {cls.__name__} needs with"
            " vf_share_layers=False, as it has a state. Leave vf_share_layers out."
        )
    pair: type[SeparateValue] = framework.load("separate_value")
    return pair


def _check_carries(head: ModelV2, trunk: ModelV2) -> None:
    own, inner = (len(list(model.get_initial_state())) for model in (head, trunk))
    if own < inner:
        raise ModelContractError(
            f"{name_method(head, 'get_initial_state')} returned {own} tensors, and its trunk {type(trunk).__name__} has"
            f" a state of {inner}, which would be forgotten at each step. Return self.trunk.get_initial_state(), and"
            " the trunk's new state from forward()."
        )


def _check_same_width(both: SeparateValue, head: type) -> None:
    widths = both.trunk.num_outputs, both.value_trunk.num_outputs
    if widths[0] != widths[1]:
        raise NotServedError(
            f"vf_memory='none': {head.__name__} reads features for the logits and for the value of one width, and"
            f" those of the memory have {widths[0]}, those of the trunk alone {widths[1]}. Leave vf_memory out, or make"
            " both equally wide."
        )


def _check_no_past_observations(model: ModelV2, unclaimed: TrunkObservation) -> None:
    views = model.view_requirements.items()
    past = [name for name, view in views if name != "obs" and (view.data_col or name) in ("obs", "new_obs")]
    if past:
        raise NotServedError(
            f"{type(model).__name__} asks for the view {past[0]!r} of observations; inside a head that takes"
            f" {', '.join(map(repr, unclaimed.claimed)) or 'the mask'} out of them it sees the current one only. Stack"
            " them in the environment (gymnasium.wrappers.FrameStackObservation), or leave the head out."
        )


def _views_of_both(trunk: ModelV2, outer: ModelV2) -> dict[str, ViewRequirement]:
    """Return what a model asks to see and what its trunk does."""
    for name in sorted(set(trunk.view_requirements) & set(outer.view_requirements) - {"obs"}):
        asked, inner = outer.view_requirements[name], trunk.view_requirements[name]
        if (asked.data_col, str(asked.shift)) != (inner.data_col, str(inner.shift)):
            raise ModelContractError(
                f"{type(outer).__name__} and its trunk {type(trunk).__name__} ask for different views under the name"
                f" {name!r}: {asked} and {inner}. Rename the trunk's."
            )
    return {**trunk.view_requirements, **outer.view_requirements}


class ModelWrapper(ModelV2):
    """Holds a complete model in `self.inner` and behaves like it.

    An interface is a mixin that adds methods such as `get_q_values`. Its constructor calls this one and finds the
    width of the inner model's output in `self.num_outputs`. `TorchHost` and `TFHost` join it to their frameworks.
    """

    build_inner: Callable[[int | None], ModelV2]

    def __init__(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        self.inner = self.build_inner(num_outputs)
        self.num_outputs = self.inner.num_outputs
        self.view_requirements = self.inner.view_requirements

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None) -> tuple[Any, list[Any]]:
        """Run the inner model."""
        return self.inner(input_dict, state, seq_lens)

    def value_function(self) -> Any:
        """Return the inner model's value estimates."""
        return self.inner.value_function()

    def inner_models(self) -> dict[str, ModelV2]:
        """Return the inner model."""
        return {"": self.inner}

    def get_initial_state(self) -> list[Any]:
        """Return the inner model's initial state."""
        return self.inner.get_initial_state()
