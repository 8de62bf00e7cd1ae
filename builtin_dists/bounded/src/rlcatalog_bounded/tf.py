"""Distributions over bounded values in TensorFlow: Beta within bounds, Dirichlet on a simplex."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from rlcatalog import ModelV2
from rlcatalog.actions import hashable_bound, interval
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_bounded.common import (
    BetaBase,
    DirichletBase,
    SharesBase,
    wrong_components,
)
from rlcatalog_bounded.plugin import DIRICHLET_INPUTS, LEAST_CONCENTRATION, MAX_BETA_INPUT
from rlcatalog_tf import OPS, draw_gamma, draw_uniform, tf, to_float32_at_least


class _Shares(SharesBase):
    """Code shared by Beta and Dirichlet; see `SharesBase`."""

    framework_of_class = "tf"
    ops = OPS

    @cached_property
    def excess(self) -> Any:
        return self.concentration - 1

    @cached_property
    def total(self) -> Any:
        """Sum of the concentrations of each distribution."""
        return tf.reduce_sum(self.concentration, axis=self.axis, keepdims=True)

    @cached_property
    def log_norm(self) -> Any:
        of_total = tf.reduce_sum(tf.math.lgamma(self.total), axis=(1, 2))
        return of_total - tf.reduce_sum(tf.math.lgamma(self.concentration), axis=(1, 2))

    @cached_property
    def expected_log(self) -> Any:
        return tf.math.digamma(self.concentration) - tf.math.digamma(self.total)


class Beta(BetaBase, _Shares):
    """Independent values `[B, d]` within bounds; see `BetaBase`."""

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        low: float | bytes | Array = 0.0,
        high: float | bytes | Array = 1.0,
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        size = parameters.shape[-1] // 2
        clipped = tf.clip_by_value(parameters, -MAX_BETA_INPUT, MAX_BETA_INPUT)
        # Both concentrations of a value are above 1, so that its density has at most one peak.
        self.concentration = tf.reshape(tf.math.softplus(clipped) + 1, [-1, 2, size])
        # Hashable, because the interval between two bounds is computed once and cached.
        self.bounds = interval(
            hashable_bound(low), hashable_bound(high), size, parameters.dtype.name
        )

    def rsample(self) -> Any:
        """Draw `[B, d]` within the bounds, with gradients by implicit reparameterisation."""
        first, second = tf.unstack(draw_gamma(self.concentration), axis=1)
        share = first / (first + second)
        return self.bounds.low + self.bounds.width * share

    def deterministic_sample(self) -> Any:
        """Return the means `[B, d]`."""
        share = self.concentration[:, 0] / self.total[:, 0]
        self.last_sample = self.bounds.low + self.bounds.width * share
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        concentration = self.concentration
        bounds = self.bounds
        x = tf.reshape(tf.cast(actions, concentration.dtype), tf.shape(concentration[:, 0]))
        x = tf.clip_by_value(x, bounds.lowest, bounds.highest)
        # Score shares by their distances from both bounds, which are exact.
        distances = tf.stack((x - bounds.low, bounds.high - x), axis=1)
        log_shares = tf.math.log(distances) - bounds.log_width
        constant = self.log_norm - bounds.log_volume
        return tf.reduce_sum(self.excess * log_shares, axis=(1, 2)) + constant


class Dirichlet(DirichletBase, _Shares):
    """Points on a simplex, flattened to `[B, rows * n]`; see `DirichletBase`."""

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, components: int | None = None
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        size = parameters.shape[-1]
        components = components or size  # by default, all shares sum to 1
        if size % components:
            raise wrong_components(components, size)
        lowest, highest = DIRICHLET_INPUTS
        clipped = tf.clip_by_value(parameters, lowest, highest)
        concentration = tf.exp(clipped) + LEAST_CONCENTRATION
        self.concentration = tf.reshape(concentration, [-1, size // components, components])

    def rsample(self) -> Any:
        """Draw `[B, rows * n]`, with gradients."""
        # A share is a Gamma value divided by their sum, here as logs: for small concentrations a,
        # Gamma(a) may underflow, and it is Gamma(a + 1) * U^(1/a), with U uniform in (0, 1).
        concentration = self.concentration
        exponential = -tf.math.log(draw_uniform(tf.shape(concentration), concentration.dtype))
        logs = tf.math.log(draw_gamma(concentration + 1)) - exponential / concentration
        return tf.reshape(tf.nn.softmax(logs), tf.shape(self.inputs))

    def deterministic_sample(self) -> Any:
        """Return the means `[B, rows * n]`."""
        self.last_sample = tf.reshape(self.concentration / self.total, tf.shape(self.inputs))
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]` of points `[B, rows * n]`, summed over rows; it is finite
        even on the edges.
        """
        concentration = self.concentration
        x = tf.reshape(tf.cast(actions, concentration.dtype), tf.shape(concentration))
        x = tf.clip_by_value(x, _TINY, 1)
        # Each row is divided by its sum, because stored shares may not add up to 1 exactly.
        log_shares = tf.math.log(x) - tf.math.log(tf.reduce_sum(x, axis=-1, keepdims=True))
        return tf.reduce_sum(self.excess * log_shares, axis=(1, 2)) + self.log_norm


#: The smallest share that is scored unchanged, the smallest normal float32.
_TINY = float(np.finfo(np.float32).tiny)
