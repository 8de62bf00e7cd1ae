"""Assembly of a model from its parts, always in this order: trunk → memory →
head → interface. With `memory_first`, the trunk's dense layers follow its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, cast

from rlcatalog.errors import ModelContractError, NotServedError, UnreadKeysWarning
from rlcatalog.frameworks import frameworks
from rlcatalog.models.construction import ModelPart, StandardArguments, check_class
from rlcatalog.models.layers import DenseSpec, dense_layers, without_dense_layers
from rlcatalog.models.model import ModelV2, name_method, part_of
from rlcatalog.models.separate_critic import SeparateCritic
from rlcatalog.models.views import ViewRequirement
from rlcatalog.models.weights_by_part import INTERFACE
from rlcatalog.models.wrappers import SeparateValue
from rlcatalog.observations.visible_observation import VisibleObservation
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
    unclaimed: VisibleObservation | None = None,
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
    outermost_class = parts[-1].cls
    check_class(outermost_class)
    assembly = _Assembly(
        parts=parts,
        obs_space=obs_space,
        action_space=action_space,
        fresh_config=fresh_config,
        name=name,
        trunk_observation=unclaimed,
        action_dist=action_dist,
    )
    if interface is None or issubclass(outermost_class, interface):
        model = assembly.build(num_outputs)
    else:
        model = assembly.build_with_interface(interface, num_outputs)
    _warn_of_options_left_out(parts)
    return model


def join_sides(
    policy: ModelV2,
    critic: ModelV2,
    standard: StandardArguments,
    *,
    critic_is_complete: bool,
) -> SeparateCritic:
    """Join a policy's model and its critic into one model.

    Args:
        policy: The policy's model, complete with its head and last layers.
        critic: The critic's model.
        standard: The arguments of the new model's constructor.
        critic_is_complete: Whether the critic estimates the values itself. Otherwise it is a trunk
            or a memory, and gets a value layer.

    Raises:
        ModelContractError: The critic did not set its width.
        NotServedError: The framework has no class for both sides; or a side requests past
            observations although some of their entries are hidden from it.
    """
    cls = _class_of_framework(
        "separate_critic",
        policy,
        end_of_error="which a policy with a critic needs. Remove critic",
    )
    if not critic_is_complete:
        _check_trunk(critic, cls)
    for side, model in (("policy", policy), ("critic", critic)):
        visible = model._rlcatalog_bookkeeping.visible
        if visible is not None:
            _check_no_past_observations(model, visible, f"obs_groups[{side!r}]")
    additions = {"policy": policy, "critic": critic, "critic_is_complete": critic_is_complete}
    pair = ModelPart(cls).construct(standard, additions)
    return cast("SeparateCritic", pair)


@dataclass(frozen=True)
class _Assembly:
    """Builder of a chain of models; see `assemble` for the attributes.

    Attributes:
        trunk_observation: The part of the observation that the head leaves to the other models;
            None if it leaves the whole observation, or if there is no head.
    """

    parts: list[ModelPart]
    obs_space: Space
    action_space: Space | None
    fresh_config: Callable[[], dict[str, Any]]
    name: str
    trunk_observation: VisibleObservation | None
    action_dist: Callable[..., Any] | None

    @cached_property
    def inner_space(self) -> Space:
        """The observation space of the models inside the head."""
        if self.trunk_observation is None:
            return self.obs_space
        space: Space = self.trunk_observation.space(self.obs_space)
        return space

    @cached_property
    def value_has_own_layers(self) -> bool:
        """Whether the value gets a second model like the trunk. A chain that is only a trunk builds
        the layers of its value itself.
        """
        is_only_trunk = self.parts[-1].slot == "trunk"
        return not is_only_trunk and not self.fresh_config().get("vf_share_layers", True)

    def build(self, num_outputs: int | None) -> ModelV2:
        """Build the chain without an interface."""
        *inside, last = self.parts
        if last.slot == "head":
            return self._build_head(last, inside, num_outputs)
        if self.value_has_own_layers and num_outputs is not None:
            actor = self._build_body(self.parts, num_outputs=None)
            return self._build_separate_value(actor, self.parts, num_outputs)
        return self._build_body(self.parts, num_outputs)

    def build_with_interface(self, interface: type, num_outputs: int | None) -> ModelV2:
        """Build the chain inside a model that has an interface's methods."""

        def build_inner(num_outputs: int | None) -> ModelV2:
            model = self.build(num_outputs)
            if num_outputs is None:
                _check_trunk(model, interface)
            return model

        framework = frameworks()[self.parts[-1].cls.framework_of_class]  # type: ignore[attr-defined]
        # A class with the interface's methods; its constructor calls `build_inner`.
        host = type(
            interface.__name__,
            (interface, framework.load("host")),
            {"build_inner": staticmethod(build_inner)},
        )
        arguments = self._arguments(num_outputs, self.obs_space)
        return ModelPart(host, INTERFACE).construct(arguments, additions={})

    def _arguments(
        self,
        num_outputs: int | None,
        obs_space: Space,
        other_values: Mapping[str, Any] | None = None,
    ) -> StandardArguments:
        """Return the arguments of a model's constructor.

        Args:
            num_outputs: Width of its output, or None for a trunk.
            obs_space: Its observation space.
            other_values: Config keys with other values than the config's.
        """
        config = self.fresh_config()
        config.update(other_values or {})
        return StandardArguments(obs_space, self.action_space, num_outputs, config, self.name)

    def _build_body(self, parts: list[ModelPart], num_outputs: int | None) -> ModelV2:
        """Build a trunk and, if there is one, a memory around it."""
        trunk, *memories = parts
        if not memories:
            return trunk.construct(self._arguments(num_outputs, self.inner_space), additions={})
        (memory,) = memories
        config = self.fresh_config()
        layers_after_memory = []
        keys_of_trunk = {}
        if config.get("memory_first"):
            layers_after_memory = dense_layers(trunk.dense_layers, config)
            keys_of_trunk = without_dense_layers(trunk.dense_layers)
        trunk_arguments = self._arguments(
            num_outputs=None, obs_space=self.inner_space, other_values=keys_of_trunk
        )
        inner = trunk.construct(trunk_arguments, additions={})
        _check_trunk(inner, memory.cls)
        memory_outputs = None if layers_after_memory else num_outputs
        arguments = self._arguments(memory_outputs, self.inner_space)
        model = memory.construct(arguments, additions={"trunk": inner})
        model.view_requirements = _views_of_both(inner, model)
        if not layers_after_memory:
            return model
        return self._add_layers(model, layers_after_memory, num_outputs)

    def _add_layers(
        self, memory: ModelV2, layers: list[DenseSpec], num_outputs: int | None
    ) -> ModelV2:
        """Add a trunk's dense layers, and the last layers, after a memory."""
        name = type(memory).__name__
        cls = _class_of_framework(
            "layers_after_memory",
            memory,
            end_of_error=f"which {name} needs for memory_first. Remove memory_first",
        )
        _check_trunk(memory, cls)
        # The layers belong to the trunk, wherever they are.
        part = ModelPart(cls, slot="trunk")
        arguments = self._arguments(num_outputs, self.inner_space)
        model = part.construct(arguments, additions={"trunk": memory, "layers": layers})
        model.view_requirements = _views_of_both(memory, model)
        return model

    def _build_separate_value(
        self, actor: ModelV2, parts: list[ModelPart], num_outputs: int | None
    ) -> SeparateValue:
        """Build a second chain for the value, and join it with the policy's.

        Args:
            actor: The policy's chain.
            parts: The parts of that chain.
            num_outputs: See `assemble`.
        """
        if self.fresh_config().get("vf_memory", "own") == "none":
            value_parts = parts[:1]  # the trunk without its memory
        else:
            value_parts = parts
        cls = parts[-1].cls
        separate_value = _class_of_framework(
            "separate_value",
            cls,
            end_of_error=f"which {cls.__name__}, a model with a state, needs for"
            " vf_share_layers=False. Remove vf_share_layers",
        )
        value_chain = self._build_body(value_parts, num_outputs=None)
        _check_trunk(actor, separate_value)
        _check_trunk(value_chain, separate_value)
        arguments = self._arguments(num_outputs, self.inner_space)
        pair = ModelPart(separate_value, slot="").construct(
            arguments, additions={"trunk": actor, "value_trunk": value_chain}
        )
        return cast("SeparateValue", pair)

    def _build_head(
        self, head: ModelPart, inside: list[ModelPart], num_outputs: int | None
    ) -> ModelV2:
        """Build a head around a trunk and a memory, and around a second trunk for the value."""
        trunk = self._build_body(inside, num_outputs=None)
        _check_trunk(trunk, head.cls)
        value_trunk: Any = None
        trunk_has_state = bool(list(trunk.get_initial_state()))
        if self.value_has_own_layers:
            head_has_value = num_outputs is not None
            if trunk_has_state and head_has_value:
                # A pair of chains keeps both states.
                pair = self._build_separate_value(trunk, inside, num_outputs=None)
                _check_same_width(pair, head.cls)
                value_trunk = pair.value_features()
                trunk = pair
            else:
                value_trunk = self._build_body(inside, num_outputs=None)
                _check_trunk(value_trunk, head.cls)
                self._restrict_to_trunk_observation(value_trunk)
        self._restrict_to_trunk_observation(trunk)
        additions = {"trunk": trunk, "value_trunk": value_trunk, "action_dist": self.action_dist}
        model = head.construct(self._arguments(num_outputs, self.obs_space), additions)
        model.view_requirements = _views_of_both(trunk, model)
        _check_passes_on_state(model, trunk)
        return model

    def _restrict_to_trunk_observation(self, trunk: ModelV2) -> None:
        """Let a head's trunk see only the part of the observation that the head does not read.

        Only the outermost model inside the head needs to know, because it passes its input on to
        the models inside it. Which one that is depends on the trunk's state, so it is set here
        instead of in the constructor.
        """
        if self.trunk_observation is not None:
            trunk._rlcatalog_bookkeeping.visible = self.trunk_observation
            _check_no_past_observations(trunk, self.trunk_observation, "its head")


