"""The LSTM and the GRU in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog_lstm.common import AroundTrunk
from rlcatalog_lstm.config import GRU, LSTM, CellKind, CellPlan, Initial, check_lengths
from rlcatalog_torch import (
    OPS,
    OutputLayers,
    TorchModelV2,
    add_time_dimension,
    features_of,
    initialize,
)
from rlcatalog_torch.private_api import are_transforms_active, buffers_of, parameters_of

#: States of a cell, `[S, size]` each; the first one is its output.
_States = tuple[Tensor, ...]


class RecurrentCell(nn.Module):
    """Recurrent layer with a trainable bias for each gate.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind: ClassVar[CellKind]
    no_bias: Tensor

    def __init__(self, cell: CellPlan) -> None:
        super().__init__()
        self.size = cell.size
        self.weight_ih = nn.Parameter(_gates(cell.input_weights, (cell.size, cell.inputs)))
        self.weight_hh = nn.Parameter(_gates(cell.recurrent_weights, (cell.size, cell.size)))
        self.bias = nn.Parameter(_gates(cell.biases, (cell.size,)))

    def run(
        self,
        x: Tensor,
        states: _States,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool,
    ) -> tuple[Tensor, ...]:
        """Process sequences in the weights' dtype.

        Args:
            x: Inputs `[S * T, inputs]`, padded to equal lengths.
            states: The states before the first step.
            seq_lens: Lengths `[S]`, or None for single steps.
            time_major: Whether PyTorch receives sequences as `[T, S, inputs]`.
            like_steps: Whether to process padding like steps.

        Returns:
            Outputs `[S * T, size]`, with zeros at padded places, and the states at the end of each
            sequence.

        Raises:
            ModelContractError: A length is not between 1 and T.
        """
        rows = x.shape[0]
        dtype = self.no_bias.dtype
        # A comparison is quicker than a conversion that changes nothing.
        if x.dtype is not dtype:
            x = x.to(dtype)
        if states[0].dtype is not dtype:
            states = tuple([state.to(dtype) for state in states])
        # PyTorch's recurrent operations do not support vmap.
        if are_transforms_active():
            return self._by_hand(x, states, seq_lens)
        if seq_lens is None or seq_lens.shape[0] == rows:
            new_states = self._step(x, states)
            return new_states[0], *new_states
        # To process the padding too is faster on CPUs than to select the real rows; on GPUs, it
        # avoids a synchronisation.
        if not like_steps:
            lengths = seq_lens.tolist()
            steps = rows // seq_lens.shape[0]
            check_lengths(lengths, steps)
            if min(lengths) < steps:
                return self._packed(x, states, lengths, steps)
        timed = add_time_dimension(x, seq_lens, time_major=time_major)
        # has_biases, num_layers, dropout, train, bidirectional, batch_first
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, not time_major)
        y, *states_by_layer = self._layer((timed,), _with_layers(states), options)
        if time_major:
            y = y.transpose(0, 1)
        return y.reshape(rows, -1), *[self._of_one_layer(state) for state in states_by_layer]

    def _step(self, x: Tensor, states: _States) -> _States:
        """Return the states after one step, with PyTorch's operation."""
        raise NotImplementedError

    def _layer(self, inputs: tuple[Tensor, ...], states: _States, options: Any) -> _States:
        """Return the outputs of sequences, and the states at their ends, with PyTorch's operation.

        Args:
            inputs: Timed inputs, or packed inputs and their batch sizes.
            states: The states before the first step, `[1, S, size]`.
            options: The operation's options after the weights.
        """
        raise NotImplementedError

    def _step_by_hand(self, projected: Tensor, states: _States) -> _States:
        """Return the states after one step, with operations that `torch.func` supports.

        Args:
            projected: The inputs' share of the gates, with the bias.
            states: The states before the step.
        """
        raise NotImplementedError

    def _weights(self) -> list[Tensor]:
        """Return the weights and both biases, as PyTorch's operations take them."""
        raise NotImplementedError

    def _input_bias(self) -> Tensor:
        """Return the bias that is added to the inputs' share of the gates."""
        return self.bias

    def _by_hand(self, x: Tensor, states: _States, seq_lens: Tensor | None) -> tuple[Tensor, ...]:
        """Process sequences step by step."""
        sequences = states[0].shape[0]
        steps = x.shape[0] // sequences
        projected = F.linear(x, self.weight_ih, self._input_bias()).view(sequences, steps, -1)
        outputs = []
        for t in range(steps):
            new_states = self._step_by_hand(projected[:, t], states)
            if seq_lens is None:
                outputs.append(new_states[0])
                states = new_states
                continue
            # After its end, a sequence's outputs are zero and its states stay.
            is_running = (seq_lens > t)[:, None]
            outputs.append(torch.where(is_running, new_states[0], 0.0))
            pairs = zip(new_states, states, strict=True)
            states = tuple([torch.where(is_running, new, old) for new, old in pairs])
        return torch.stack(outputs, dim=1).flatten(0, 1), *states

    def _packed(
        self, x: Tensor, states: _States, lengths: list[int], steps: int
    ) -> tuple[Tensor, ...]:
        """Process sequences of different lengths; PyTorch only receives unpadded rows, longest
        sequence first.
        """
        sizes = np.asarray(lengths)
        longest_first = np.argsort(-sizes, kind="stable")
        t = np.arange(sizes.max())[:, None]
        # PyTorch takes the first steps of all sequences, then all second steps, and so on.
        is_running = t < sizes[longest_first]  # [longest, S]
        rows = longest_first * steps + t  # the place of each step among the padded rows
        places = torch.from_numpy(rows[is_running]).to(x.device)
        order = torch.from_numpy(longest_first).to(x.device)
        order_back = torch.from_numpy(np.argsort(longest_first)).to(x.device)
        begin = tuple([state.index_select(0, order) for state in states])
        batch_sizes = torch.from_numpy(is_running.sum(axis=1))  # sequences that reach each step
        # has_biases, num_layers, dropout, train, bidirectional
        options = (True, 1, 0.0, torch.is_grad_enabled(), False)
        packed = (x.index_select(0, places), batch_sizes)
        y, *states_by_layer = self._layer(packed, _with_layers(begin), options)
        padded = y.new_zeros(len(x), self.size).index_copy(0, places, y)
        ends = [self._of_one_layer(state) for state in states_by_layer]
        return padded, *[end.index_select(0, order_back) for end in ends]

    def _of_one_layer(self, state: Tensor) -> Tensor:
        """Return the state `[S, size]` of the only layer of `[1, S, size]`.

        An index of 0 would be wrong where PyTorch 2.12 traces an LSTM's state, `[1, 1, S, size]`.
        """
        return state.reshape(-1, self.size)

    def _compact(self) -> list[Tensor]:
        """Return the weights; on a GPU, as slices of one tensor."""
        weights = self._weights()
        if not weights[0].is_cuda:
            return weights
        # cuDNN reads them from contiguous memory, and warns if it has to create it.
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        ends = np.cumsum([weight.numel() for weight in weights]).tolist()
        slices = []
        for end, weight in zip(ends, weights, strict=True):
            slices.append(flat[end - weight.numel() : end].view(weight.shape))
        return slices


