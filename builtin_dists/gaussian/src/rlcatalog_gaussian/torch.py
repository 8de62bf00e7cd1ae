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

    # Computed at first use.
    _std: Tensor | None = None
    _log_volume: Tensor | None = None

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        self.mean, log_std = self.inputs.chunk(2, dim=-1)
        self.log_std = log_std.clamp(-MAX_LOG_STD, MAX_LOG_STD)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return 2d."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    @property
    def std(self) -> Tensor:
        """Standard deviations `[B, d]`."""
        if self._std is None:
            self._std = self.log_std.exp()
        return self._std

    @property
    def log_volume(self) -> Tensor:
        """Sum of the log standard deviations, `[B]`."""
        if self._log_volume is None:
            self._log_volume = self.log_std.sum(dim=-1)
        return self._log_volume

    def sample(self) -> Tensor:
        """Draw `[B, d]`, without gradient."""
        self.last_sample = self.rsample().detach()
        return self.last_sample

    def rsample(self) -> Tensor:
        """Draw `[B, d]`, reparameterised: mean + std * noise."""
        return torch.addcmul(self.mean, self.std, torch.randn_like(self.mean))

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, d]`."""
        self.last_sample = self.mean
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        mean = self.mean
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=mean.dtype, device=mean.device).reshape(mean.shape)
        # Not from the noise of the draw, which rounding parts from the sample: what is stored must score the same.
        z = (actions - mean) / self.std
        return z.square().sum(dim=-1) * -0.5 - (self.log_volume + _HALF_LOG_2PI * mean.shape[-1])

    def entropy(self) -> Tensor:
        """Return Σ (log σ + ½ log 2πe), `[B]`."""
        return self.log_volume + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]

    def kl(self, other: Any) -> Tensor:
        """Return the divergence `[B]` between diagonal Gaussians, summed over d."""
        same_kind(self, other)
        log_ratio = self.log_std - other.log_std
        distance = ((self.mean - other.mean) / other.std).square()
        return (0.5 * (torch.expm1(2 * log_ratio) + distance) - log_ratio).sum(dim=-1)
