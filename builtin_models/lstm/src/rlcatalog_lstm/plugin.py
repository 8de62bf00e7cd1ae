"""Plugin declarations: when the LSTM and the GRU are chosen, and their stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcatalog import ModelSpec, Request, Stage, hookimpl

if TYPE_CHECKING:
    from rlcatalog_lstm.config import CellKind


def describe_lstm(request: Request) -> list[Stage]:
    """Return the LSTM's stages and their shapes."""
    from rlcatalog_lstm.config import LSTM

    return _describe(request, LSTM)


def describe_gru(request: Request) -> list[Stage]:
    """Return the GRU's stages and their shapes."""
    from rlcatalog_lstm.config import GRU

    return _describe(request, GRU)


def _describe(request: Request, kind: CellKind) -> list[Stage]:
    from rlcatalog_lstm.config import past_of, plan_layers

    past = past_of(request.config, request.action)
    # The width of a custom trunk is known only once it is built. The stages after the cell do not
    # depend on it, so 1 stands for it.
    is_width_known = request.trunk_width is not None
    layers = plan_layers(request.config, request.trunk_width or 1, past, request.num_outputs, kind)
    first_cell, *upper_cells = layers.cells
    stages = []
    if past.width:
        additions = []
        if past.actions:
            additions.append("previous action")
        if past.rewards:
            additions.append("previous reward")
        shape = (first_cell.inputs,) if is_width_known else None
        stages.append(Stage(f"with {' and '.join(additions)}", shape, weights=0))
    first_weights = kind.count_weights(first_cell)
    first_name = f"cell ({kind.name})"
    if upper_cells:
        first_name = f"cell 1 ({kind.name})"
    stages.append(Stage(first_name, (first_cell.size,), first_weights, whole=is_width_known))
    for number, cell in enumerate(upper_cells, start=2):
        weights = kind.count_weights(cell)
        stages.append(Stage(f"cell {number} ({kind.name})", (cell.size,), weights))
    return [*stages, *layers.last_layers.stages()]


#: The LSTM's keys that the GRU reads, too.
_SHARED_KEYS = (
    "lstm_num_layers", "lstm_use_prev_action", "lstm_use_prev_reward", "lstm_weights_initializer",
    "lstm_weights_initializer_config", "lstm_bias_initializer", "lstm_bias_initializer_config",
)  # fmt: skip
_KERNEL_KEYS = ("init", "free_log_std", "max_seq_len", "_time_major")


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="lstm",
            targets={
                "torch": "rlcatalog_lstm.torch:LSTMWrapper",
                "tf": "rlcatalog_lstm.tf:LSTMWrapper",
            },
            summary="an LSTM around any trunk, default or custom; optionally reads the previous"
            " action and reward",
            slot="memory",
            switch="use_lstm",
            describe=describe_lstm,
            config="rlcatalog_lstm.config:LstmConfig",
            reads=_KERNEL_KEYS,
            examples="rlcatalog_lstm.examples:lstm_examples",
        ),
        ModelSpec(
            name="gru",
            targets={
                "torch": "rlcatalog_lstm.torch:GRUWrapper",
                "tf": "rlcatalog_lstm.tf:GRUWrapper",
            },
            summary="a GRU around any trunk, default or custom; optionally reads the previous"
            " action and reward",
            slot="memory",
            switch="use_gru",
            describe=describe_gru,
            config="rlcatalog_lstm.config:GruConfig",
            reads=(*_KERNEL_KEYS, *_SHARED_KEYS),
            examples="rlcatalog_lstm.examples:gru_examples",
        ),
    ]
