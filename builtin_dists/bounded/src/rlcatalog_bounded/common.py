"""Framework-independent code for the distributions over bounded values: sizes,
options and checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from rlcatalog import SpaceInfo
from rlcatalog.actions import (
    ActionDistribution,
    Interval,
    check_same_kind,
    hashable_bound,
    read_bounds,
    shape_method,
)
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.frameworks import TensorOps
from rlcatalog_bounded.plugin import beta_size, dirichlet_size


class SharesBase(ActionDistribution):
    """Base class for Beta and Dirichlet: shares that sum to 1 along `axis` of `concentration`, a
    rank-3 tensor.

    Attributes:
        ops: The framework's tensor operations.
        concentration: `[B, 2, d]` (Beta, axis 1) or `[B, rows, n]` (Dirichlet, axis 2), positive.
        excess: Concentrations minus 1.
        log_norm: Log of the normaliser of the shares' density, `[B]`.
        expected_log: Expected logs of the shares, in the same shape as the concentrations.
    """

    maskable = False
    ops: ClassVar[TensorOps]
    axis: ClassVar[int]
    concentration: Any
    excess: Any
    log_norm: Any
    expected_log: Any

    def sample(self) -> Any:
        """Sample in the same way as `rsample`, but without gradients."""
        self.last_sample = self.ops.without_gradient(self.rsample())
        return self.last_sample

    def entropy(self) -> Any:
        """Return the shares' entropy, `[B]`."""
        return -self._negative_entropy()

    def _negative_entropy(self) -> Any:
        """Return the expected log density of the shares, `[B]`."""
        return self.log_norm + self.ops.sum(self.excess * self.expected_log, axis=(1, 2))

    def _divergence(self, other: Self) -> Any:
        """Return the KL divergence `[B]` from shares of the same shape, summed over the independent
        values.
        """
        difference = self.concentration - other.concentration
        expected_difference = self.ops.sum(difference * self.expected_log, axis=(1, 2))
        return self.log_norm - other.log_norm + expected_difference


class BetaBase(SharesBase):
    """Independent values `[B, d]` within bounds: `low + y * (high - low)` with y from a Beta
    distribution.

    Both concentrations are `1 + softplus(input)`, with inputs clipped to ±100, so the density is
    unimodal or flat. `logp` is the true log density, including the scale factor. An action at a
    bound is scored as the nearest float32 inside the bounds. The deterministic action is the mean.

    Args:
        inputs: `[B, 2d]`: the inputs for the d first concentrations (towards high), then for the d
            second ones, before the softplus. Half-precision inputs are widened to float32.
        model: The model that computed the inputs, or None.
        low: Lower bounds: a number, an array `[d]` or a `hashable_bound`.
        high: Upper bounds, in the same form.
    """

    raw_kind = "bounded"
    axis = 1
    bounds: Interval

    required_model_output_shape = staticmethod(shape_method(beta_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
    ) -> dict[str, Any]:
        """Return the bounds, each as a `hashable_bound`."""
        low, high = read_bounds(action, cls.__name__)
        return {"low": hashable_bound(low), "high": hashable_bound(high)}

    def entropy(self) -> Any:
        """Return the entropy `[B]`, summed over d."""
        return self.bounds.log_volume - self._negative_entropy()

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]`, summed over d.

        Raises:
            ModelContractError: The other distribution has a different kind or different bounds.
        """
        check_same_kind(self, other)
        if not self.bounds.has_bounds_of(other.bounds):
            raise ModelContractError("Beta.kl() needs a distribution with the same bounds.")
        return self._divergence(other)


class DirichletBase(SharesBase):
    """Points on a simplex, flattened to `[B, rows * n]`: the n values of each row are positive and
    sum to 1.

    Concentrations are `exp(input) + 1e-7`, with inputs clipped to [-16, 7]. The density is over the
    first n - 1 values of each row, which is the usual convention. The deterministic action is the
    mean; RLlib takes the softmax of the concentrations.

    Args:
        inputs: `[B, rows * n]`: logs of the concentrations. Half-precision inputs are widened to
            float32.
        model: The model that computed the inputs, or None.
        components: n, the size of the simplex's last axis. If None, all values form one row.
    """

    axis = 2

    required_model_output_shape = staticmethod(shape_method(dirichlet_size))

    @classmethod
    def options_for(
        cls,
        action: SpaceInfo,
        config: Mapping[str, Any],  # noqa: ARG003  (ActionDistribution's signature)
    ) -> dict[str, Any]:
        """Return the size of the last axis of a Simplex that has several rows."""
        shape = action.shape or ()
        rows = math.prod(shape[:-1])
        if rows <= 1:
            return {}
        return {"components": shape[-1]}

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence `[B]`, summed over rows.

        Raises:
            ModelContractError: The other distribution has a different kind or shape.
        """
        check_same_kind(self, other)
        if self.concentration.shape[1:] != other.concentration.shape[1:]:
            raise ModelContractError("Dirichlet.kl() needs a distribution over the same simplex.")
        return self._divergence(other)


def wrong_components(components: int, size: int) -> ConfigError:
    """Return the error for inputs that cannot be split evenly into rows."""
    return ConfigError(
        f"components must divide the number of inputs, found {components} and {size}."
    )