class LSTMCell(RecurrentCell):
    """LSTM layer (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al.) with a single
    trainable bias or, with `lstm_two_biases`, with two.

    The gates are in the order input, forget, cell, output, as in torch.nn.LSTM.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind = LSTM

    def __init__(self, cell: CellPlan) -> None:
        super().__init__(cell)
        # PyTorch's operations add two biases; training both would only double the bias's learning
        # rate, so this is for engines whose own nets do it.
        self.has_two_biases = cell.has_two_biases
        self._parameter_count = 3
        if cell.has_two_biases:
            self.bias_hh = nn.Parameter(_gates(cell.biases, (cell.size,)))
            self._parameter_count = 4
        self.register_buffer("no_bias", torch.zeros(4 * cell.size), persistent=False)

    def forward(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Tensor, ...]:
        """Process sequences from their outputs `h` and cell states `c` on; see
        `RecurrentCell.run`.
        """
        return self.run(x, (h, c), seq_lens, time_major, like_steps)

    def _step(self, x: Tensor, states: _States) -> _States:
        return torch.lstm_cell(x, states, *self._weights())

    def _layer(self, inputs: tuple[Tensor, ...], states: _States, options: Any) -> _States:
        # The inputs decide between two forms of the operation, which checkers cannot tell apart.
        outputs: _States = torch.lstm(*inputs, states, self._compact(), *options)  # type: ignore[call-overload]
        return outputs

    def _step_by_hand(self, projected: Tensor, states: _States) -> _States:
        h, c = states
        i, f, g, o = (projected + h @ self.weight_hh.t()).chunk(4, dim=1)
        new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * new_c.tanh(), new_c

    def _weights(self) -> list[Tensor]:
        parameters = parameters_of(self)
        # Weight norm and other parametrisations replace parameters.
        has_own_parameters = len(parameters) == self._parameter_count
        if has_own_parameters:
            # In order of creation; nn.Module's __getattr__ would be slower.
            weights: list[Any] = list(parameters.values())
            if not self.has_two_biases:
                weights.append(buffers_of(self)["no_bias"])
            return weights
        second_bias = self.bias_hh if self.has_two_biases else self.no_bias
        return [self.weight_ih, self.weight_hh, self.bias, second_bias]

    def _input_bias(self) -> Tensor:
        if self.has_two_biases:
            return self.bias + self.bias_hh
        return self.bias


class GRUCell(RecurrentCell):
    """GRU layer (Cho et al. 2014, with the reset gate after the matrix product, as in torch.nn.GRU
    and in Keras' `reset_after`).

    The gates are in the order reset, update, new. The new gate has a second bias, which the reset
    gate multiplies; a second bias of the others would be redundant.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    kind = GRU

    def __init__(self, cell: CellPlan) -> None:
        super().__init__(cell)
        self.bias_hn = nn.Parameter(_gates(cell.biases[2:], (cell.size,)))
        self.register_buffer("no_bias", torch.zeros(2 * cell.size), persistent=False)

    def forward(
        self,
        x: Tensor,
        h: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Tensor, ...]:
        """Process sequences from their outputs `h` on; see `RecurrentCell.run`."""
        return self.run(x, (h,), seq_lens, time_major, like_steps)

    def _step(self, x: Tensor, states: _States) -> _States:
        return (torch.gru_cell(x, states[0], *self._weights()),)

    def _layer(self, inputs: tuple[Tensor, ...], states: _States, options: Any) -> _States:
        # As in the LSTM, the inputs decide between two forms of the operation.
        outputs: _States = torch.gru(*inputs, states[0], self._compact(), *options)  # type: ignore[call-overload]
        return outputs

    def _step_by_hand(self, projected: Tensor, states: _States) -> _States:
        (h,) = states
        x_reset, x_update, x_new = projected.chunk(3, dim=1)
        h_reset, h_update, h_new = (h @ self.weight_hh.t()).chunk(3, dim=1)
        reset = (x_reset + h_reset).sigmoid()
        update = (x_update + h_update).sigmoid()
        new = (x_new + reset * (h_new + self.bias_hn)).tanh()
        return ((1 - update) * new + update * h,)

    def _weights(self) -> list[Tensor]:
        recurrent_bias = torch.cat([self.no_bias, self.bias_hn])
        return [self.weight_ih, self.weight_hh, self.bias, recurrent_bias]


class _Wrapper(AroundTrunk, TorchModelV2):
    """Recurrent cells around a trunk, followed by logits and a value; see `AroundTrunk`."""

    list_class = nn.ModuleList
    outputs_class = OutputLayers

    def _inputs(
        self,
        input_dict: dict[str, Any],
        state: list[Any],
        seq_lens: Tensor | None,  # type: ignore[override]
    ) -> tuple[Any, list[Any], Any]:
        x, _ = features_of(self.trunk, input_dict, state=[], seq_lens=None)
        if self.past.width:
            x = OPS.columns([x, *self.past.of_input(input_dict)])
        if not state:
            sequences = x.shape[0] if seq_lens is None else seq_lens.shape[0]
            state = [zeros.expand(sequences, -1) for zeros in self.get_initial_state()]
        return x, state, seq_lens

    def get_initial_state(self) -> list[Tensor]:
        """Return the states at the start of an episode: zeros `[cell]`."""
        cell = self.cell
        return [cell.no_bias.new_zeros(cell.size) for _ in range(self.num_states)]


class LSTMWrapper(_Wrapper):
    """LSTM around a trunk, followed by logits and a value; see `AroundTrunk`."""

    kind = LSTM
    cell_class = LSTMCell


class GRUWrapper(_Wrapper):
    """GRU around a trunk, followed by logits and a value; see `AroundTrunk`."""

    kind = GRU
    cell_class = GRUCell


def _with_layers(states: _States) -> _States:
    """Return states with an axis for layers before the others, as PyTorch takes them."""
    return tuple([state[None] for state in states])


def _gates(initial: Sequence[Initial], shape: tuple[int, ...]) -> Tensor:
    """Return the initial values for all gates, concatenated to `[gates * shape[0], ...]`."""
    gates = torch.empty(len(initial), *shape)
    is_bias = len(shape) == 1
    inputs = shape[0] if is_bias else None
    for gate, initializer in zip(gates, initial, strict=True):
        initialize(gate, initializer.name, initializer.config, inputs)
    return gates.flatten(0, 1)
