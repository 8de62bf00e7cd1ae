"""Plugin declarations: when the LSTM is chosen, and its stages."""

from __future__ import annotations

from rlcatalog import ModelSpec, Request, Stage, hookimpl


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog_lstm.config import past_of, plan_layers

    past = past_of(request.config, request.action)
    # The width of a custom trunk is known only once it is built. The stages after the cell do not
    # depend on it, so 1 stands for it.
    is_width_known = request.trunk_width is not None
    layers = plan_layers(request.config, request.trunk_width or 1, past, request.num_outputs)
    cell = layers.cell
    stages = []
    if past.width:
        additions = []
        if past.actions:
            additions.append("previous action")
        if past.rewards:
            additions.append("previous reward")
        shape = (cell.inputs,) if is_width_known else None
        stages.append(Stage(f"with {' and '.join(additions)}", shape, weights=0))
    # Four gates, each with weights for inputs and outputs and with a bias.
    weights = 4 * cell.size * (cell.inputs + cell.size + 1)
    stages.append(Stage("cell (lstm)", (cell.size,), weights, whole=is_width_known))
    return [*stages, *layers.last_layers.stages()]


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
            describe=describe,
            config="rlcatalog_lstm.config:LstmConfig",
            reads=("free_log_std", "max_seq_len", "_time_major"),
            examples="rlcatalog_lstm.examples:examples",
        )
    ]
