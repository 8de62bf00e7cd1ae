"""Framework-independent code for the autoregressive head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcatalog.actions import unbind
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.models import ModelV2, hidden_spec, last_values, plan_dense_layers
from rlcatalog_autoregressive.part_columns import PartColumns


class AutoregressiveHead(ModelV2):
    """Autoregressive head around a trunk or a memory, for actions whose parts depend on each other.

    `features → logits of independent parts | context of the conditionals`, `[B, params + hidden]`,
    and a value computed from the same features or, with `vf_share_layers=False`, from a separate
    trunk's features.

    Args:
        *args: See `ModelV2`. With `num_outputs=None` the head returns the trunk's features
            unchanged.
        trunk: The wrapped model.
        value_trunk: A separate trunk for the value function, or None.
        action_dist: The action distribution that takes the head's outputs as inputs.

    Attributes:
        ops: The framework's tensor operations.
        features_of: The framework's function for running a trunk.
        dense_class: The framework's linear layer.
        outputs_class: The framework's `OutputLayers`.
        conditionals_class: The framework's `Conditionals`.
    """

    ops: TensorOps
    features_of: Any
    dense_class: Any
    outputs_class: Any
    conditionals_class: Any

    def __init__(
        self,
        *args: Any,
        trunk: ModelV2,
        value_trunk: ModelV2 | None,
        action_dist: Callable[..., Any],
    ) -> None:
        super().__init__(*args)
        self.trunk = trunk
        self.value_trunk = value_trunk
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None
        self.outputs = None
        width = trunk.num_outputs
        assert width is not None, "the catalog checks a trunk before it wraps it"
        if self.num_outputs is None:
            # Without an action distribution, the head returns the trunk's features.
            self.num_outputs = width
            return
        layout = layout_of(action_dist, self.num_outputs)
        plan = plan_dense_layers(self.model_config, width, hidden=[], num_outputs=layout.num_params)
        self.outputs = self.outputs_class(plan)
        context_width = layout.hidden_widths[0]
        self.to_context = self.dense_class(width, hidden_spec(context_width, self.model_config))
        self.conditionals = self.conditionals_class(layout, self.model_config)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the action distribution's inputs; see `ModelV2.forward`."""
        features, state = self.features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return features, state
        if self.value_trunk is None:
            self._features = features
        else:
            # A value trunk has no memory.
            self._features, _ = self.features_of(
                self.value_trunk, input_dict, state=[], seq_lens=None
            )
        independent = self.outputs(features)
        context = self.to_context(features)
        return self.ops.concat([independent, context], axis=1), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()


def layout_of(action_dist: Callable[..., Any], num_outputs: int) -> PartColumns:
    """Return the layout of the action distribution for this head.

    Raises:
        ConfigError: The distribution is not autoregressive.
        ModelContractError: The distribution expects a different number of model outputs.
    """
    # The catalog binds the layout to the autoregressive distribution's class.
    _, options = unbind(action_dist)
    layout = options.get("layout")
    if not isinstance(layout, PartColumns):
        raise ConfigError(
            f"use_autoregressive: the whole action has the distribution {action_dist!r}, but this"
            " head requires 'autoregressive'. Remove custom_action_dist, or use it to choose the"
            " parts' distributions by path."
        )
    if num_outputs != layout.size:
        raise ModelContractError(
            f"AutoregressiveModel: num_outputs is {num_outputs}, but {layout.action.describe()}"
            f" needs {layout.size}. Pass the number that"
            " ModelCatalog.get_action_dist(action_space, config) returns."
        )
    return layout
