"""Framework-independent code for the LSTM around a trunk.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog.models import ModelV2, last_values
from rlcatalog_lstm.config import past_of, plan_layers


class AroundTrunk(ModelV2):
    """LSTM around a trunk, followed by logits and a value that both read the LSTM's output.

    `[S * T, obs] → trunk → with previous action and reward → LSTM [S * T, cell] → logits [S * T,
    outputs]`. When built as a trunk itself (`num_outputs=None`), the model ends with the LSTM. The
    state is `[h, c]`, each of shape `[S, cell]`; the model returns the state at the end of each
    sequence, before the padding.

    Args:
        *args: See `ModelV2`.
        trunk: The wrapped model.

    Attributes:
        cell_class: The framework's `LSTMCell`.
        outputs_class: The framework's `OutputLayers`.
    """

    is_memory = True
    cell_class: Any
    outputs_class: Any

    def __init__(self, *args: Any, trunk: ModelV2) -> None:
        super().__init__(*args)
        # The previous action and reward, if the LSTM reads them beside the trunk's features.
        self.past = past_of(self.model_config, self.action_space)
        # A policy passes the past that a model requests here.
        self.view_requirements.update(self.past.views())
        trunk_width = trunk.num_outputs
        assert trunk_width is not None, "the catalog checks a trunk before it wraps it"
        layers = plan_layers(self.model_config, trunk_width, self.past, self.num_outputs)
        self.num_outputs = layers.last_layers.num_outputs  # width of the last layers
        self.trunk = trunk
        self.cell = self.cell_class(layers.cell)
        self.outputs = None
        if layers.last_layers.logits is not None:
            self.outputs = self.outputs_class(layers.last_layers)
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits for sequences; see `ModelV2.forward`."""
        x, (h, c), lengths = self._inputs(input_dict, state, seq_lens)
        has_sequences = lengths is not None
        # With "outputs_only", the caller ignores the new state and the outputs at padded places.
        ignores_state = has_sequences and bool(input_dict.get("outputs_only"))
        has_no_padding = has_sequences and bool(input_dict.get("no_padding"))
        # Then padding is ignored or does not exist, so the cell may process it like steps.
        like_steps = ignores_state or has_no_padding
        features, h, c = self.cell(x, h, c, lengths, self.time_major, like_steps)
        new_state = [h, c]
        if ignores_state:
            new_state = []
        if self.outputs is None:
            return features, new_state
        self._features = features
        return self.outputs(features), new_state

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any], Any]:
        """Return the cell's inputs `[S * T, width]`, its state, and the sequence lengths (None for
        single steps).
        """
        raise NotImplementedError

    def value_function(self) -> Any:
        """Return the value estimates `[S * T]` of the last forward pass."""
        return last_values(self, self._features)
