"""Plain PyTorch modules as memories."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rlcatalog.frameworks import TensorTree
from rlcatalog_plain.memory.common import Memory
from rlcatalog_plain.memory.state_layout import StateLayout
from rlcatalog_plain.torch import TorchSource, call_module, device_of, restore_afterwards
from rlcatalog_torch import (
    OPS,
    OutputLayers,
    TorchModelV2,
    add_time_dimension,
    dtype_of,
    features_of,
    sequence_mask,
)


class PlainMemory(TorchSource, Memory, TorchModelV2):
    """Recurrent layer, or module with a state, after a trunk; see `Memory`."""

    outputs_class = OutputLayers
    expected = (
        "nn.GRU, nn.LSTM or nn.RNN, or a module with initial_state(batch_size), and forward(x,"
        " state) -> (y, state) for one step"
    )

    def trunk_features(self, input_dict: dict[str, Any]) -> Tensor:
        """Return the trunk's features `[S * T, n]`, in the dtype of the module's weights."""
        features, _ = features_of(self.trunk, input_dict, state=[], seq_lens=None)
        return features.to(dtype_of(self.module))

    def start(self, like: Tensor) -> list[Any]:  # type: ignore[override]
        """Return the state vectors `[S, n]` at the start of episodes."""
        rows = like.shape[0]
        return [vector.to(like.device).expand(rows, -1) for vector in self.get_initial_state()]

    def run(  # type: ignore[override]
        self,
        x: Tensor,
        state: list[Any],
        seq_lens: Tensor | None,
        like_steps: bool,
        training: bool,
    ) -> tuple[Tensor, list[Any]]:
        """Run the module; see `Memory.run`."""
        module = self.module
        runner = _runner_of(module)
        begin = self._state_of(state, x.dtype)
        rows = x.shape[0]
        if seq_lens is None or seq_lens.shape[0] == rows:
            y, end = runner.step(module, x, begin)
        else:
            timed = add_time_dimension(x, seq_lens)
            lengths = None if like_steps else _lengths_if_padded(seq_lens, timed.shape[1])
            y, end = runner.sequences(module, timed, begin, lengths, self.layout)
            y = y.reshape(rows, -1)
        return y, self.layout.vectors(end)

    def _state_of(self, vectors: Sequence[Tensor], dtype: torch.dtype) -> Any:
        """Return the module's state for state vectors, with floats in the dtype of its weights."""
        tensors = []
        for leaf, vector in zip(self.layout.leaves, vectors, strict=True):
            leaf_dtype = dtype if leaf.dtype.is_floating_point else leaf.dtype
            tensors.append(vector.to(leaf_dtype).reshape(vector.shape[0], *leaf.shape))
        return self.layout.state(tensors)

    def check_module(self) -> None:
        """Raise an error unless the module is a memory that fits the trunk."""
        module = self.module
        if isinstance(module, nn.RNNBase):
            if module.bidirectional:
                raise self.not_served(
                    "bidirectional=True", "While acting, the future is unknown: leave it out."
                )
            self.refuse_width(module.input_size)
            return
        # A user's module may have any attributes.
        if not callable(getattr(module, "initial_state", None)):
            raise self.no_memory()

    def initial_state(self, rows: int) -> Any:
        """Return the module's state at the start of episodes, with a row for each."""
        return _runner_of(self.module).initial_state(self.module, rows)

    def try_step(self, state: TensorTree, rows: int) -> Any:
        """Run the module for one step on zeros, in eval mode and without side effects."""
        module = self.module
        device = device_of(module)
        x = torch.zeros(rows, self._trunk_width, dtype=dtype_of(module), device=device)
        with torch.no_grad(), restore_afterwards(module, device):
            module.eval()
            return _runner_of(module).step(module, x, state)

    def is_trained(self, state: TensorTree) -> bool:
        """Return whether weights of the module are in a state."""
        layout = StateLayout(state, OPS)
        return any(tensor.requires_grad for tensor in layout.tensors(state))

    def signature_of_source(self) -> inspect.Signature:
        """Return the signature of the class or factory; for recurrent layers, the one that PyTorch
        documents, which their constructors do not have.
        """
        signature = super().signature_of_source()
        code = self.source
        if isinstance(code, functools.partial):
            return signature
        is_layer = isinstance(code, type) and issubclass(code, nn.RNNBase)
        parameters = list(signature.parameters.values())
        if not is_layer or parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            return signature
        _self, _mode, *documented = inspect.signature(nn.RNNBase.__init__).parameters.values()
        if isinstance(code, type) and issubclass(code, nn.RNN):
            nonlinearity = inspect.Parameter(
                "nonlinearity", inspect.Parameter.KEYWORD_ONLY, default="tanh"
            )
            documented.append(nonlinearity)
        return inspect.Signature(documented)


