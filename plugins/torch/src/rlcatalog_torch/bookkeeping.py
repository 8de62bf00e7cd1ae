"""Kernel-side state of PyTorch models (see `rlcatalog.models.bookkeeping`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from rlcatalog.models import ModelBookkeeping, check_weights
from rlcatalog.spaces import map_tensors
from rlcatalog_torch.dtypes import to_array
from rlcatalog_torch.private_api import needs_call
from rlcatalog_torch.sequences import Padding


class TorchBookkeeping(ModelBookkeeping):
    """Kernel-side state of a PyTorch model."""

    def run(self, model: Any, inputs: dict[str, Any], state: list[Any], seq_lens: Any) -> Any:
        """Call `forward`, with nn.Module's hooks, if any; after `model.compile()`, call the
        compiled version.
        """
        # Without hooks, nn.Module.__call__ would only cost three microseconds.
        if needs_call(model):
            return nn.Module.__call__(model, inputs, state, seq_lens)
        return model.forward(inputs, state, seq_lens)

    def hold(self, model: Any, models: Mapping[str, Any]) -> None:
        """Record the models inside a model, and keep references to models that nn.Module does not
        find.
        """
        super().hold(model, models)
        known = {id(module) for module in model.modules()}
        for name, held in self.held.items():
            if id(held) not in known and isinstance(held, nn.Module):
                model.add_module(f"_rlcatalog_{name}", held)

    def weights(self, model: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return all weights and buffers as arrays, under their `state_dict` names."""
        return {name: to_array(tensor) for name, tensor in model.state_dict().items()}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays."""
        state = model.state_dict()
        check_weights(model, {name: tuple(tensor.shape) for name, tensor in state.items()}, weights)
        with torch.no_grad():
            for name, tensor in state.items():
                tensor.copy_(torch.as_tensor(np.array(weights[name]), dtype=tensor.dtype))

    def as_tensors(self, model: Any, obs: Any) -> Any:
        """Convert NumPy arrays in observations to tensors on the model's device."""
        like = next(model.parameters(), None)
        return map_tensors(
            obs, lambda leaf: self.ops.tensor(leaf, like) if isinstance(leaf, np.ndarray) else leaf
        )

    def batch_major(self, rows: Any, steps: int, sequences: int) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major."""
        if not isinstance(rows, torch.Tensor) or rows.shape[:1] != (steps * sequences,):
            return rows  # `check_values` raises the error
        return rows.reshape(steps, sequences, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)

    def padding(self, seq_lens: Any, rows: Any) -> Padding | None:
        """Return which rows are padding, or None if there is no padding."""
        return Padding.of(seq_lens, rows)
