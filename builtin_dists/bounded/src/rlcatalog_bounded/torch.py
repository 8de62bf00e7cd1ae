"""Distributions over bounded values in PyTorch: Beta within bounds, Dirichlet on a simplex."""

from __future__ import annotations

import torch
from torch import Tensor, distributions
from torch.nn.functional import softplus

from rlcatalog import ModelV2
from rlcatalog.actions import hashable_bound
from rlcatalog.frameworks import Array
from rlcatalog_bounded.common import (
    BetaBase,
    DirichletBase,
    SharesBase,
    wrong_components,
)
from rlcatalog_bounded.plugin import DIRICHLET_INPUTS, LEAST_CONCENTRATION, MAX_BETA_INPUT
from rlcatalog_torch import TorchDistribution, tensor_interval, to_float32_at_least
from rlcatalog_torch.private_api import standard_gamma


class _Shares(TorchDistribution, SharesBase):
    """Code shared by Beta and Dirichlet; see `SharesBase`."""

    concentration: Tensor
    #: Sum of the concentrations of each distribution.
    total: Tensor
    log_norm: Tensor
    last_sample: Tensor
    # The result of `expected_log`, computed on first use.
    _expected_log: Tensor | None = None

    def _set_concentration(self, concentration: Tensor, excess: Tensor) -> None:
        """Set the concentrations, and what all calls need of them; `excess` is
        `concentration - 1`.
        """
        self.concentration = concentration
        self.excess = excess
        self.total = concentration.sum(self.axis, keepdim=True)
        self.log_norm = self.total.lgamma().sum((1, 2)) - concentration.lgamma().sum((1, 2))

    @property
    def expected_log(self) -> Tensor:
        if self._expected_log is None:
            self._expected_log = self.concentration.digamma() - self.total.digamma()
        return self._expected_log


class Beta(BetaBase, _Shares):
    """Independent values `[B, d]` within bounds; see `BetaBase`."""

    def __init__(
        self,
        inputs: Tensor | Array,
        model: ModelV2 | None = None,
        low: float | bytes | Array = 0.0,
        high: float | bytes | Array = 1.0,
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)
        parameters = to_float32_at_least(inputs)
        size = parameters.shape[-1] // 2
        clipped = parameters.clamp(-MAX_BETA_INPUT, MAX_BETA_INPUT)
        # Both concentrations of a value are above 1, so that its density has at most one peak.
        excess = softplus(clipped).reshape(-1, 2, size)
        self._set_concentration(concentration=excess + 1, excess=excess)
        # Hashable, because the interval between two bounds is computed once and cached.
        self.bounds = tensor_interval(
            hashable_bound(low), hashable_bound(high), size, parameters.dtype, parameters.device
        )

    def rsample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, with gradients by implicit reparameterisation."""
        first, second = standard_gamma(self.concentration).unbind(dim=1)
        share = first / (first + second)
        return torch.addcmul(self.bounds.low, self.bounds.width, share)

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, d]`."""
        share = self.concentration[:, 0] / self.total[:, 0]
        self.last_sample = torch.addcmul(self.bounds.low, self.bounds.width, share)
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        concentration = self.concentration
        bounds = self.bounds
        # The last sample has the right type and shape already.
        if actions is not self.last_sample:
            actions = torch.as_tensor(
                actions, dtype=concentration.dtype, device=concentration.device
            )
            actions = actions.reshape(concentration.shape[0], concentration.shape[2])
        x = actions.clamp(bounds.lowest, bounds.highest)
        # Score shares by their distances from both bounds, which are exact.
        distances = torch.stack((x - bounds.low, bounds.high - x), dim=1)
        log_shares = distances.log() - bounds.log_width
        constant = self.log_norm - bounds.log_volume
        return (self.excess * log_shares).sum(dim=(1, 2)) + constant  # type: ignore[no-any-return]

    def moment(self, name: str) -> Tensor:
        """Return the mean, the variance or the mode within the bounds."""
        first, second = self.concentration.unbind(1)
        shares = distributions.Beta(first, second, validate_args=False)
        # PyTorch's distribution has each moment as a property of this name.
        moment: Tensor = getattr(shares, name)
        if name == "variance":
            return moment * self.bounds.width.square()  # type: ignore[no-any-return]
        return torch.addcmul(self.bounds.low, self.bounds.width, moment)


class Dirichlet(DirichletBase, _Shares):
    """Points on a simplex, flattened to `[B, rows * n]`; see `DirichletBase`."""

    def __init__(
        self, inputs: Tensor | Array, model: ModelV2 | None = None, components: int | None = None
    ) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs, model)
        parameters = to_float32_at_least(inputs)
        size = parameters.shape[-1]
        components = components or size  # by default, all shares sum to 1
        if size % components:
            raise wrong_components(components, size)
        lowest, highest = DIRICHLET_INPUTS
        concentration = parameters.clamp(lowest, highest).exp() + LEAST_CONCENTRATION
        concentration = concentration.reshape(-1, size // components, components)
        self._set_concentration(concentration, excess=concentration - 1)

    def rsample(self) -> Tensor:
        """Draw `[B, rows * n]`, with gradients."""
        # A share is a Gamma value divided by their sum, here as logs: for small concentrations a,
        # Gamma(a) may underflow, and it is Gamma(a + 1) * U^(1/a), with U uniform in [0, 1).
        concentration = self.concentration
        exponential = torch.empty_like(concentration).exponential_()
        logs = standard_gamma(concentration + 1).log() - exponential / concentration
        return logs.softmax(dim=-1).flatten(1)

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, rows * n]`."""
        self.last_sample = (self.concentration / self.total).flatten(1)
        return self.last_sample

    def logp(self, actions: Tensor | Array) -> Tensor:
        """Return the log density `[B]` of points `[B, rows * n]`, summed over rows; it is finite
        even on the edges.
        """
        concentration = self.concentration
        actions = torch.as_tensor(actions, dtype=concentration.dtype, device=concentration.device)
        x = actions.reshape(concentration.shape).clamp(_TINY, 1.0)
        # Each row is divided by its sum, because stored shares may not add up to 1 exactly.
        log_shares = x.log() - x.sum(dim=-1, keepdim=True).log()
        return (self.excess * log_shares).sum(dim=(1, 2)) + self.log_norm  # type: ignore[no-any-return]

    def moment(self, name: str) -> Tensor:
        """Return the mean, the variance or the mode of each row, `[B, rows * n]`."""
        rows = distributions.Dirichlet(self.concentration, validate_args=False)
        # PyTorch's distribution has each moment as a property of this name.
        moment: Tensor = getattr(rows, name)
        return moment.flatten(1)


#: The smallest share that is scored unchanged, the smallest normal float32.
_TINY = torch.finfo(torch.float32).tiny
