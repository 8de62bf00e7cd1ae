"""Kernel-side state of PyTorch models (see `rlcatalog.models.bookkeeping`)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from rlcatalog.frameworks import Tensor, TensorTree
from rlcatalog.models import ModelBookkeeping, chain_inside, check_weights, is_of_value
from rlcatalog.spaces import map_tensors
from rlcatalog_torch.dtypes import to_array
from rlcatalog_torch.nn import OutputLayers
from rlcatalog_torch.private_api import needs_call
from rlcatalog_torch.sequences import Padding


class TorchBookkeeping(ModelBookkeeping):
    """Kernel-side state of a PyTorch model."""

    last_layers = OutputLayers

    def run(
        self, model: Any, inputs: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> Any:
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
        registered = {id(module) for module in model.modules()}
        for name, inner in self.passed_models.items():
            if id(inner) not in registered and isinstance(inner, nn.Module):
                model.add_module(f"_rlcatalog_{name}", inner)

    def weights(self, model: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return all weights and buffers as arrays, under their `state_dict` names."""
        return {name: to_array(tensor) for name, tensor in model.state_dict().items()}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays."""
        state = model.state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        check_weights(model, shapes, weights)
        with torch.no_grad():
            for name, tensor in state.items():
                tensor.copy_(torch.as_tensor(np.array(weights[name]), dtype=tensor.dtype))

    def weight_keys(self, model: Any) -> dict[str, Hashable]:
        """Return the identity of each weight and buffer by its `state_dict` name."""
        return {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}

    def set_frozen_weights(self, model: Any, names: Collection[str]) -> None:
        """Stop the learning of these weights of a model, and of no others."""
        weights = dict(model.named_parameters())
        for name in self.frozen_weights:
            weights[name].requires_grad_(True)
        # Buffers have no gradients, and other weights may have been frozen by their owner.
        learning = {name for name, weight in weights.items() if weight.requires_grad}
        self.frozen_weights = frozenset(learning & set(names))
        for name in self.frozen_weights:
            weights[name].requires_grad_(False)
            # An optimiser would apply a gradient of before once more.
            weights[name].grad = None
        model.train(model.training)

    def keep_still(self, model: Any) -> None:
        """Leave the layers of frozen parts in evaluation mode, after `train` has set all modes."""
        if not self.is_still and not self.is_value_side_still:
            return
        has_last_layers = self.has_last_layers(model)
        inner_models: list[Any] = [place.model for place in chain_inside(model)]
        for name, child in model.named_children():
            is_inner = any(child is inner for inner in inner_models)
            is_last = has_last_layers and child is model.outputs
            if is_inner or is_last:
                continue
            is_still = self.is_still
            if has_last_layers and is_of_value(name):
                is_still = self.is_value_side_still
            if is_still:
                child.eval()
        if self.is_still and not has_last_layers:
            # Its own code may ask for the mode, too.
            model.training = False
        for inner in inner_models:
            inner.train()  # a list of layers, set above, may contain one

    def as_tensors(self, model: Any, obs: TensorTree) -> Any:
        """Convert NumPy arrays in observations to tensors on the model's device."""
        first_weight = next(model.parameters(), None)

        def to_tensor(leaf: Tensor) -> Any:
            if isinstance(leaf, np.ndarray):
                return self.ops.tensor(leaf, like=first_weight)
            return leaf

        return map_tensors(obs, to_tensor)

    def batch_major(self, rows: Any, steps: int, sequences: int) -> Any:
        """Reorder rows `[T * B, ...]` from time-major to batch-major."""
        # Of anything else, `check_values` says later what is wrong.
        if not isinstance(rows, torch.Tensor) or rows.shape[:1] != (steps * sequences,):
            return rows
        timed = rows.reshape(steps, sequences, *rows.shape[1:])
        return timed.transpose(0, 1).reshape(rows.shape)

    def padding(self, seq_lens: Any, rows: Any) -> Padding | None:
        """Return which rows are padding, or None if there is no padding."""
        return Padding.of(seq_lens, rows)
