"""Framework-independent code for the autoregressive head."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import unbind
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import TensorOps
from rlcatalog.models import DenseSpec, ModelV2, last_values, output_plan
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

    def __init__(self, *args: Any, trunk: Any, value_trunk: Any, action_dist: Any) -> None:
        super().__init__(*args)
        self.trunk, self.value_trunk = trunk, value_trunk
        self._features = self.outputs = None
        if self.num_outputs is None:
            self.num_outputs = trunk.num_outputs
            return
        layout = served_columns(action_dist, self.num_outputs)
        self.outputs = self.outputs_class(
            output_plan(self.model_config, trunk.num_outputs, [], layout.params)
        )
        self.to_context = self.dense_class(trunk.num_outputs, DenseSpec(layout.hiddens[0]))
        self.conditionals = self.conditionals_class(layout)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the action distribution's inputs; see `ModelV2.forward`."""
        x, state = self.features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return x, state
        self._features = x
        if self.value_trunk is not None:
            self._features, _ = self.features_of(self.value_trunk, input_dict, [], None)
        return self.ops.concat([self.outputs(x), self.to_context(x)], 1), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()  # type: ignore[no-any-return]


def served_columns(action_dist: Any, num_outputs: int) -> PartColumns:
    """Return the layout of the action distribution for this head.

    Raises:
        ConfigError: The distribution is not autoregressive.
        ModelContractError: The distribution expects a different number of model outputs.
    """
    layout = unbind(action_dist)[1].get("layout")
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
