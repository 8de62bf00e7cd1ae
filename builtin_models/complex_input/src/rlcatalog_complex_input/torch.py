"""The complex-input network in PyTorch."""

from __future__ import annotations

from torch import nn

from rlcatalog_complex_input.common import ComplexInput
from rlcatalog_torch import OPS, DenseStack, OutputLayers, TorchModelV2, dtype_of


class ComplexInputNetwork(ComplexInput, TorchModelV2):
    """One network for each part of the observation; see `ComplexInput`."""

    ops = OPS
    stack_class = DenseStack
    outputs_class = OutputLayers
    list_class = nn.ModuleList
    dtype_of = staticmethod(dtype_of)
