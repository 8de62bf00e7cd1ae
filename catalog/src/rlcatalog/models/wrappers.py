"""Framework-neutral base classes of models that contain other models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks.ops import Tensor
from rlcatalog.models.layers import DenseSpec, plan_dense_layers
from rlcatalog.models.model import ModelV2, last_values, part_of


class ModelWrapper(ModelV2):
    """Model that contains a complete model in `self.inner` and behaves like it.

    An interface is a mixin that adds methods such as `get_q_values`. Its constructor calls this
    one, which sets `self.num_outputs` to the width of the inner model's output.

    Args:
        *args: See `ModelV2`.
        **kwargs: See `ModelV2`.
    """

    build_inner: Callable[[int | None], ModelV2]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.inner = self.build_inner(self.num_outputs)
        self._rlcatalog_bookkeeping.hold(self, {"inner": self.inner})
        self.num_outputs = self.inner.num_outputs
        self.view_requirements = self.inner.view_requirements

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
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


class LayersAfterMemory(ModelV2):
    """Model with a memory that reads a trunk's features directly, followed by the trunk's dense
    layers and the last layers.

    As a trunk (`num_outputs=None`), it ends with the dense layers.

    Args:
        *args: See `ModelV2`.
        trunk: The memory around its trunk, built with `num_outputs=None`.
        layers: The dense layers.
    """

    #: Set by the framework: how to run a chain, its dense layers, and the last layers.
    run_chain: ClassVar[Callable[..., tuple[Any, list[Any]]]]
    dense_stack: ClassVar[Callable[..., Any]]
    output_layers: ClassVar[Callable[..., Any]]

    def __init__(self, *args: Any, trunk: ModelV2, layers: Sequence[DenseSpec]) -> None:
        # A framework's class has its base, such as TorchModelV2, behind this one.
        super().__init__(*args)
        self.trunk = trunk
        self.hidden = self.dense_stack(trunk.num_outputs, layers)
        plan = plan_dense_layers(
            self.model_config, layers[-1].size, hidden=[], num_outputs=self.num_outputs
        )
        self.num_outputs = plan.num_outputs
        self.outputs = None
        if plan.logits is not None:
            self.outputs = self.output_layers(plan)
        #: The value layer's input in the last forward pass, which `value_function` reads.
        self.features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Run the memory and the layers after it; see `ModelV2.forward`."""
        memory_output, new_state = self.run_chain(self.trunk, input_dict, state, seq_lens)
        features = self.hidden(memory_output)
        if self.outputs is None:
            return features, new_state
        self.features = features
        return self.outputs(features), new_state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self.features)

    def get_initial_state(self) -> list[Any]:
        """Return the memory's initial state."""
        return self.trunk.get_initial_state()


class SeparateValue(ModelV2):
    """Model with two chains of trunk and memory, one for the policy and one for the value, followed
    by the last layers.

    Its state consists of the first chain's states, followed by the second chain's. As a trunk for a
    head (`num_outputs=None`), it outputs the features for the policy; `value_features()` returns
    the features for the value.

    Args:
        *args: See `ModelV2`.
        trunk: The chain whose features the logits read, built with `num_outputs=None`.
        value_trunk: The chain whose features the value layer reads, built in the same way.

    Raises:
        NotServedError: A memory requests its own states through views.
    """

    #: Set by the framework: how to run a chain, and the last layers.
    run_chain: ClassVar[Callable[..., tuple[Any, list[Any]]]]
    output_layers: ClassVar[Callable[..., Any]]

    def __init__(self, *args: Any, trunk: ModelV2, value_trunk: ModelV2) -> None:
        # A framework's class has its base, such as TorchModelV2, behind this one.
        super().__init__(*args)
        _check_no_views_of_states(trunk)
        _check_no_views_of_states(value_trunk)
        self.trunk = trunk
        self.value_trunk = value_trunk
        self.view_requirements = {**value_trunk.view_requirements, **trunk.view_requirements}
        #: The number of states of the policy's chain.
        self.num_policy_states = len(list(trunk.get_initial_state()))
        assert trunk.num_outputs is not None  # `assemble` has checked it
        plan = plan_dense_layers(
            self.model_config, trunk.num_outputs, hidden=[], num_outputs=self.num_outputs
        )
        self.num_outputs = plan.num_outputs
        self.outputs = None  # stays None if this model is itself the trunk of a head
        if plan.logits is not None:
            self.outputs = self.output_layers(plan, value_trunk.num_outputs)
        #: The value's features in the last pass, from which RLlib's `value_function()` computes.
        self.features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Run both chains; see `ModelV2.forward`."""
        policy_state = state[: self.num_policy_states]
        value_state = state[self.num_policy_states :]
        output, policy_state = self.run_chain(self.trunk, input_dict, policy_state, seq_lens)
        self.features, value_state = self.run_chain(
            self.value_trunk, input_dict, value_state, seq_lens
        )
        if self.outputs is not None:
            output = self.outputs(output)
        return output, [*policy_state, *value_state]

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self.features)

    def get_initial_state(self) -> list[Any]:
        """Return the initial state of the policy's chain, followed by the initial state of the
        value's chain.
        """
        return [*self.trunk.get_initial_state(), *self.value_trunk.get_initial_state()]

    def value_features(self) -> _ValueFeatures:
        """Return the `value_trunk` for a head; called after this model, it returns the features for
        the value.
        """
        return _ValueFeatures(self)


class _ValueFeatures:
    """Callable `value_trunk` for a head, which returns the value features from the last pass of a
    `SeparateValue`.

    It has no weights and no state; they belong to the `SeparateValue`, which is the head's `trunk`.
    """

    def __init__(self, pair: SeparateValue) -> None:
        self.num_outputs = pair.value_trunk.num_outputs
        self._rlcatalog_pair = pair

    def __call__(
        self,
        input_dict: Mapping[str, Any],
        state: list[Any] | None = None,
        seq_lens: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """Return the features `[B, width]`; can be called once per pass of the `SeparateValue`."""
        pair = self._rlcatalog_pair
        features = pair.features
        pair.features = None  # so that a second call, or one before the pair's, is an error
        if features is None:
            raise ModelContractError(
                "a head must call its trunk before its value_trunk in each forward pass."
            )
        return features, []


def _check_no_views_of_states(model: ModelV2) -> None:
    """Check that a chain's memory does not request its own states through views."""
    views = [name for name in model.view_requirements if name.startswith("state_in_")]
    if views:
        raise NotServedError(
            f"{type(model).__name__}{part_of(model)} requests the view {views[0]!r} of its state;"
            " with vf_share_layers=False the value would have a second such memory, with views of"
            " the same name. Omit vf_share_layers, or carry the window in the state that forward()"
            " returns."
        )
