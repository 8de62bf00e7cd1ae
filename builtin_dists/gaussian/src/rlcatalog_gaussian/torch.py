"""The Gaussians in PyTorch: unbounded, and squashed into bounds."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn.functional import softplus

from rlcatalog.actions import hashable_bound
from rlcatalog_gaussian.common import (
    DiagGaussianBase,
    NormalsBase,
    SquashedGaussianBase,
)
from rlcatalog_gaussian.config import clipping, squashed_clipping
from rlcatalog_gaussian.plugin import DIVERGENCE_LIMITS, MAX_LOG_STD, MAX_SQUASHED_MEAN
from rlcatalog_torch import HALF, LOWEST, TorchDistribution, tensor_interval, to_float32_at_least
from rlcatalog_torch.private_api import version_of

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class _Normals(TorchDistribution, NormalsBase):
    """Normal values `[B, d]`: their means, log standard deviations and standard deviations."""

    mean: Tensor
    log_std: Tensor
    std: Tensor

    def divergence(self, other: Any) -> Tensor:
        # Factors are passed to operations, because a separate multiplication takes as long as two
        # others.
        log_ratio = self.log_std - other.log_std
        most, farthest = DIVERGENCE_LIMITS[log_ratio.element_size()]
        z = ((self.mean - other.mean) / other.std).clamp(-farthest, farthest)
        terms = torch.sub(
            log_ratio, torch.expm1((log_ratio + log_ratio).clamp(max=most)), alpha=0.5
        )
        return -torch.addcmul(terms, z, z, value=-0.5).sum(-1).maximum(LOWEST[terms.dtype])


class DiagGaussian(_Normals, DiagGaussianBase):
    """Independent normal values `[B, d]`, unbounded; see `DiagGaussianBase`."""

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        self.inputs = inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        self.model = model
        if inputs.dtype in HALF:
            inputs = inputs.float()
        self.mean, log_std = inputs.chunk(2, -1)
        if log_std_min is None and log_std_max is None:
            self.log_std = log_std.clamp(-MAX_LOG_STD, MAX_LOG_STD)
        else:
            self.log_std = log_std.clamp(
                *clipping(log_std_min, log_std_max, -MAX_LOG_STD, MAX_LOG_STD)
            )
        self.std = self.log_std.exp()

    def rsample(self) -> Tensor:
        """Draw `[B, d]` with reparameterisation: mean + std * noise."""
        return torch.addcmul(self.mean, self.std, torch.randn_like(self.mean))

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        mean = self.mean
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=mean.dtype, device=mean.device).reshape(
                mean.shape
            )
        # Do not use the draw's noise: it differs from the sample by rounding, and the stored sample
        # must score the same.
        z = (actions - mean) / self.std
        return (
            -torch.addcmul(self.log_std, z, z, value=0.5).sum(-1) - _HALF_LOG_2PI * mean.shape[-1]
        )

    def entropy(self) -> Tensor:
        """Return the entropy Σ (log σ + ½ log 2πe), `[B]`."""
        return self.log_std.sum(-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]

    def as_torch(self) -> distributions.Distribution:
        return distributions.Independent(
            distributions.Normal(self.mean, self.std, validate_args=False), 1
        )


class SquashedGaussian(_Normals, SquashedGaussianBase):
    """Independent normal values, squashed into bounds; see `SquashedGaussianBase`."""

    # The last reparameterised draw: action, its version, normal value, noise.
    _drawn: tuple[Tensor, int, Tensor, Tensor] | None = None

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        low: Any = -1.0,
        high: Any = 1.0,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        mean, log_std = to_float32_at_least(self.inputs).chunk(2, -1)
        least, most = squashed_clipping(log_std_min, log_std_max)
        self.mean, self.log_std = (
            mean.clamp(-MAX_SQUASHED_MEAN, MAX_SQUASHED_MEAN),
            log_std.clamp(least, most),
        )
        self.std = self.log_std.exp()
        ends = hashable_bound(low), hashable_bound(high)
        self.bounds = tensor_interval(*ends, mean.shape[-1], mean.dtype, mean.device)

    def sample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, without gradients."""
        normal = torch.addcmul(self.mean, self.std, torch.randn_like(self.mean))
        self.last_sample = drawn = self._squash(normal).detach()
        return drawn

    def rsample(self) -> Tensor:
        """Draw `[B, d]` within the bounds with reparameterisation: mean + std * noise, then
        squashed.
        """
        noise = torch.randn_like(self.mean)
        normal = torch.addcmul(self.mean, self.std, noise)
        action = self._squash(normal)
        if action.requires_grad:
            self._drawn = action, version_of(action), normal, noise
        return action

    def deterministic_sample(self) -> Tensor:
        """Return the squashed means `[B, d]`, which are the medians."""
        self.last_sample = drawn = self._squash(self.mean)
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        if (
            self._drawn is not None
            and actions is self._drawn[0]
            and version_of(actions) == self._drawn[1]
        ):
            return self._logp_of_draw(*self._drawn[2:])
        mean, bounds = self.mean, self.bounds
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=mean.dtype, device=mean.device).reshape(
                mean.shape
            )
        x = actions.clamp(bounds.lowest, bounds.highest)
        # With the two distances, u = (log below - log above) / 2 and da/du = 2 below * above /
        # width: the differences are exact, while tanh's inverse would lose precision near a bound.
        below, above = (x - bounds.low).log(), (bounds.high - x).log()
        twice_z = torch.sub(below - above, mean, alpha=2) / self.std
        terms = torch.addcmul(below + above + self.log_std, twice_z, twice_z, value=0.125)
        result: Tensor = (
            bounds.log_volume - (_HALF_LOG_2PI + _LOG_2) * mean.shape[-1]
        ) - terms.sum(dim=-1)
        return result

    def entropy_estimate(self) -> Tensor:
        """Return an unbiased estimate `[B]`: minus the log density of a new sample, with its
        gradient.
        """
        noise = torch.randn_like(self.mean)
        return -self._logp_of_draw(torch.addcmul(self.mean, self.std, noise), noise)

    def _squash(self, normal: Tensor) -> Tensor:
        # (tanh(u) + 1) / 2 is the logistic function of 2u, which keeps its precision near the lower
        # bound.
        return torch.addcmul(self.bounds.low, self.bounds.width, torch.sigmoid(normal + normal))

    def _logp_of_draw(self, normal: Tensor, noise: Tensor) -> Tensor:
        # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), finite for every u.
        jacobian = 2 * (_LOG_2 - normal - softplus(-2 * normal))
        terms = 0.5 * noise.square() + self.log_std + jacobian
        result: Tensor = -terms.sum(dim=-1) - (
            self.bounds.log_volume + (_HALF_LOG_2PI - _LOG_2) * normal.shape[-1]
        )
        return result
