"""Config keys for the LSTM and the GRU, and the cells that they describe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from rlcatalog.config import InitConfig, NameOrCallable, read_config, read_initializers
from rlcatalog.errors import ModelContractError
from rlcatalog.models import DensePlan, PastInputs, init_recipe, memory_outputs

if TYPE_CHECKING:
    from gymnasium import Space

    from rlcatalog.spaces import SpaceInfo


class LstmConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the LSTM."""

    use_lstm: Annotated[bool, Meta(description="put an LSTM after the trunk")] = False
    lstm_cell_size: Annotated[
        int, Meta(ge=1, description="width of the LSTM's cell and output")
    ] = 256
    lstm_num_layers: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="number of layers of the LSTM or GRU, each of which reads the one before",
        ),
    ] = 1
    lstm_use_prev_action: Annotated[
        bool, Meta(description="add the previous action to the inputs of the LSTM or GRU")
    ] = False
    lstm_use_prev_reward: Annotated[
        bool, Meta(description="add the previous reward to the inputs of the LSTM or GRU")
    ] = False
    lstm_weights_initializer: Annotated[
        NameOrCallable,
        Meta(description="initialiser of the LSTM's or GRU's weights, applied to each gate"),
    ] = None
    lstm_weights_initializer_config: InitConfig = None
    lstm_bias_initializer: Annotated[
        NameOrCallable,
        Meta(description="initialiser of the LSTM's or GRU's biases, applied to each gate"),
    ] = None
    lstm_bias_initializer_config: InitConfig = None
    lstm_two_biases: Annotated[
        bool,
        Meta(
            description="train two biases for each gate of the LSTM, which are added, as"
            " PyTorch's own LSTM does; an optimiser like Adam then changes their sum twice as fast"
        ),
    ] = False

    def __post_init__(self) -> None:
        read_initializers(partial(getattr, self), "lstm", "weights", "bias")


class GruConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the GRU alone; it also reads keys of the LSTM."""

    use_gru: Annotated[bool, Meta(description="put a GRU after the trunk")] = False
    gru_cell_size: Annotated[int, Meta(ge=1, description="width of the GRU's output")] = 256


class Initial(NamedTuple):
    """Initialiser for one gate's weight or bias: a framework-neutral name or a callable, and its
    arguments.
    """

    name: Any
    config: Mapping[str, Any]


class CellPlan(NamedTuple):
    """Framework-neutral cell of an LSTM or a GRU.

    The gates (LSTM: input, forget, cell, output; GRU: reset, update, new) are initialised
    separately.

    Attributes:
        inputs: Width of its input.
        size: Width of the cell's output and of each of its states.
        input_weights: Initialiser for each gate's input weights `[size, inputs]`.
        recurrent_weights: Initialiser for each gate's recurrent weights `[size, size]`.
        biases: Initialiser for each gate's biases `[size]`.
        has_two_biases: Whether each gate of an LSTM has two biases.
    """

    inputs: int
    size: int
    input_weights: tuple[Initial, ...]
    recurrent_weights: tuple[Initial, ...]
    biases: tuple[Initial, ...]
    has_two_biases: bool = False


class LayersPlan(NamedTuple):
    """The cells of all layers, from the first on, and the layers after them."""

    cells: tuple[CellPlan, ...]
    last_layers: DensePlan


class CellKind(NamedTuple):
    """Kind of recurrent cell.

    Attributes:
        name: Its name.
        switch: The config key that turns it on.
        gates: Number of its gates.
        states: Number of its states.
        open_gate: The gate whose bias begins at 1 instead of 0, or None.
        single_biases: Number of gates with a bias beside that of `CellPlan.biases`.
    """

    name: str
    switch: str
    gates: int
    states: int
    open_gate: int | None
    single_biases: int

    def count_weights(self, cell: CellPlan) -> int:
        """Return the number of weights of a cell."""
        biases = self.gates + self.single_biases
        if cell.has_two_biases:
            biases += self.gates
        return cell.size * (self.gates * (cell.inputs + cell.size) + biases)


#: An open forget gate lets gradients through from the start (Gers et al. 2000; Jozefowicz et al.
#: 2015).
LSTM = CellKind("lstm", "use_lstm", gates=4, states=2, open_gate=1, single_biases=0)
#: The new gate of a GRU adds a bias before the reset gate multiplies (as in cuDNN), and one after.
GRU = CellKind("gru", "use_gru", gates=3, states=1, open_gate=None, single_biases=1)


def past_of(config: Mapping[str, Any], action: Space[Any] | SpaceInfo | None) -> PastInputs:
    """Return the past actions and rewards that the LSTM or GRU reads.

    Args:
        config: The flat model config; missing keys take their defaults.
        action: The action space, or its SpaceInfo.
    """
    settings = read_config(config, LstmConfig)
    actions = int(settings.lstm_use_prev_action)
    rewards = int(settings.lstm_use_prev_reward)
    return PastInputs.of(action, actions, rewards)


def plan_layers(
    config: Mapping[str, Any],
    trunk_width: int,
    past: PastInputs,
    num_outputs: int | None,
    kind: CellKind = LSTM,
) -> LayersPlan:
    """Read the cells and the layers after them from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        trunk_width: Width of the trunk's output.
        past: Past inputs that the first cell reads.
        num_outputs: Width of the output, or None for a trunk that ends with the last cell.
        kind: The kind of the cells.

    Raises:
        ConfigError: The config sets a key that an LSTM does not support; see
            `rlcatalog.models.memory_outputs`.
    """
    settings = read_config(config, LstmConfig)
    size = settings.lstm_cell_size
    if kind is GRU:
        size = read_config(config, GruConfig).gru_cell_size
    last_layers = memory_outputs(config, size, num_outputs, kind.switch)
    input_weights = Initial("xavier_uniform", config={})
    recurrent_weights = Initial("orthogonal", config={})
    biases = [Initial("zeros", config={})] * kind.gates
    if init_recipe(config).is_uniform_in_memories:
        bound = 1 / math.sqrt(size)
        uniform = Initial("uniform", config={"a": -bound, "b": bound})
        input_weights = uniform
        recurrent_weights = uniform
        biases = [uniform] * kind.gates
    elif kind.open_gate is not None:
        biases[kind.open_gate] = Initial("ones", config={})
    # The keys `lstm_weights_initializer` and `lstm_bias_initializer`, with their `_config`.
    given = read_initializers(partial(getattr, settings), "lstm", "weights", "bias")
    if "weights" in given:
        input_weights = Initial(*given["weights"])
        recurrent_weights = input_weights
    if "bias" in given:
        biases = [Initial(*given["bias"])] * kind.gates  # the same for each gate
    cells = []
    inputs = trunk_width + past.width
    for _ in range(settings.lstm_num_layers):
        cell = CellPlan(
            inputs=inputs,
            size=size,
            # One initialiser for each gate.
            input_weights=(input_weights,) * kind.gates,
            recurrent_weights=(recurrent_weights,) * kind.gates,
            biases=tuple(biases),
            has_two_biases=settings.lstm_two_biases and kind is LSTM,
        )
        cells.append(cell)
        inputs = size
    return LayersPlan(tuple(cells), last_layers)


def check_lengths(lengths: Sequence[int], steps: int) -> None:
    """Raise an error unless the sequences' lengths fit within the padding.

    Args:
        lengths: Lengths of the sequences.
        steps: Padded length.

    Raises:
        ModelContractError: A length is not between 1 and `steps`.
    """
    if min(lengths, default=1) < 1 or max(lengths, default=1) > steps:
        raise ModelContractError(
            f"seq_lens: expected lengths from 1 to {steps}, found {lengths[:20]}."
        )
