"""The LSTM in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog_lstm.common import AroundTrunk
from rlcatalog_lstm.config import CellPlan, Initial, check_lengths
from rlcatalog_torch import (
    OPS,
    OutputLayers,
    TorchModelV2,
    add_time_dimension,
    features_of,
    initialize,
)
from rlcatalog_torch.private_api import are_transforms_active, buffers_of, parameters_of


class LSTMCell(nn.Module):
    """LSTM layer with a single trainable bias (Hochreiter & Schmidhuber 1997, with the forget gate
    of Gers et al.).

    The gates are in the order input, forget, cell, output, as in torch.nn.LSTM.

    Args:
        cell: Sizes and initialisers of the cell.
    """

    no_bias: Tensor

    def __init__(self, cell: CellPlan) -> None:
        super().__init__()
        self.size = cell.size
        self.weight_ih = nn.Parameter(_gates(cell.input_weights, (cell.size, cell.inputs)))
        self.weight_hh = nn.Parameter(_gates(cell.recurrent_weights, (cell.size, cell.size)))
        self.bias = nn.Parameter(_gates(cell.biases, (cell.size,)))
        # PyTorch's operations add two biases; training both would only double the bias's learning
        # rate.
        self.register_buffer("no_bias", torch.zeros(4 * cell.size), persistent=False)

    def forward(
        self,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        seq_lens: Tensor | None,
        time_major: bool,
        like_steps: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Process sequences in the weights' dtype.

        Args:
            x: Inputs `[S * T, inputs]`, padded to equal lengths.
            h: Outputs `[S, size]` before the first step.
            c: Cell states `[S, size]` before the first step.
            seq_lens: Lengths `[S]`, or None for single steps.
            time_major: Whether PyTorch receives sequences as `[T, S, inputs]`.
            like_steps: Whether to process padding like steps.

        Returns:
            Outputs `[S * T, size]`, with zeros at padded places, and both states at the end of each
            sequence.

        Raises:
            ModelContractError: A length is not between 1 and T.
        """
        rows = x.shape[0]
        dtype = self.no_bias.dtype
        x = x.to(dtype)
        h = h.to(dtype)
        c = c.to(dtype)
        # PyTorch's LSTM operations do not support vmap.
        if are_transforms_active():
            return self._by_hand(x, h, c, seq_lens)
        if seq_lens is None or seq_lens.shape[0] == rows:
            h, c = torch.lstm_cell(x, (h, c), *self._weights())
            return h, h, c
        # To process the padding too is faster on CPUs than to select the real rows; on GPUs, it
        # avoids a synchronisation.
        if not like_steps:
            lengths = seq_lens.tolist()
            steps = rows // seq_lens.shape[0]
            check_lengths(lengths, steps)
            if min(lengths) < steps:
                return self._packed(x, h, c, lengths, steps)
        timed = add_time_dimension(x, seq_lens, time_major=time_major)
        # has_biases, num_layers, dropout, train, bidirectional, batch_first
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, not time_major)
        # PyTorch's states have an axis for layers, of which there is one.
        y, h, c = torch.lstm(timed, (h[None], c[None]), self._compact(), *options)
        if time_major:
            y = y.transpose(0, 1)
        return y.reshape(rows, -1), h[0], c[0]

    def _by_hand(
        self, x: Tensor, h: Tensor, c: Tensor, seq_lens: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Process sequences step by step, with operations that `torch.func` supports."""
        sequences = h.shape[0]
        steps = x.shape[0] // sequences
        projected = F.linear(x, self.weight_ih, self.bias).view(sequences, steps, -1)
        outputs = []
        for t in range(steps):
            i, f, g, o = (projected[:, t] + h @ self.weight_hh.t()).chunk(4, dim=1)
            new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            new_h = o.sigmoid() * new_c.tanh()
            if seq_lens is None:
                outputs.append(new_h)
                h = new_h
                c = new_c
            else:
                # After its end, a sequence's outputs are zero and its states stay.
                is_running = (seq_lens > t)[:, None]
                outputs.append(torch.where(is_running, new_h, 0.0))
                h = torch.where(is_running, new_h, h)
                c = torch.where(is_running, new_c, c)
        return torch.stack(outputs, dim=1).flatten(0, 1), h, c

    def _packed(
        self, x: Tensor, h: Tensor, c: Tensor, lengths: list[int], steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
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
        # PyTorch's states have an axis for layers, of which there is one.
        begin = (h.index_select(0, order)[None], c.index_select(0, order)[None])
        batch_sizes = torch.from_numpy(is_running.sum(axis=1))  # sequences that reach each step
        # has_biases, num_layers, dropout, train, bidirectional
        options = (True, 1, 0.0, torch.is_grad_enabled(), False)
        y, h, c = torch.lstm(
            x.index_select(0, places), batch_sizes, begin, self._compact(), *options
        )
        padded = y.new_zeros(len(x), self.size).index_copy(0, places, y)
        return padded, h[0].index_select(0, order_back), c[0].index_select(0, order_back)

    def _weights(self) -> list[Tensor]:
        """Return the weights and both biases, as PyTorch's operations take them."""
        parameters = parameters_of(self)
        # Weight norm and other parametrisations replace parameters.
        has_own_parameters = len(parameters) == 3
        if has_own_parameters:
            # In order of creation; nn.Module's __getattr__ would be slower.
            return [*parameters.values(), buffers_of(self)["no_bias"]]  # type: ignore[list-item]
        return [self.weight_ih, self.weight_hh, self.bias, self.no_bias]

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


class LSTMWrapper(AroundTrunk, TorchModelV2):
    """LSTM around a trunk, followed by logits and a value; see `AroundTrunk`."""

    cell_class = LSTMCell
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
        """Return `[h, c]` at the start of an episode: zeros `[cell]`."""
        return [self.cell.no_bias.new_zeros(self.cell.size) for _ in range(2)]


def _gates(initial: Sequence[Initial], shape: tuple[int, ...]) -> Tensor:
    """Return the initial values for all gates, concatenated to `[4 * shape[0], ...]`."""
    gates = torch.empty(len(initial), *shape)
    is_bias = len(shape) == 1
    inputs = shape[0] if is_bias else None
    for gate, initializer in zip(gates, initial, strict=True):
        initialize(gate, initializer.name, initializer.config, inputs)
    return gates.flatten(0, 1)
