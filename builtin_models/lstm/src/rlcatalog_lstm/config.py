"""Config keys for the LSTM, and the cell that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from rlcatalog.config import InitConfig, NameOrCallable, read_config, read_initializers
from rlcatalog.errors import ModelContractError
from rlcatalog.models import DensePlan, PastInputs, memory_outputs

if TYPE_CHECKING:
    from gymnasium import Space

    from rlcatalog.spaces import SpaceInfo


class LstmConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the LSTM."""

    use_lstm: Annotated[bool, Meta(description="put an LSTM after the trunk")] = False
    lstm_cell_size: Annotated[
        int, Meta(ge=1, description="width of the LSTM's cell and output")
    ] = 256
    lstm_use_prev_action: Annotated[
        bool, Meta(description="add the previous action to the LSTM's inputs")
    ] = False
    lstm_use_prev_reward: Annotated[
        bool, Meta(description="add the previous reward to the LSTM's inputs")
    ] = False
    lstm_weights_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the LSTM's weights, applied to each gate")
    ] = None
    lstm_weights_initializer_config: InitConfig = None
    lstm_bias_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the LSTM's bias, applied to each gate")
    ] = None
    lstm_bias_initializer_config: InitConfig = None

    def __post_init__(self) -> None:
        read_initializers(partial(getattr, self), "lstm", "weights", "bias")


class Initial(NamedTuple):
    """Initialiser for one gate's weight or bias: a framework-neutral name or a callable, and its
    arguments.
    """

    name: Any
    config: Mapping[str, Any]


class CellPlan(NamedTuple):
    """Framework-neutral LSTM cell.

    The gates (input, forget, cell, output) are initialised separately.

    Attributes:
        inputs: Width of its input.
        size: Width of the cell's output and of each of its two states.
        input_weights: Initialiser for each gate's input weights `[size, inputs]`.
        recurrent_weights: Initialiser for each gate's recurrent weights `[size, size]`.
        biases: Initialiser for each gate's biases `[size]`.
    """

    inputs: int
    size: int
    input_weights: tuple[Initial, ...]
    recurrent_weights: tuple[Initial, ...]
    biases: tuple[Initial, ...]


class LstmPlan(NamedTuple):
    """The cell, and the layers after it."""

    cell: CellPlan
    last_layers: DensePlan


def past_of(config: Mapping[str, Any], action: Space[Any] | SpaceInfo | None) -> PastInputs:
    """Return the past actions and rewards that the LSTM reads.

    Args:
        config: The flat model config; missing keys take their defaults.
        action: The action space, or its SpaceInfo.
    """
    settings = read_config(config, LstmConfig)
    actions = int(settings.lstm_use_prev_action)
    rewards = int(settings.lstm_use_prev_reward)
    return PastInputs.of(action, actions, rewards)


def plan_layers(
    config: Mapping[str, Any], trunk_width: int, past: PastInputs, num_outputs: int | None
) -> LstmPlan:
    """Read the cell and the layers after it from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        trunk_width: Width of the trunk's output.
        past: Past inputs that the LSTM reads.
        num_outputs: Width of the output, or None for a trunk that ends with the cell.

    Raises:
        ConfigError: The config sets a key that an LSTM does not support; see
            `rlcatalog.models.memory_outputs`.
    """
    settings = read_config(config, LstmConfig)
    size = settings.lstm_cell_size
    last_layers = memory_outputs(config, size, num_outputs, "use_lstm")
    # The keys `lstm_weights_initializer` and `lstm_bias_initializer`, with their `_config`.
    initializers = read_initializers(partial(getattr, settings), "lstm", "weights", "bias")
    input_weights = Initial("xavier_uniform", config={})
    recurrent_weights = Initial("orthogonal", config={})
    if "weights" in initializers:
        name, arguments = initializers["weights"]
        input_weights = Initial(name, arguments)
        recurrent_weights = input_weights
    if "bias" in initializers:
        name, arguments = initializers["bias"]
        biases = (Initial(name, arguments),) * 4  # the same for each gate
    else:
        zeros = Initial("zeros", config={})
        ones = Initial("ones", config={})
        # The gates are input, forget, cell and output. An open forget gate lets gradients through
        # from the start (Gers et al. 2000; Jozefowicz et al. 2015).
        biases = (zeros, ones, zeros, zeros)
    cell = CellPlan(
        inputs=trunk_width + past.width,
        size=size,
        # One initialiser for each of the four gates.
        input_weights=(input_weights,) * 4,
        recurrent_weights=(recurrent_weights,) * 4,
        biases=biases,
    )
    return LstmPlan(cell, last_layers)


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
