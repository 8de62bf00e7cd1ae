"""The fully connected network in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlcatalog.errors import StaleOutputError
from rlcatalog.neutral import output_spec
from rlcatalog.torch.model import TorchModelV2
from rlcatalog.torch.nn import DenseStack, FreeLogStd, activation, dense
from rlcatalog_fcnet.config import plan


class FullyConnectedNetwork(TorchModelV2):
    """Dense layers, then logits and a value.

    `[B, inputs] → hidden layers → logits [B, num_outputs]`, and a value layer that reads the same hidden layers or,
    with `vf_share_layers=False`, a stack of its own. Built as a trunk (`num_outputs=None`) it ends with the hidden
    layers.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: Any, name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        layers = plan(self.model_config, math.prod(obs_space.shape), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = DenseStack(layers.inputs, layers.hidden)
        self.logits = self.free_log_std = self.value_hidden = self.value = None
        self._features: Tensor | None = None
        if layers.logits is None:
            return
        self.logits = dense(self.hidden.outputs, layers.logits)
        self._logits_activation = activation(layers.logits.activation)
        if layers.free_log_std:
            self.free_log_std = FreeLogStd(layers.free_log_std)
        if not layers.share:
            self.value_hidden = DenseStack(layers.inputs, layers.hidden)
        self.value = dense(self.hidden.outputs, output_spec(1))

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"]
        if x.dtype is not torch.float32:
            x = x.float()
        features, logits = self.hidden(x), self.logits
        if logits is None:
            return features, state
        self._features = features if self.value_hidden is None else self.value_hidden(x)
        output = logits(features)
        if self._logits_activation is not None:
            output = self._logits_activation(output)
        if self.free_log_std is not None:
            output = self.free_log_std(output)
        return output, state

    def value_function(self) -> Tensor:
        """Return the value estimates `[B]` of the last forward pass."""
        if self._features is None:
            reason = "it was built as a trunk" if self.logits is None else "call the model first"
            raise StaleOutputError(f"FullyConnectedNetwork has no value estimate: {reason}.")
        return self.value(self._features).squeeze(1)
