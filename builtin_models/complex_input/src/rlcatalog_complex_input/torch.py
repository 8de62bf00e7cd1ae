"""The complex-input network in PyTorch."""

from __future__ import annotations

from torch import nn

from rlcatalog_complex_input.common import ComplexInput
from rlcatalog_torch import OPS, DenseStack, OutputLayers, TorchModelV2, dtype_of


class ComplexInputNetwork(ComplexInput, TorchModelV2):
    """One network for each part of the observation; see `ComplexInput`."""

    ops, stack_class, outputs_class, list_class = OPS, DenseStack, OutputLayers, nn.ModuleList
    dtype_of = staticmethod(dtype_of)
