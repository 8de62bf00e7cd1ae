"""The fully connected network in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog_fcnet.common import FullyConnected
from rlcatalog_tf import DenseStack, InputEmbedding, InputScaling, OutputLayers, TFModelV2, tf


class FullyConnectedNetwork(FullyConnected, TFModelV2):
    """Dense layers followed by logits and a value; see `FullyConnected`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
    input_scaling_class = InputScaling
    input_embedding_class = InputEmbedding

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        # The layers compute in float32, whatever the model's inputs are.
        obs_flat = tf.cast(input_dict["obs_flat"], tf.float32)
        return super().forward({"obs_flat": obs_flat}, state, seq_lens)
