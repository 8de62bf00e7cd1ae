"""Distributions over bounded values in PyTorch: Beta within bounds, Dirichlet on a simplex."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, Interval, frozen, interval, read_bounds, same_kind
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.torch import widened
from rlcatalog_bounded.plugin import (
    DIRICHLET_INPUTS,
    LEAST_CONCENTRATION,
    MAX_BETA_INPUT,
    beta_size,
    dirichlet_size,
)


class _Shares(ActionDistribution):
    """Shares that sum to 1 along `axis` of `concentration`, a tensor of rank 3; what Beta and Dirichlet have in common.

    Attributes:
        concentration: `[B, 2, d]` (Beta, axis 1) or `[B, rows, n]` (Dirichlet, axis 2), positive.
    """

    framework_of_class = "torch"
    axis = 1

    concentration: Tensor
    # Computed at first use.
    _excess: Tensor | None = None
    _total: Tensor | None = None
    _log_norm: Tensor | None = None
    _expected_log: Tensor | None = None

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return the inputs as they are: no part could be forbidden, the mask is `[B, 0]`."""
        if mask.shape[-1]:
            raise NotServedError(f"{cls.__name__} takes no action mask, found one of {mask.shape[-1]} columns.")
        return inputs

    @property
    def excess(self) -> Tensor:
        """Concentrations less 1."""
        if self._excess is None:
            self._excess = self.concentration - 1
        return self._excess

    @property
    def total(self) -> Tensor:
        """Sum of the concentrations that belong together."""
        if self._total is None:
            self._total = self.concentration.sum(dim=self.axis, keepdim=True)
        return self._total

    @property
    def log_norm(self) -> Tensor:
        """Log of what normalises the density of the shares, `[B]`."""
        if self._log_norm is None:
            self._log_norm = self.total.lgamma().sum(dim=(1, 2)) - self.concentration.lgamma().sum(dim=(1, 2))
        return self._log_norm

    @property
    def expected_log(self) -> Tensor:
        """Expected logs of the shares, in the shape of the concentrations."""
        if self._expected_log is None:
            self._expected_log = self.concentration.digamma() - self.total.digamma()
        return self._expected_log

    def entropy(self) -> Tensor:
        """Return the entropy of the shares, `[B]`."""
        return -self.log_norm - (self.excess * self.expected_log).sum(dim=(1, 2))

    def kl(self, other: Any) -> Tensor:
        """Return the divergence `[B]`, summed over all that is independent.

        Raises:
            ModelContractError: The other distribution is of another kind, shape or interval.
        """
        same_kind(self, other)
        difference = self.concentration - other.concentration
        result: Tensor = self.log_norm - other.log_norm + (difference * self.expected_log).sum(dim=(1, 2))
        return result


