"""Framework-independent code for the LSTM around a trunk.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

from typing import Any

from rlcatalog.models import ModelV2, last_values
from rlcatalog_lstm.config import past_of, plan


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

    def __init__(self, *args: Any, trunk: Any) -> None:
        super().__init__(*args)
        self.past = past_of(self.model_config, self.action_space)
        self.view_requirements.update(self.past.views())
        cell, ends = plan(self.model_config, trunk.num_outputs, self.past, self.num_outputs)
        self.num_outputs = ends.outputs
        self.trunk = trunk
        self.cell = self.cell_class(cell)
        self.outputs = None if ends.logits is None else self.outputs_class(ends)
        self._features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits for sequences; see `ModelV2.forward`."""
        x, (h, c), lengths = self._inputs(input_dict, state, seq_lens)
        outputs_only = lengths is not None and bool(input_dict.get("outputs_only"))
        no_padding = lengths is not None and bool(input_dict.get("no_padding"))
        # Padding that is ignored, or that does not exist, may be processed like steps.
        like_steps = outputs_only or no_padding
        features, h, c = self.cell(x, h, c, lengths, self.time_major, like_steps)
        new_state, outputs = [] if outputs_only else [h, c], self.outputs
        if outputs is None:
            return features, new_state
        self._features = features
        return outputs(features), new_state

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any], Any]:
        """Return the cell's inputs `[S * T, width]`, its state, and the sequence lengths (None for
        single steps).
        """
        raise NotImplementedError

    def value_function(self) -> Any:
        """Return the value estimates `[S * T]` of the last forward pass."""
        return last_values(self, self._features)
