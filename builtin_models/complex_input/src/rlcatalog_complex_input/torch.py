"""The complex-input network in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlcatalog_complex_input.network import ComplexInput
from rlcatalog_complex_input.plans import OneHot
from rlcatalog_torch import OPS, DenseStack, OutputLayers, TorchModelV2, dtype_of, flatten_rows


class _Hot(nn.Module):
    """One-hots of integers `[N, *shape]`, as `[N, n]`."""

    def __init__(self, hot: OneHot) -> None:
        super().__init__()
        self.entries: Tensor
        self.values: Tensor
        self.register_buffer("entries", torch.from_numpy(hot.entries), persistent=False)
        self.register_buffer("values", torch.from_numpy(hot.values), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Set one column per entry."""
        return torch.eq(flatten_rows(x)[:, self.entries], self.values).float()


class ComplexInputNetwork(ComplexInput, TorchModelV2):
    """A net for each part of the observation; see `ComplexInput`."""

    ops, stack_class, outputs_class = OPS, DenseStack, OutputLayers
    list_class, one_hot_class = nn.ModuleList, _Hot

    def _dtype(self) -> torch.dtype:
        return dtype_of(self)
