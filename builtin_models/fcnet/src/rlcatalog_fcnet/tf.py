"""The fully connected network in TensorFlow."""

from __future__ import annotations

import math
from typing import Any

from rlcatalog.models import last_values
from rlcatalog_fcnet.config import plan
from rlcatalog_tf import DenseStack, OutputLayers, TFModelV2, tf


class FullyConnectedNetwork(TFModelV2):
    """Dense layers, then logits and a value; the structure is the PyTorch network's, name by name."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int | None, model_config: Any, name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        layers = plan(self.model_config, math.prod(obs_space.shape), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = DenseStack(layers.inputs, layers.hidden)
        self.value_hidden = self.outputs = None
        self._features: Any = None
        if num_outputs is not None:
            if not layers.share:
                self.value_hidden = DenseStack(layers.inputs, layers.hidden)
            self.outputs = OutputLayers(layers)

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        features = self.hidden(x)
        if self.outputs is None:
            return features, state
        self._features = features if self.value_hidden is None else self.value_hidden(x)
        return self.outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)
