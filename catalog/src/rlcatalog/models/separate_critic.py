"""A policy's model and a critic of its own as one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rlcatalog.errors import NotServedError, StaleOutputError
from rlcatalog.frameworks.ops import Tensor
from rlcatalog.models.layers import value_spec
from rlcatalog.models.model import ModelV2, part_of
from rlcatalog.observations.structure import is_structure
from rlcatalog.observations.visible_observation import VisibleObservation

_STATE_IN = "state_in_"


class SeparateCritic(ModelV2):
    """Model of two sides: the policy's model, which computes the outputs, and a critic, which
    estimates the values.

    The critic is built from a config of its own, and each side may see another part of the
    observation. The state consists of the policy's states, followed by the critic's.

    Args:
        *args: See `ModelV2`.
        policy: The policy's model with its head, if it has one. Its own value is never used.
        critic: The critic's trunk, or a memory around it; or a complete model.
        critic_is_complete: Whether the critic is a complete model, whose `value_function` is used.

    Attributes:
        policy: The policy's model, which is enough for acting.
        critic: The critic's model.
        value: The layer from the critic's features to the value; None for a complete model.
        num_policy_states: The number of the policy's states.

    Raises:
        NotServedError: The critic requests its own states through views, or both sides request
            different views under one name.
    """

    #: Set by the framework: how to run a chain, and its linear layer.
    run_chain: ClassVar[Callable[..., tuple[Any, list[Any]]]]
    dense_layer: ClassVar[Callable[..., Any]]

    def __init__(
        self, *args: Any, policy: ModelV2, critic: ModelV2, critic_is_complete: bool
    ) -> None:
        # A framework's class has its base, such as TorchModelV2, behind this one.
        super().__init__(*args)
        self.policy = policy
        self.critic = critic
        self.num_policy_states = _count_states(policy)
        self.view_requirements = {
            **_views_of_sides(policy, critic),
            "obs": self.view_requirements["obs"],  # the whole observation
        }
        self.value: Any = None
        if not critic_is_complete:
            assert critic.num_outputs is not None, "`join_sides` checks it"
            self.value = self.dense_layer(critic.num_outputs, value_spec(self.model_config))
        #: The critic's features in the last pass, from which `value_function()` computes.
        self.features: Any = None
        # If it has no state, it must not see the padding of sequences that the critic needs.
        policy._rlcatalog_bookkeeping.skips_padding = True
        # Each side restores the structure of what it sees.
        self._rlcatalog_bookkeeping.preprocessor = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Run both sides; see `ModelV2.forward`."""
        _keep_one_form_of_obs(input_dict)
        policy_state = state[: self.num_policy_states]
        critic_state = state[self.num_policy_states :]
        output, policy_state = self.policy(input_dict, policy_state, seq_lens)
        if self.value is None:
            self.features, critic_state = self.critic(input_dict, critic_state, seq_lens)
        else:
            self.features, critic_state = self.run_chain(
                self.critic, input_dict, critic_state, seq_lens
            )
        return output, [*policy_state, *critic_state]

    def run_policy(
        self, input_dict: Mapping[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Run the policy alone, which does not need what only the critic sees.

        Args:
            input_dict: See `ModelV2.__call__`. `"obs"` has the columns of whole observations; what
                the policy does not see may have any values.
            state: The states of both sides.
            seq_lens: See `ModelV2.__call__`.

        Returns:
            The policy's output, and the states. Those of the critic are unchanged.
        """
        self.features = None
        critic_state = state[self.num_policy_states :]
        output, policy_state = self.policy(input_dict, state[: self.num_policy_states], seq_lens)
        return output, [*policy_state, *critic_state]

    def value_function(self) -> Any:
        """Return the critic's value estimates `[B]` of the last forward pass."""
        if self.features is None:
            raise StaleOutputError(
                f"{type(self).__name__} has no value estimate: call the model first. A pass of the"
                " policy alone has none."
            )
        if self.value is None:
            return self.critic.value_function()
        return self.value(self.features)[:, 0]

    def get_initial_state(self) -> list[Any]:
        """Return the policy's initial state, followed by the critic's."""
        return [*self.policy.get_initial_state(), *self.critic.get_initial_state()]

    def inner_models(self) -> dict[str, ModelV2]:
        """Return both sides."""
        return {"": self.policy, "critic: ": self.critic}

    def custom_loss(
        self, policy_loss: Tensor | list[Tensor], loss_inputs: Mapping[str, Any]
    ) -> Any:
        """Pass the loss through both sides; each gets the observations that it sees."""
        loss: Any = policy_loss
        for model in (self.policy, self.critic):
            loss = model.custom_loss(loss, self._seen_by(model, loss_inputs))
        return loss

    def _seen_by(self, model: ModelV2, loss_inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a training batch with the observations that a side sees."""
        visible: VisibleObservation | None = model._rlcatalog_bookkeeping.visible
        if visible is None:
            return loss_inputs
        columns = {}
        for name in ("obs", "new_obs"):
            if name in loss_inputs:
                columns[name] = visible.cut_encoded(
                    loss_inputs[name], self._rlcatalog_bookkeeping.ops
                )
        return {**loss_inputs, **columns}


def _keep_one_form_of_obs(inputs: dict[str, Any]) -> None:
    """Remove the flat form of an input's observations if it is a structure too, so that each side
    flattens what it sees.
    """
    if is_structure(inputs["obs"]):
        inputs.pop("obs_flat", None)


def _count_states(model: ModelV2) -> int:
    """Return how many states a model has, by its initial state and its views of states."""
    count = len(list(model.get_initial_state()))
    for name in model.view_requirements:
        if name.startswith(_STATE_IN):
            index = int(name.removeprefix(_STATE_IN))
            count = max(count, index + 1)
    return count


def _views_of_sides(policy: ModelV2, critic: ModelV2) -> dict[str, Any]:
    """Return the views that both sides request."""
    state_views = [name for name in critic.view_requirements if name.startswith(_STATE_IN)]
    if state_views:
        raise NotServedError(
            f"critic: {type(critic).__name__}{part_of(critic)} requests the view"
            f" {state_views[0]!r} of its state, whose number belongs to the policy's states. Carry"
            " the window in the state that forward() returns."
        )
    for name in sorted(set(policy.view_requirements) & set(critic.view_requirements)):
        view = policy.view_requirements[name]
        critic_view = critic.view_requirements[name]
        is_same_column = view.data_col == critic_view.data_col
        is_same_shift = str(view.shift) == str(critic_view.shift)  # a shift may be an array
        if not is_same_column or not is_same_shift:
            raise NotServedError(
                f"critic: the policy's {type(policy).__name__} and the critic's"
                f" {type(critic).__name__} request different views under the name {name!r}:"
                f" {view} and {critic_view}. Let both read the same number of past steps, or only"
                " one of them."
            )
    return {**critic.view_requirements, **policy.view_requirements}