class _Runner(Protocol):
    """How a kind of modules runs; states are those of `layout`, with a row per episode."""

    def initial_state(self, module: Any, rows: int) -> Any:
        """Return the state at the start of episodes."""

    def step(self, module: Any, x: Tensor, state: Any) -> Any:
        """Return the output `[B, m]` for `x` `[B, n]`, and the new state."""

    def sequences(
        self, module: Any, x: Tensor, state: Any, lengths: list[int] | None, layout: StateLayout
    ) -> tuple[Tensor, Any]:
        """Return the outputs `[S, T, m]` for `x` `[S, T, n]`, with zeros at padded places, and the
        state at the end of each sequence.

        Args:
            module: The module.
            x: The inputs.
            state: The state before the first step.
            lengths: Lengths of the sequences; None for sequences without padding.
            layout: The structure of the state.
        """


class _LayerRunner:
    """Runs PyTorch's recurrent layers, which take whole sequences.

    Their states have an axis for layers before the batch's: `[layers, B, size]`. Here it comes
    second, and the state of an LSTM is a tuple of two tensors.
    """

    def initial_state(self, module: nn.RNNBase, rows: int) -> Any:
        weight = next(module.parameters())
        output_size = module.proj_size or module.hidden_size
        h = weight.new_zeros(rows, module.num_layers, output_size)
        if module.mode != "LSTM":
            return h
        return h, weight.new_zeros(rows, module.num_layers, module.hidden_size)

    def step(self, module: nn.RNNBase, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        time_axis = 1 if module.batch_first else 0
        y, end = call_module(module, x.unsqueeze(time_axis), _swap_axes(state))
        return y.squeeze(time_axis), _swap_axes(end)

    def sequences(
        self,
        module: nn.RNNBase,
        x: Tensor,
        state: Any,
        lengths: list[int] | None,
        layout: StateLayout,
    ) -> tuple[Tensor, Any]:
        begin = _swap_axes(state)
        if lengths is not None:
            packed = pack_padded_sequence(
                x, torch.tensor(lengths), batch_first=True, enforce_sorted=False
            )
            packed_outputs, end = call_module(module, packed, begin)
            y, _ = pad_packed_sequence(packed_outputs, batch_first=True, total_length=x.shape[1])
        elif module.batch_first:
            y, end = call_module(module, x, begin)
        else:
            timed_outputs, end = call_module(module, x.transpose(0, 1), begin)
            y = timed_outputs.transpose(0, 1)
        return y, _swap_axes(end)


class _StepRunner:
    """Runs modules with `initial_state`, which take one step."""

    def initial_state(self, module: Any, rows: int) -> Any:
        return module.initial_state(rows)

    def step(self, module: nn.Module, x: Tensor, state: Any) -> Any:
        return call_module(module, x, state)

    def sequences(
        self,
        module: nn.Module,
        x: Tensor,
        state: Any,
        lengths: list[int] | None,
        layout: StateLayout,
    ) -> tuple[Tensor, Any]:
        steps = x.shape[1]
        outputs = []
        if lengths is None:
            for t in range(steps):
                y, state = call_module(module, x[:, t], state)
                outputs.append(y)
            return torch.stack(outputs, dim=1), state
        is_real = sequence_mask(torch.tensor(lengths, device=x.device), steps)
        # Padding may contain NaN, which gradients would spread.
        x = torch.where(is_real[:, :, None], x, 0.0)
        for t in range(steps):
            y, new_state = call_module(module, x[:, t], state)
            # After its end, a sequence's outputs are zero and its states stay.
            is_running = is_real[:, t]
            outputs.append(torch.where(is_running[:, None], y, 0.0))
            kept = []
            pairs = zip(layout.tensors(new_state), layout.tensors(state), strict=True)
            for new, old in pairs:
                more_axes = [1] * (new.dim() - 1)
                kept.append(torch.where(is_running.view(-1, *more_axes), new, old))
            state = layout.state(kept)
        return torch.stack(outputs, dim=1), state


_LAYER_RUNNER = _LayerRunner()
_STEP_RUNNER = _StepRunner()


def _runner_of(module: nn.Module) -> _Runner:
    if isinstance(module, nn.RNNBase):
        return _LAYER_RUNNER
    return _STEP_RUNNER


def _swap_axes(state: Any) -> Any:
    """Return a layer's state with the axes of layers and rows swapped."""
    if isinstance(state, tuple):
        return tuple(_swap_axes(tensor) for tensor in state)
    if state.dim() == 4:
        # For an export, PyTorch 2.12 traces an LSTM's state as `[layers, 1, B, size]`, but its
        # values are `[layers, B, size]`. What follows is right for both.
        state = state.reshape(state.shape[0], -1, state.shape[-1])
    return state.transpose(0, 1).contiguous()


def _lengths_if_padded(seq_lens: Tensor, steps: int) -> list[int] | None:
    """Return the lengths of sequences; None if there is no padding."""
    lengths: list[int] = seq_lens.tolist()
    if min(lengths, default=steps) == steps:
        return None
    return lengths
