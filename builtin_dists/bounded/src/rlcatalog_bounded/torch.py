"""Distributions over bounded values in PyTorch: Beta within bounds, Dirichlet on a simplex."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn.functional import softplus

from rlcatalog.actions import hashable_bound
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
    _expected_log: Tensor | None = None

    def _set(self, concentration: Tensor, excess: Tensor) -> None:
        self.concentration, self.excess = concentration, excess
        self.total = concentration.sum(self.axis, keepdim=True)
        self.log_norm = self.total.lgamma().sum((1, 2)) - concentration.lgamma().sum((1, 2))

    @property
    def expected_log(self) -> Tensor:
        if self._expected_log is None:
            self._expected_log = self.concentration.digamma() - self.total.digamma()
        return self._expected_log


class Beta(BetaBase, _Shares):
    """Independent values `[B, d]` within bounds; see `BetaBase`."""

    def __init__(self, inputs: Any, model: Any = None, low: Any = 0.0, high: Any = 1.0) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        size = parameters.shape[-1] // 2
        clipped = parameters.clamp(-MAX_BETA_INPUT, MAX_BETA_INPUT)
        excess = softplus(clipped).reshape(-1, 2, size)
        self._set(excess + 1, excess)
        ends = hashable_bound(low), hashable_bound(high)
        self.bounds = tensor_interval(*ends, size, parameters.dtype, parameters.device)

    def rsample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, with gradients by implicit reparameterisation."""
        first, second = standard_gamma(self.concentration).unbind(dim=1)
        return torch.addcmul(self.bounds.low, self.bounds.width, first / (first + second))

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, d]`."""
        share = self.concentration[:, 0] / self.total[:, 0]
        self.last_sample = drawn = torch.addcmul(self.bounds.low, self.bounds.width, share)
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        concentration, bounds = self.concentration, self.bounds
        if actions is not self.last_sample:
            actions = torch.as_tensor(
                actions, dtype=concentration.dtype, device=concentration.device
            )
            actions = actions.reshape(concentration.shape[0], concentration.shape[2])
        x = actions.clamp(bounds.lowest, bounds.highest)
        # Score shares by their distances from both bounds, which are exact.
        logs = torch.stack((x - bounds.low, bounds.high - x), dim=1).log() - bounds.log_width
        result: Tensor = (self.excess * logs).sum(dim=(1, 2)) + (self.log_norm - bounds.log_volume)
        return result

    def moment(self, name: str) -> Tensor:
        first, second = self.concentration.unbind(1)
        of_share: Tensor = getattr(distributions.Beta(first, second, validate_args=False), name)
        low, width = self.bounds.low, self.bounds.width
        return (
            of_share * width.square() if name == "variance" else torch.addcmul(low, width, of_share)
        )


class Dirichlet(DirichletBase, _Shares):
    """Points on a simplex, flattened to `[B, rows * n]`; see `DirichletBase`."""

    def __init__(self, inputs: Any, model: Any = None, components: int | None = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        size = parameters.shape[-1]
        components = components or size
        if size % components:
            raise wrong_components(components, size)
        concentration = parameters.clamp(*DIRICHLET_INPUTS).exp() + LEAST_CONCENTRATION
        concentration = concentration.reshape(-1, size // components, components)
        self._set(concentration, concentration - 1)

    def rsample(self) -> Tensor:
        """Draw `[B, rows * n]`, with gradients."""
        # Shares of Gamma values, as logs: Gamma(a) is Gamma(a + 1) * U^(1/a), which may underflow.
        concentration = self.concentration
        exponential = torch.empty_like(concentration).exponential_()
        logs = standard_gamma(concentration + 1).log() - exponential / concentration
        return logs.softmax(dim=-1).flatten(1)

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, rows * n]`."""
        self.last_sample = drawn = (self.concentration / self.total).flatten(1)
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of points `[B, rows * n]`, summed over rows; it is finite
        even on the edges.
        """
        concentration = self.concentration
        actions = torch.as_tensor(actions, dtype=concentration.dtype, device=concentration.device)
        x = actions.reshape(concentration.shape).clamp(_TINY, 1.0)
        logs = x.log() - x.sum(dim=-1, keepdim=True).log()
        result: Tensor = (self.excess * logs).sum(dim=(1, 2)) + self.log_norm
        return result

    def moment(self, name: str) -> Tensor:
        of_rows: Tensor = getattr(
            distributions.Dirichlet(self.concentration, validate_args=False), name
        )
        return of_rows.flatten(1)


#: The smallest share that is scored unchanged, the smallest normal float32.
_TINY = torch.finfo(torch.float32).tiny
