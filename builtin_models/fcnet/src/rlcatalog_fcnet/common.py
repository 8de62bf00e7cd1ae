"""Framework-independent code for the fully connected network.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

import math
from typing import Any

from rlcatalog.models import ModelV2, last_values
from rlcatalog.observations import scaling_of
from rlcatalog_fcnet.config import plan


class FullyConnected(ModelV2):
    """Dense layers followed by logits and a value.

    `[B, inputs] → hidden layers → logits [B, num_outputs]`, and a value layer that reads the same
    hidden layers or, with `vf_share_layers=False`, a separate stack. When built as a trunk
    (`num_outputs=None`), the network ends with the hidden layers.

    Attributes:
        stack_class: The framework's `DenseStack`.
        outputs_class: The framework's `OutputLayers`.
        scaled_class: The framework's `ScaledInput`.
    """

    stack_class: Any
    outputs_class: Any
    scaled_class: Any

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        layers = plan(self.model_config, math.prod(obs_space.shape), num_outputs)
        self.num_outputs = layers.outputs
        self.hidden = self.stack_class(layers.inputs, layers.hidden)
        # After the dense layers, because a model's dtype is found at once in a first layer with
        # weights.
        scaling = scaling_of(obs_space, self.model_config)
        self.scaled = None if scaling is None else self.scaled_class(scaling.flat())
        self.value_hidden = self.outputs = None
        self._features: Any = None
        if num_outputs is not None:
            if not layers.share:
                self.value_hidden = self.stack_class(layers.inputs, layers.hidden)
            self.outputs = self.outputs_class(layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"]
        if self.scaled is not None:
            x = self.scaled(x, like=self)
        features, outputs = self.hidden(x), self.outputs
        if outputs is None:
            return features, state
        self._features = features if self.value_hidden is None else self.value_hidden(x)
        return outputs(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)
