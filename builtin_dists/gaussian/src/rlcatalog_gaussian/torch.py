"""The Gaussians in PyTorch: unbounded, and squashed into bounds."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor, distributions
from torch.nn.functional import softplus

from rlcatalog import ModelV2
from rlcatalog.actions import hashable_bound
from rlcatalog.frameworks import Array
from rlcatalog_gaussian.common import (
    DiagGaussianBase,
    NormalsBase,
    SquashedGaussianBase,
)
from rlcatalog_gaussian.config import clip_range, squashed_clip_range
from rlcatalog_gaussian.numeric_limits import DIVERGENCE_LIMITS, MAX_LOG_STD, MAX_SQUASHED_MEAN
from rlcatalog_torch import HALF, TorchDistribution, limits_of, tensor_interval, to_float32_at_least
from rlcatalog_torch.private_api import version_of

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class _Normals(TorchDistribution, NormalsBase):
    """Normal values `[B, d]`: their means, log standard deviations and standard deviations."""

    mean: Tensor
    log_std: Tensor
    std: Tensor
    last_sample: Tensor

    def divergence(self, other: Self) -> Tensor:
        """Return the sum of (r² - 1) / 2 - log r + z² / 2, `[B]`, where r is the ratio of the
        standard deviations, and z the distance of the means in the other's standard deviations.
        """
        log_ratio = self.log_std - other.log_std
        max_exponent, max_distance = DIVERGENCE_LIMITS[log_ratio.element_size()]
        z = ((self.mean - other.mean) / other.std).clamp(-max_distance, max_distance)
        ratio_squared_minus_1 = torch.expm1((log_ratio + log_ratio).clamp(max=max_exponent))
        # `alpha` and `value` are factors; a separate multiplication would take as long as two of
        # these operations.
        terms = torch.sub(log_ratio, ratio_squared_minus_1, alpha=0.5)
        negative = torch.addcmul(terms, z, z, value=-0.5).sum(-1)
        return -negative.maximum(limits_of(terms).lowest)


class DiagGaussian(_Normals, DiagGaussianBase):
    """Independent normal values `[B, d]`, unbounded; see `DiagGaussianBase`."""

    def __init__(
        self,
        inputs: Tensor | Array,
        model: ModelV2 | None = None,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        self.inputs = inputs
        self.model = model
        if inputs.dtype in HALF:
            inputs = inputs.float()
        self.mean, log_std = inputs.chunk(2, -1)
        if log_std_min is None and log_std_max is None:
            self.log_std = log_std.clamp(-MAX_LOG_STD, MAX_LOG_STD)
        else:
            lowest, highest = clip_range(
                log_std_min, log_std_max, least=-MAX_LOG_STD, most=MAX_LOG_STD
            )
            self.log_std = log_std.clamp(lowest, highest)
        self.std = self.log_std.exp()

    def rsample(self) -> Tensor:
        """Draw `[B, d]` with reparameterisation: mean + std * noise."""
        return torch.addcmul(self.mean, self.std, torch.randn_like(self.mean))

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        mean = self.mean
        # The last sample has the right type and shape already.
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=mean.dtype, device=mean.device)
            actions = actions.reshape(mean.shape)
        # Do not use the draw's noise: it differs from the sample by rounding, and the stored sample
        # must score the same.
        z = (actions - mean) / self.std
        negative = torch.addcmul(self.log_std, z, z, value=0.5).sum(-1)
        return -negative - _HALF_LOG_2PI * mean.shape[-1]

    def entropy(self) -> Tensor:
        """Return the entropy Σ (log σ + ½ log 2πe), `[B]`."""
        return self.log_std.sum(-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]

    def as_torch(self) -> distributions.Distribution:
        """Return the distribution of PyTorch with the same parameters."""
        normals = distributions.Normal(self.mean, self.std, validate_args=False)
        return distributions.Independent(normals, 1)


class _Draw(NamedTuple):
    """A reparameterised draw.

    Attributes:
        action: The squashed action.
        version: Version of the action's memory, which changes when the action is overwritten.
        normal: The normal value from which the action was computed.
        noise: The standard normal value from which the normal value was computed.
    """

    action: Tensor
    version: int
    normal: Tensor
    noise: Tensor


class SquashedGaussian(_Normals, SquashedGaussianBase):
    """Independent normal values, squashed into bounds; see `SquashedGaussianBase`."""

    #: The last result of `rsample` that has a gradient; `logp` scores it from its normal value.
    _last_draw: _Draw | None = None

    def __init__(
        self,
        inputs: Tensor | Array,
        model: ModelV2 | None = None,
        low: float | bytes | Array = -1.0,
        high: float | bytes | Array = 1.0,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)
        mean, log_std = to_float32_at_least(inputs).chunk(2, -1)
        lowest, highest = squashed_clip_range(log_std_min, log_std_max)
        self.mean = mean.clamp(-MAX_SQUASHED_MEAN, MAX_SQUASHED_MEAN)
        self.log_std = log_std.clamp(lowest, highest)
        self.std = self.log_std.exp()
        # Hashable, because the interval between two bounds is computed once and cached.
        self.bounds = tensor_interval(
            hashable_bound(low), hashable_bound(high), mean.shape[-1], mean.dtype, mean.device
        )

    def sample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, without gradients."""
        normal = torch.addcmul(self.mean, self.std, torch.randn_like(self.mean))
        self.last_sample = self._squash(normal).detach()
        return self.last_sample

    def rsample(self) -> Tensor:
        """Draw `[B, d]` within the bounds with reparameterisation: mean + std * noise, then
        squashed.
        """
        noise = torch.randn_like(self.mean)
        normal = torch.addcmul(self.mean, self.std, noise)
        action = self._squash(normal)
        if action.requires_grad:
            self._last_draw = _Draw(action, version_of(action), normal, noise)
        return action

    def deterministic_sample(self) -> Tensor:
        """Return the squashed means `[B, d]`, which are the medians."""
        self.last_sample = self._squash(self.mean)
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        draw = self._last_draw
        if draw is not None and actions is draw.action:
            # PyTorch counts a tensor's in-place changes in its version.
            is_unchanged = version_of(draw.action) == draw.version
            if is_unchanged:
                return self._logp_of_draw(draw.normal, draw.noise)
        mean = self.mean
        bounds = self.bounds
        # The last sample has the right type and shape already.
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=mean.dtype, device=mean.device)
            actions = actions.reshape(mean.shape)
        x = actions.clamp(bounds.lowest, bounds.highest)
        # With the distances of x from the bounds, u = (log below - log above) / 2 and
        # dx/du = 2 below * above / width. The distances are exact, while tanh's inverse would lose
        # precision near a bound.
        log_below = (x - bounds.low).log()
        log_above = (bounds.high - x).log()
        twice_z = torch.sub(log_below - log_above, mean, alpha=2) / self.std
        terms = torch.addcmul(log_below + log_above + self.log_std, twice_z, twice_z, value=0.125)
        constant = bounds.log_volume - (_HALF_LOG_2PI + _LOG_2) * mean.shape[-1]
        return constant - terms.sum(dim=-1)  # type: ignore[no-any-return]

    def entropy_estimate(self) -> Tensor:
        """Return an unbiased estimate `[B]`: minus the log density of a new sample, with its
        gradient.
        """
        noise = torch.randn_like(self.mean)
        normal = torch.addcmul(self.mean, self.std, noise)
        return -self._logp_of_draw(normal, noise)

    def _squash(self, normal: Tensor) -> Tensor:
        # (tanh(u) + 1) / 2 is the logistic function of 2u, which keeps its precision near the lower
        # bound.
        share = torch.sigmoid(normal + normal)
        return torch.addcmul(self.bounds.low, self.bounds.width, share)

    def _logp_of_draw(self, normal: Tensor, noise: Tensor) -> Tensor:
        """Return the log density `[B]` of the action that was squashed from a normal value."""
        # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), finite for every u.
        log_jacobian = 2 * (_LOG_2 - normal - softplus(-2 * normal))
        terms = 0.5 * noise.square() + self.log_std + log_jacobian
        constant = self.bounds.log_volume + (_HALF_LOG_2PI - _LOG_2) * normal.shape[-1]
        return -terms.sum(dim=-1) - constant  # type: ignore[no-any-return]
