"""The diagonal Gaussian in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlcatalog import SpaceInfo
from rlcatalog.distribution import ActionDistribution, same_kind
from rlcatalog_gaussian.plugin import MAX_LOG_STD, size

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagGaussian(ActionDistribution):
    """Independent normal values `[B, d]`; raw actions are unbounded, the adapter brings them into their bounds.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations.
        model: The model that made them, or None.
    """

    framework_of_class = "torch"

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        self.mean, log_std = self.inputs.chunk(2, dim=-1)
        self.log_std = log_std.clamp(-MAX_LOG_STD, MAX_LOG_STD)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return 2d."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    def sample(self) -> Tensor:
        """Draw `[B, d]`, without gradient."""
        with torch.no_grad():
            self.last_sample = self.rsample()
        return self.last_sample

    def rsample(self) -> Tensor:
        """Draw `[B, d]`, reparameterised: mean + std * noise."""
        return torch.addcmul(self.mean, self.log_std.exp(), torch.randn_like(self.mean))

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, d]`."""
        self.last_sample = self.mean
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        # Not from the noise of the draw, which rounding parts from the sample: what is stored must score the same.
        x = torch.as_tensor(actions, dtype=self.mean.dtype, device=self.mean.device).reshape(self.mean.shape)
        z = (x - self.mean) * torch.exp(-self.log_std)
        return -(0.5 * z.square() + self.log_std).sum(dim=-1) - _HALF_LOG_2PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        """Return Σ (log σ + ½ log 2πe), `[B]`."""
        return self.log_std.sum(dim=-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]

    def kl(self, other: Any) -> Tensor:
        """Return the divergence `[B]` between diagonal Gaussians, summed over d."""
        same_kind(self, other)
        ratio = torch.exp(2 * (self.log_std - other.log_std))
        distance = ((self.mean - other.mean) * torch.exp(-other.log_std)).square()
        return (other.log_std - self.log_std + 0.5 * (ratio + distance - 1)).sum(dim=-1)
