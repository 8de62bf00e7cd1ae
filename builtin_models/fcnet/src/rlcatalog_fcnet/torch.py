"""The fully connected network in PyTorch."""

from __future__ import annotations

from rlcatalog_fcnet.common import FullyConnected
from rlcatalog_torch import DenseStack, InputEmbedding, InputScaling, OutputLayers, TorchModelV2


class FullyConnectedNetwork(FullyConnected, TorchModelV2):
    """Dense layers followed by logits and a value; see `FullyConnected`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
    input_scaling_class = InputScaling
    input_embedding_class = InputEmbedding
