"""Framework-independent code for GTrXL, around a trunk and standalone.

Each framework's class derives from one of these and then from the framework's base class for
models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog.frameworks import Tensor, TensorOps
from rlcatalog.models import ModelV2, PastInputs, last_values
from rlcatalog_attention.config import AttentionConfig, AttentionPlan, net_plan, plan_layers

if TYPE_CHECKING:
    from gymnasium import Space


class Sequences(NamedTuple):
    """How rows form sequences.

    Attributes:
        lengths: Lengths of the sequences `[S]`; None if each row is a sequence.
        real: Which places contain rows `[S, T]`; None if padding need not be hidden.
    """

    lengths: Any
    real: Any


class TransformerModel(ModelV2):
    """Base class for both models: the transformer units and the last layers.

    Attributes:
        ops: The framework's tensor operations.
        transformer_class: The framework's `Transformer`.
        outputs_class: The framework's `OutputLayers`.
    """

    ops: TensorOps
    transformer_class: Any
    outputs_class: Any
    features_of: Any

    def _build(self, inputs: int, layers: AttentionPlan) -> None:
        """Build the units, for inputs of this width, and the last layers."""
        self.num_outputs = layers.last_layers.num_outputs
        self.transformer = self.transformer_class(inputs, layers.sizes)
        self.outputs = None
        if layers.last_layers.logits is not None:
            self.outputs = self.outputs_class(layers.last_layers)
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None

    def _forward(
        self,
        x: Tensor,
        input_dict: Mapping[str, Any],
        state: list[Any],
        seq_lens: Tensor | None,
    ) -> tuple[Any, list[Any]]:
        """Map inputs `[S * T, inputs]` to the model's output."""
        sequences = self._sequences(x, input_dict, seq_lens)
        if sequences.real is not None:
            # Padding may contain NaN, which even a weight of 0 would spread, so it becomes zeros.
            is_real_row = self.ops.rows(sequences.real, ())
            x = self.ops.only(is_real_row, x)
        training = bool(input_dict.get("is_training"))
        outputs_only = bool(input_dict.get("outputs_only"))
        features, state = self.transformer(x, state, sequences.lengths, training, outputs_only)
        if self.outputs is None:
            return features, state
        self._features = features
        return self.outputs(features), state

    def _sequences(
        self, x: Tensor, input_dict: Mapping[str, Any], seq_lens: Tensor | None
    ) -> Sequences:
        """Return how the rows form sequences."""
        raise NotImplementedError

    def get_initial_state(self) -> list[Any]:
        """Return an empty memory, and 0 as its number of steps."""
        state: list[Any] = self.transformer.initial_state()
        return state

    def value_function(self) -> Any:
        """Return the value estimates `[S * T]` of the last forward pass."""
        return last_values(self, self._features)


class AroundTrunk(TransformerModel):
    """Gated transformer after a trunk, followed by logits and a value.

    The concatenated trunk features, past actions and past rewards, `[S * T, width]` → units →
    logits `[S * T, num_outputs]`. An episode's state consists of the memory `[units, slots, dim]`
    (each unit's inputs in the last steps) and the number of used slots. When built as a trunk
    (`num_outputs=None`), the model ends with the units.

    Args:
        *args: See `ModelV2`.
        trunk: The model whose features the units take as input.
    """

    is_memory = True

    def __init__(self, *args: Any, trunk: ModelV2) -> None:
        super().__init__(*args)
        layers = plan_layers(self.model_config, self.num_outputs)
        # The past actions and rewards that the units read beside the trunk's features.
        self.past = PastInputs.of(
            self.action_space,
            layers.sizes.attention_use_n_prev_actions,
            layers.sizes.attention_use_n_prev_rewards,
        )
        # A policy passes the past that a model requests here.
        self.view_requirements.update(self.past.views())
        self.trunk = trunk
        assert trunk.num_outputs is not None, "the catalog checks a trunk before it wraps it"
        self._build(trunk.num_outputs + self.past.width, layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x, _ = self.features_of(self.trunk, input_dict, state=[], seq_lens=None)
        if self.past.width:
            past = [self.ops.as_type(view, "float32") for view in self.past.of_input(input_dict)]
            x = self.ops.columns([x, *past])
        return self._forward(x, input_dict, state, seq_lens)


class ByItself(TransformerModel):
    """The standalone gated transformer: encoded observations → units → logits and a value.

    Args:
        obs_space: The preprocessor's `observation_space`, or a Box.
        action_space: The environment's action space.
        num_outputs: Width of the output, or None for a trunk.
        model_config: The flat model config.
        name: Name of the model.
        num_transformer_units: Number of units.
        attention_dim: Width of the units.
        num_heads: Number of attention heads.
        memory_inference: Number of past steps visible to each step when acting.
        memory_training: Number of past steps visible to each step in training.
        head_dim: Width of one head.
        position_wise_mlp_dim: Width of the hidden dense layer inside each unit.
        init_gru_gate_bias: Initial bias of the gates.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any] | None,
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
        num_transformer_units: int = 1,
        attention_dim: int = 64,
        num_heads: int = 2,
        memory_inference: int = 50,
        memory_training: int = 50,
        head_dim: int = 32,
        position_wise_mlp_dim: int = 32,
        init_gru_gate_bias: float = 2.0,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        sizes = AttentionConfig(
            attention_num_transformer_units=num_transformer_units,
            attention_dim=attention_dim,
            attention_num_heads=num_heads,
            attention_head_dim=head_dim,
            attention_memory_inference=memory_inference,
            attention_memory_training=memory_training,
            attention_position_wise_mlp_dim=position_wise_mlp_dim,
            attention_init_gru_gate_bias=init_gru_gate_bias,
        )
        layers = net_plan(self.model_config, num_outputs, sizes)
        assert obs_space.shape is not None, "observations are encoded"
        self._build(math.prod(obs_space.shape), layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = self.ops.as_type(input_dict["obs_flat"], "float32")
        return self._forward(x, input_dict, state, seq_lens)