def _warn_of_options_left_out(parts: list[ModelPart]) -> None:
    """Warn if a model was built without some of its keyword arguments."""
    for part in parts:
        if part.left_out:
            names = ", ".join(map(repr, sorted(part.left_out)))
            warn_caller(
                f"{part.options_key}: {part.cls.__name__}.__init__ does not accept {names}. As in"
                " RLlib, the class is"
                f' built without them and can read them from model_config["{part.options_key}"].',
                UnreadKeysWarning,
            )


def _check_trunk(trunk: ModelV2, outer: type) -> None:
    """Check that a model can be the trunk of another one.

    Raises:
        ModelContractError: It did not set its width.
        NotServedError: Both have a memory.
    """
    if not isinstance(trunk.num_outputs, Integral):
        raise ModelContractError(
            f"{type(trunk).__name__} was built as the trunk of {outer.__name__}, with"
            " num_outputs=None, but did not set self.num_outputs to the width of its"
            f" output{part_of(trunk)}."
        )
    # Only a memory cannot have a memory inside it. A user's class need not have the attribute.
    if not getattr(outer, "is_memory", False):
        return
    state_views = [name for name in trunk.view_requirements if name.startswith("state_in_")]
    if state_views:
        why = f"it has the view {state_views[0]!r}"
    elif list(trunk.get_initial_state()):
        why = "get_initial_state() is not empty"
    else:
        return
    raise NotServedError(
        f"{type(trunk).__name__} is itself recurrent ({why}); {outer.__name__} cannot be"
        " wrapped around it. Turn the memory off in the config."
    )


