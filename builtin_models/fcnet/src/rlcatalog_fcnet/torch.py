"""The fully connected network in PyTorch."""

from __future__ import annotations

from rlcatalog_fcnet.common import FullyConnected
from rlcatalog_fcnet.plain import Plain
from rlcatalog_torch import DenseStack, OutputLayers, ScaledInput, TorchModelV2, TorchModules


class FullyConnectedNetwork(FullyConnected, TorchModelV2):
    """Dense layers followed by logits and a value; see `FullyConnected`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
    scaled_class = ScaledInput


class PlainModel(Plain, TorchModules, TorchModelV2):
    """Plain module followed by dense layers, logits and a value; see `Plain`."""

    stack_class, outputs_class = DenseStack, OutputLayers