class Beta(_Shares):
    """Independent values `[B, d]` within bounds: `low + y * (high - low)` with y from a Beta distribution.

    Both concentrations are `1 + softplus(input)`, inputs cut off at ±100, so the density has one mode or is flat.
    `logp` is the true density, scale included. At a bound, an action is scored as the nearest float32 inside. The
    deterministic action is the mean.

    Args:
        inputs: `[B, 2d]`: d first concentrations (towards high), d second ones, both before the softplus. Half
            precisions are widened to float32.
        model: The model that made them, or None.
        low: Lower bounds, a number or `[d]`.
        high: Upper bounds, a number or `[d]`.
    """

    raw_kind = "bounded"

    def __init__(self, inputs: Any, model: Any = None, low: Any = 0.0, high: Any = 1.0) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        parameters = widened(self.inputs)
        size = parameters.shape[-1] // 2
        clipped = parameters.clamp(-MAX_BETA_INPUT, MAX_BETA_INPUT)
        self._excess = softplus(clipped).reshape(-1, 2, size)
        self.concentration = self._excess + 1
        self.bounds = _bounds(frozen(low), frozen(high), size, parameters.dtype, parameters.device)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return 2d."""
        return beta_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the bounds, float32 `[d]`."""
        low, high = read_bounds(action, cls.__name__)
        return {"low": low, "high": high}

    def sample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, without gradient."""
        self.last_sample = drawn = self.rsample().detach()
        return drawn

    def rsample(self) -> Tensor:
        """Draw `[B, d]` within the bounds, with gradients by implicit reparameterisation."""
        first, second = torch._standard_gamma(self.concentration).unbind(dim=1)
        return torch.addcmul(self.bounds.low, self.bounds.width, first / (first + second))

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, d]`."""
        share = self.concentration[:, 0] / self.total[:, 0]
        self.last_sample = drawn = torch.addcmul(self.bounds.low, self.bounds.width, share)
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of values `[B, d]`, summed over d; finite at the bounds and beyond."""
        concentration, bounds = self.concentration, self.bounds
        if actions is not self.last_sample:
            actions = torch.as_tensor(actions, dtype=concentration.dtype, device=concentration.device)
            actions = actions.reshape(concentration.shape[0], concentration.shape[2])
        x = actions.clamp(bounds.lowest, bounds.highest)
        # Shares are scored by their distances from both bounds, which are exact.
        logs = torch.stack((x - bounds.low, bounds.high - x), dim=1).log() - bounds.log_width
        result: Tensor = (self.excess * logs).sum(dim=(1, 2)) + (self.log_norm - bounds.log_volume)
        return result

    def entropy(self) -> Tensor:
        """Return the entropy `[B]`, summed over d."""
        result: Tensor = super().entropy() + self.bounds.log_volume
        return result

    def kl(self, other: Any) -> Tensor:
        same_kind(self, other)
        if self.bounds is not other.bounds and not all(
            torch.equal(getattr(self.bounds, name), getattr(other.bounds, name)) for name in ("low", "high")
        ):
            raise ModelContractError("Beta.kl() takes a distribution with the same bounds.")
        return super().kl(other)


class Dirichlet(_Shares):
    """Points of a simplex, flat `[B, rows * n]`: each row of n values is positive and sums to 1.

    Concentrations are `exp(input) + 1e-7`, inputs cut off at -16 and 7. The density is that of the first n - 1 values
    of a row, as usual. The deterministic action is the mean (RLlib's, the softmax of the concentrations, is not).

    Args:
        inputs: `[B, rows * n]`: logs of the concentrations. Half precisions are widened to float32.
        model: The model that made them, or None.
        components: n, the size of the simplex's last axis; all values are one row when None.
    """

    raw_kind = "values"
    axis = 2

    def __init__(self, inputs: Any, model: Any = None, components: int | None = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        parameters = widened(self.inputs)
        size = parameters.shape[-1]
        components = components or size
        if size % components:
            raise ConfigError(f"components must divide the number of inputs, found {components} and {size}.")
        concentration = parameters.clamp(*DIRICHLET_INPUTS).exp() + LEAST_CONCENTRATION
        self.concentration = concentration.reshape(-1, size // components, components)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the number of values."""
        return dirichlet_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the size of the last axis, for a Simplex of several rows."""
        shape = action.shape or ()
        return {"components": shape[-1]} if math.prod(shape[:-1]) > 1 else {}

    def sample(self) -> Tensor:
        """Draw `[B, rows * n]`, without gradient."""
        self.last_sample = drawn = self.rsample().detach()
        return drawn

    def rsample(self) -> Tensor:
        """Draw `[B, rows * n]`, with gradients."""
        # Shares of Gamma values, as logs: Gamma(a) is Gamma(a + 1) * U^(1/a), which may be smaller than any number.
        concentration = self.concentration
        exponential = torch.empty_like(concentration).exponential_()
        logs = torch._standard_gamma(concentration + 1).log() - exponential / concentration
        return logs.softmax(dim=-1).flatten(1)

    def deterministic_sample(self) -> Tensor:
        """Return the means `[B, rows * n]`."""
        self.last_sample = drawn = (self.concentration / self.total).flatten(1)
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]` of points `[B, rows * n]`, summed over rows; finite on the edges."""
        concentration = self.concentration
        actions = torch.as_tensor(actions, dtype=concentration.dtype, device=concentration.device)
        x = actions.reshape(concentration.shape).clamp(_TINY, 1)
        logs = x.log() - x.sum(dim=-1, keepdim=True).log()
        result: Tensor = (self.excess * logs).sum(dim=(1, 2)) + self.log_norm
        return result

    def kl(self, other: Any) -> Tensor:
        same_kind(self, other)
        if self.concentration.shape[1:] != other.concentration.shape[1:]:
            raise ModelContractError("Dirichlet.kl() takes a distribution over the same simplex.")
        return super().kl(other)


#: The smallest share that is scored as it is: the smallest normal float32.
_TINY = torch.finfo(torch.float32).tiny


@lru_cache(maxsize=256)
def _bounds(low: Any, high: Any, size: int, dtype: torch.dtype, device: torch.device) -> Interval:
    *arrays, log_volume = interval(low, high, size, str(dtype).removeprefix("torch."))
    # Kept for later calls, so they must not be inference tensors, which training cannot use.
    with torch.inference_mode(False):
        return Interval(*[torch.tensor(a, device=device) for a in arrays], *[log_volume])