def _class_of_framework(target: str, model: type | ModelV2, *, end_of_error: str) -> Any:
    """Return a framework's class for models that join others.

    Args:
        target: The framework's target.
        model: A model of the framework, or its class.
        end_of_error: What needs the class, and how to do without it: the end of the error message.

    Raises:
        NotServedError: The framework has no such class.
    """
    framework = frameworks()[model.framework_of_class]  # type: ignore[union-attr]
    if target not in framework.targets:
        raise NotServedError(f"framework {framework.name!r} has no {target}, {end_of_error}.")
    return framework.load(target)


def _check_passes_on_state(head: ModelV2, trunk: ModelV2) -> None:
    """Check that a head passes on the state of its trunk."""
    head_states = len(list(head.get_initial_state()))
    trunk_states = len(list(trunk.get_initial_state()))
    if head_states < trunk_states:
        raise ModelContractError(
            f"{name_method(head, 'get_initial_state')} returned {head_states} tensors, but its"
            f" trunk {type(trunk).__name__} has a state of {trunk_states}, which would be lost at"
            " each step. Return self.trunk.get_initial_state(), and the trunk's new state from"
            " forward()."
        )


def _check_same_width(pair: SeparateValue, head: type) -> None:
    """Check that a head gets equally wide features for the logits and for the value."""
    memory_width = pair.trunk.num_outputs
    trunk_width = pair.value_trunk.num_outputs
    if memory_width != trunk_width:
        raise NotServedError(
            f"vf_memory='none': {head.__name__} needs features of the same width for the logits"
            f" and the value. The memory's have {memory_width}, the trunk's {trunk_width}. Remove"
            " vf_memory, or make both equally wide."
        )


def _check_no_past_observations(model: ModelV2, visible: VisibleObservation, who: str) -> None:
    """Check that a model that sees a part of an observation has no views of past observations,
    from which the hidden entries would have to be removed too.

    Args:
        model: The model.
        visible: The part that it sees.
        who: What hides the rest.
    """
    for name, view in model.view_requirements.items():
        column = view.data_col or name
        if name != "obs" and column in ("obs", "new_obs"):
            # A head that claims no keys removes the mask alone.
            hidden = ", ".join(visible.hidden_paths) or "the mask"
            raise NotServedError(
                f"{type(model).__name__} requests the view {name!r} of observations, but {who}"
                f" removes {hidden} and passes only the current observation. Stack observations"
                f" in the environment (gymnasium.wrappers.FrameStackObservation), or remove {who}."
            )


def _views_of_both(trunk: ModelV2, outer: ModelV2) -> dict[str, ViewRequirement]:
    """Return the views of a model and of its trunk."""
    common_names = set(trunk.view_requirements) & set(outer.view_requirements)
    for name in sorted(common_names - {"obs"}):  # every model has the view "obs"
        outer_view = outer.view_requirements[name]
        trunk_view = trunk.view_requirements[name]
        is_same_column = outer_view.data_col == trunk_view.data_col
        is_same_shift = str(outer_view.shift) == str(trunk_view.shift)  # a shift may be an array
        if not is_same_column or not is_same_shift:
            raise ModelContractError(
                f"{type(outer).__name__} and its trunk {type(trunk).__name__} request different"
                f" views under the name {name!r}: {outer_view} and {trunk_view}. Rename the view"
                " of the trunk."
            )
    return {**trunk.view_requirements, **outer.view_requirements}
