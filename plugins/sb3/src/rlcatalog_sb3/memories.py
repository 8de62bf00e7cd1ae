"""Support for memories (LSTM, attention, custom ones), and their states in sb3-contrib's
RecurrentPPO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlcatalog import ModelV2
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog_sb3.algorithms import TrainingLoop
from rlcatalog_sb3.sides import Side

States = tuple[Tensor, ...]

#: Advice for a memory that RecurrentPPO supports. for_sb3 puts the environment's masks into the
#: observation, the only place where RecurrentPPO finds them.
_USE_RECURRENT_PPO = (
    "Use RecurrentPPO(CatalogRecurrentPolicy, for_sb3(env), ...) from rlcatalog_sb3, which takes"
    " action masks as well; on the command line, --algo RecurrentPPO."
)
_USE_ANOTHER_ENGINE = "Train it with rlcatalog-ppo or rlcatalog-rllib."


def refuse_memory(sides: Sequence[Side], loop: TrainingLoop) -> None:
    """Reject memories that the training loop does not support, and a recurrent loop for a model
    without memory.

    Args:
        sides: The sides of the model.
        loop: The training loop.

    Raises:
        NotServedError: The training loop has no states, or supports only vectors that are initially
            zero, unlike attention's state.
        ConfigError: The training loop needs states, but the model has none.
    """
    sides_with_memory = [side for side in sides if side.initial_state]
    if not sides_with_memory:
        if loop.keeps_states:
            raise ConfigError(
                "CatalogRecurrentPolicy: the model has no memory. Set use_lstm in model_config, or"
                " use CatalogPolicy and PPO."
            )
        return
    unsupported_sides = [side for side in sides_with_memory if not _can_be_stored(side)]
    if not loop.keeps_states:
        side = sides_with_memory[0]
        subject = side.where
        if side.resolution.choices["memory"].part is None:
            subject += f"{side.name} is recurrent (get_initial_state() is not empty): "
        advice = _USE_ANOTHER_ENGINE if unsupported_sides else _USE_RECURRENT_PPO
        raise NotServedError(f"{subject}{loop.algorithm} keeps no state between steps. {advice}")
    for side in unsupported_sides:
        shapes = [part.shape for part in side.initial_state]
        raise NotServedError(
            f"{side.where}RecurrentPPO supports states of float vectors that are initially zero, as"
            f" in an LSTM; {side.name} has states of shapes {shapes}. {_USE_ANOTHER_ENGINE}"
        )


def _can_be_stored(side: Side) -> bool:
    """Return whether RecurrentPPO can store the states of a side of a model."""
    return all(_is_zero_float_vector(part) for part in side.initial_state)


def _is_zero_float_vector(state: Array) -> bool:
    is_float_vector = state.ndim == 1 and state.dtype.kind == "f"
    return is_float_vector and not state.any()


class StatePacker:
    """Packer that stores any memory's state in sb3-contrib's two tensors for an LSTM.

    The two vectors of an LSTM are stored unchanged. The vectors of any other memory are joined to
    one row, which is padded to an even width and cut into two halves.

    Args:
        initial: The state at the start of an episode, as vectors `[n]`.

    Attributes:
        size: Width of one half.
    """

    def __init__(self, initial: Sequence[Array]) -> None:
        self._widths = [int(vector.shape[0]) for vector in initial]
        self._row_width = sum(self._widths)
        self.size = math.ceil(self._row_width / 2)
        self._has_two_equal_vectors = self._widths == [self.size, self.size]

    def pack(self, vectors: Sequence[Tensor]) -> States:
        """Return the two tensors `[1, B, size]` for state vectors `[B, n]`."""
        if self._has_two_equal_vectors:
            first, second = vectors
            return first.unsqueeze(0), second.unsqueeze(0)
        row = torch.cat(list(vectors), dim=1)
        padding_width = 2 * self.size - self._row_width
        row = pad(row, (0, padding_width)).unsqueeze(0)
        return row[:, :, : self.size], row[:, :, self.size :]

    def unpack(self, states: States, episode_starts: Tensor) -> list[Tensor]:
        """Return the state vectors `[B, n]`, with zeros where an episode begins `[B]`."""
        # A product with 0 resets the state where an episode begins; a product with 1 keeps it.
        factor = (1.0 - episode_starts).reshape(-1, 1)
        first, second = (half[0] * factor for half in states)
        if self._has_two_equal_vectors:
            return [first, second]
        padded_row = torch.cat([first, second], dim=1)
        row = padded_row[:, : self._row_width]
        return list(torch.split(row, self._widths, dim=1))


def run_without_memory(model: ModelV2, inputs: Mapping[str, Any]) -> Tensor:
    """Run a model that has no memory, and return its outputs `[B, n]`.

    Args:
        model: A catalog model. Until its next call, `values_of(model)` returns the value estimates
            for the same inputs.
        inputs: The model's inputs by name, such as `"obs"`.
    """
    no_state: list[Tensor] = []
    no_sequence_lengths = None
    # These arguments are positional, because a user's model may name its parameters differently.
    outputs: Tensor = model(inputs, no_state, no_sequence_lengths)[0]
    return outputs
