"""The fully connected network in PyTorch."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from rlcatalog.models import last_values
from rlcatalog_fcnet.config import plan
from rlcatalog_torch import DenseStack, OutputLayers, TorchModelV2


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
        self.value_hidden = self.outputs = None
        self._features: Tensor | None = None
        if num_outputs is not None:
            if not layers.share:
                self.value_hidden = DenseStack(layers.inputs, layers.hidden)
            self.outputs = OutputLayers(layers)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"]
        features, outputs = self.hidden(x), self.outputs
        if outputs is None:
            return features, state
        self._features = features if self.value_hidden is None else self.value_hidden(x)
        output: Tensor = outputs(features)
        return output, state

    def value_function(self) -> Tensor:
        """Return the value estimates `[B]` of the last forward pass."""
        values: Tensor = last_values(self, self._features)
        return values
