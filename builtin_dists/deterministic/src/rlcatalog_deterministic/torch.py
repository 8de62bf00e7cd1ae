"""The deterministic distribution in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcatalog import ModelV2
from rlcatalog.frameworks import Array
from rlcatalog_deterministic.common import DeterministicBase
from rlcatalog_torch import TorchDistribution


class Deterministic(TorchDistribution, DeterministicBase):
    """Point mass: the action equals the inputs `[B, d]`; see `DeterministicBase`."""

    def __init__(self, inputs: Tensor | Array, model: ModelV2 | None = None) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return zeros `[B]` for all actions; rows whose inputs contain NaN yield NaN."""
        has_nan = self.inputs.isnan().any(dim=-1)
        zeros = self.inputs.new_zeros(self.inputs.shape[0])
        return torch.where(has_nan, torch.nan, zeros)

    def entropy(self) -> Tensor:
        """Return zeros `[B]`, because sampling is deterministic."""
        return self.inputs.new_zeros(self.inputs.shape[0])  # type: ignore[no-any-return]

    def moment(self, name: str) -> Tensor:
        """Return the point as mean and mode, and a variance of 0."""
        if name == "variance":
            return torch.zeros_like(self.inputs)
        return self.inputs  # type: ignore[no-any-return]
