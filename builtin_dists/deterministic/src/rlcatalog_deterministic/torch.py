"""The deterministic distribution in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog_deterministic.common import DeterministicBase
from rlcatalog_torch import TorchDistribution


class Deterministic(TorchDistribution, DeterministicBase):
    """Point mass: the action equals the inputs `[B, d]`; see `DeterministicBase`."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)

    def logp(self, actions: Any) -> Tensor:
        """Return zeros `[B]` for all actions; rows whose inputs contain NaN yield NaN."""
        return torch.where(
            self.inputs.isnan().any(dim=-1), torch.nan, self.inputs.new_zeros(self.inputs.shape[0])
        )

    def entropy(self) -> Tensor:
        """Return zeros `[B]`, because sampling is deterministic."""
        result: Tensor = self.inputs.new_zeros(self.inputs.shape[0])
        return result

    def moment(self, name: str) -> Tensor:
        return torch.zeros_like(self.inputs) if name == "variance" else self.inputs
