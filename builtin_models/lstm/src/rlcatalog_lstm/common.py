"""Framework-independent code for the LSTM or GRU around a trunk.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog.models import ModelV2, last_values
from rlcatalog_lstm.config import CellKind, past_of, plan_layers


class AroundTrunk(ModelV2):
    """LSTM or GRU around a trunk, followed by logits and a value that both read its output.

    `[S * T, obs] → trunk → with previous action and reward → cells [S * T, cell] → logits [S * T,
    outputs]`. When built as a trunk itself (`num_outputs=None`), the model ends with the last cell.
    The state is `[h, c]` (GRU: `[h]`) for each layer in turn, each of shape `[S, cell]`; the model
    returns the state at the end of each sequence, before the padding.

    Args:
        *args: See `ModelV2`.
        trunk: The wrapped model.

    Attributes:
        kind: The kind of the cells.
        cell_class: The framework's class of cells.
        list_class: The framework's list of layers.
        outputs_class: The framework's `OutputLayers`.
        cell: The cell of the first layer.
        upper_cells: The cells of the layers above it, or None.
    """

    is_memory = True
    kind: CellKind
    cell_class: Any
    list_class: Any
    outputs_class: Any

    def __init__(self, *args: Any, trunk: ModelV2) -> None:
        super().__init__(*args)
        # The previous action and reward, if the cells read them beside the trunk's features.
        self.past = past_of(self.model_config, self.action_space)
        # A policy passes the past that a model requests here.
        self.view_requirements.update(self.past.views())
        trunk_width = trunk.num_outputs
        assert trunk_width is not None, "the catalog checks a trunk before it wraps it"
        layers = plan_layers(self.model_config, trunk_width, self.past, self.num_outputs, self.kind)
        self.num_outputs = layers.last_layers.num_outputs  # width of the last layers
        self.trunk = trunk
        first, *others = layers.cells
        self.cell = self.cell_class(first)
        self.upper_cells = None
        if others:
            self.upper_cells = self.list_class([self.cell_class(cell) for cell in others])
        self.outputs = None
        if layers.last_layers.logits is not None:
            self.outputs = self.outputs_class(layers.last_layers)
        # The value layer's input in the last forward pass, which `value_function` reads.
        self._features: Any = None

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits for sequences; see `ModelV2.forward`."""
        x, state, lengths = self._inputs(input_dict, state, seq_lens)
        has_sequences = lengths is not None
        # With "outputs_only", the caller ignores the new state and the outputs at padded places.
        ignores_state = has_sequences and bool(input_dict.get("outputs_only"))
        has_no_padding = has_sequences and bool(input_dict.get("no_padding"))
        # Then padding is ignored or does not exist, so the cell may process it like steps.
        like_steps = ignores_state or has_no_padding
        if self.upper_cells is None:
            features, *new_state = self.cell(x, *state, lengths, self.time_major, like_steps)
        else:
            features = x
            new_state = []
            remaining = iter(state)
            for cell in (self.cell, *self.upper_cells):
                cell_state = [next(remaining) for _ in range(self.kind.states)]
                features, *new_cell_state = cell(
                    features, *cell_state, lengths, self.time_major, like_steps
                )
                new_state += new_cell_state
        # `torch.compile` of PyTorch 2.12 makes a tuple of what a starred target takes.
        states = [] if ignores_state else list(new_state)
        if self.outputs is None:
            return features, states
        self._features = features
        return self.outputs(features), states

    def _inputs(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any], Any]:
        """Return the first cell's inputs `[S * T, width]`, the state, and the sequence lengths
        (None for single steps).
        """
        raise NotImplementedError

    @property
    def num_states(self) -> int:
        """The number of states of all layers."""
        num_upper_cells = 0 if self.upper_cells is None else len(self.upper_cells)
        return self.kind.states * (1 + num_upper_cells)

    def value_function(self) -> Any:
        """Return the value estimates `[S * T]` of the last forward pass."""
        return last_values(self, self._features)
