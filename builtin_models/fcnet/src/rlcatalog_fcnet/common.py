"""Framework-independent code for the fully connected network.

Each framework's class inherits from this class first and then from the framework's base class for
models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gymnasium import Space

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Tensor
from rlcatalog.models import ModelV2, last_values
from rlcatalog.observations import EmbeddedVector, embedded_vector, scaling_of
from rlcatalog_fcnet.config import plan_layers


class FullyConnected(ModelV2):
    """Dense layers followed by logits and a value.

    `[B, inputs] → hidden layers → logits [B, num_outputs]`, and a value layer that reads the same
    hidden layers or, with `vf_share_layers=False`, a separate stack. When built as a trunk
    (`num_outputs=None`), the network ends with the hidden layers. Ids that the config key
    `embeddings` names are first looked up in tables; a separate stack has separate tables.

    Attributes:
        stack_class: The framework's `DenseStack`.
        outputs_class: The framework's `OutputLayers`.
        input_scaling_class: The framework's `InputScaling`.
        input_embedding_class: The framework's `InputEmbedding`; None if it has none.
    """

    stack_class: Any
    outputs_class: Any
    input_scaling_class: Any
    input_embedding_class: Any = None

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # type: ignore[call-arg]
        width = math.prod(obs_space.shape or ())
        vector = embedded_vector(obs_space, self.model_config)
        if vector is not None:
            width = vector.width
        layers = plan_layers(self.model_config, width, num_outputs)
        self.num_outputs = layers.num_outputs
        self.hidden = self.stack_class(layers.num_inputs, layers.hidden)
        # After the dense layers: `dtype_of` looks at the layers in order and ends at the first
        # weight.
        self.input_scaling: Any = None
        scaling = scaling_of(obs_space, self.model_config)
        if scaling is not None:
            self.input_scaling = self.input_scaling_class(scaling.flat())
        self.input_embedding = self._build_input_embedding(vector)
        self.value_input_embedding: Any = None
        self.value_hidden: Any = None
        self.outputs: Any = None
        #: What the value layer reads, from the last forward pass.
        self._features: Any = None
        if num_outputs is None:
            return
        if not layers.value_shares_hidden:
            # With vf_share_layers=False, the value has its own layers.
            self.value_input_embedding = self._build_input_embedding(vector)
            self.value_hidden = self.stack_class(layers.num_inputs, layers.hidden)
        self.outputs = self.outputs_class(layers)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"]
        if self.input_scaling is not None:
            x = self.input_scaling(x, like=self)  # in the dtype of this model's weights
        inputs = x
        if self.input_embedding is not None:
            inputs = self.input_embedding(x)
        features = self.hidden(inputs)
        output_layers = self.outputs
        if output_layers is None:
            return features, state
        if self.value_hidden is None:
            self._features = features
        else:
            inputs = x
            if self.value_input_embedding is not None:
                inputs = self.value_input_embedding(x)
            self._features = self.value_hidden(inputs)
        return output_layers(features), state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def _build_input_embedding(self, vector: EmbeddedVector | None) -> Any:
        """Return a layer that looks up the ids in encoded observations; None if there are none.

        Raises:
            NotServedError: The framework has no such layer.
        """
        if vector is None:
            return None
        if self.input_embedding_class is None:
            raise NotServedError(
                f"embeddings: the code of fcnet for framework {self.framework!r} has no layer that"
                " looks ids up. Remove embeddings from the config."
            )
        return self.input_embedding_class(vector)
