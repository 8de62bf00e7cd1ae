"""Distributions over bounded values in TensorFlow: Beta within bounds, Dirichlet on a simplex."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, frozen, interval, read_bounds, same_kind
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.tf import tf, widened
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

    framework_of_class = "tf"
    axis = 1

    concentration: Any
    # Computed at first use.
    _total: Any | None = None
    _log_norm: Any | None = None
    _expected_log: Any | None = None

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return the inputs as they are: no part could be forbidden, the mask is `[B, 0]`."""
        if mask.shape[-1]:
            raise NotServedError(f"{cls.__name__} takes no action mask, found one of {mask.shape[-1]} columns.")
        return inputs

    @property
    def total(self) -> Any:
        """Sum of the concentrations that belong together."""
        if self._total is None:
            self._total = tf.reduce_sum(self.concentration, axis=self.axis, keepdims=True)
        return self._total

    @property
    def log_norm(self) -> Any:
        """Log of what normalises the density of the shares, `[B]`."""
        if self._log_norm is None:
            total, each = tf.math.lgamma(self.total), tf.math.lgamma(self.concentration)
            self._log_norm = tf.reduce_sum(total, axis=(1, 2)) - tf.reduce_sum(each, axis=(1, 2))
        return self._log_norm

    @property
    def expected_log(self) -> Any:
        """Expected logs of the shares, in the shape of the concentrations."""
        if self._expected_log is None:
            self._expected_log = tf.math.digamma(self.concentration) - tf.math.digamma(self.total)
        return self._expected_log

    def entropy(self) -> Any:
        """Return the entropy of the shares, `[B]`."""
        return -self.log_norm - tf.reduce_sum((self.concentration - 1) * self.expected_log, axis=(1, 2))

    def kl(self, other: Any) -> Any:
        """Return the divergence `[B]`, summed over all that is independent.

        Raises:
            ModelContractError: The other distribution is of another kind, shape or interval.
        """
        same_kind(self, other)
        difference = self.concentration - other.concentration
        return self.log_norm - other.log_norm + tf.reduce_sum(difference * self.expected_log, axis=(1, 2))


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
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = widened(self.inputs)
        size = parameters.shape[-1] // 2
        clipped = tf.clip_by_value(parameters, -MAX_BETA_INPUT, MAX_BETA_INPUT)
        self.concentration = tf.reshape(tf.math.softplus(clipped) + 1, [-1, 2, size])
        self.bounds = interval(frozen(low), frozen(high), size, parameters.dtype.name)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return 2d."""
        return beta_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the bounds, float32 `[d]`."""
        low, high = read_bounds(action, cls.__name__)
        return {"low": low, "high": high}

    def sample(self) -> Any:
        """Draw `[B, d]` within the bounds, without gradient."""
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self) -> Any:
        """Draw `[B, d]` within the bounds, with gradients by implicit reparameterisation."""
        first, second = tf.unstack(_gamma(self.concentration), axis=1)
        return self.bounds.low + self.bounds.width * (first / (first + second))

    def deterministic_sample(self) -> Any:
        """Return the means `[B, d]`."""
        share = self.concentration[:, 0] / self.total[:, 0]
        self.last_sample = self.bounds.low + self.bounds.width * share
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d; finite at the bounds and beyond."""
        concentration, bounds = self.concentration, self.bounds
        x = tf.reshape(tf.cast(actions, concentration.dtype), tf.shape(concentration[:, 0]))
        x = tf.clip_by_value(x, bounds.lowest, bounds.highest)
        # Shares are scored by their distances from both bounds, which are exact.
        logs = tf.math.log(tf.stack((x - bounds.low, bounds.high - x), axis=1)) - bounds.log_width
        return tf.reduce_sum((concentration - 1) * logs, axis=(1, 2)) + (self.log_norm - bounds.log_volume)

    def entropy(self) -> Any:
        """Return the entropy `[B]`, summed over d."""
        return super().entropy() + self.bounds.log_volume

    def kl(self, other: Any) -> Any:
        same_kind(self, other)
        if self.bounds is not other.bounds and not all(
            np.array_equal(getattr(self.bounds, name), getattr(other.bounds, name)) for name in ("low", "high")
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
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = widened(self.inputs)
        size = parameters.shape[-1]
        components = components or size
        if size % components:
            raise ConfigError(f"components must divide the number of inputs, found {components} and {size}.")
        concentration = tf.exp(tf.clip_by_value(parameters, *DIRICHLET_INPUTS)) + LEAST_CONCENTRATION
        self.concentration = tf.reshape(concentration, [-1, size // components, components])

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the number of values."""
        return dirichlet_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the size of the last axis, for a Simplex of several rows."""
        shape = action.shape or ()
        return {"components": shape[-1]} if math.prod(shape[:-1]) > 1 else {}

    def sample(self) -> Any:
        """Draw `[B, rows * n]`, without gradient."""
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self) -> Any:
        """Draw `[B, rows * n]`, with gradients."""
        # Shares of Gamma values, as logs: Gamma(a) is Gamma(a + 1) * U^(1/a), which may be smaller than any number.
        concentration = self.concentration
        exponential = -tf.math.log1p(-tf.random.uniform(tf.shape(concentration), dtype=concentration.dtype))
        logs = tf.math.log(_gamma(concentration + 1)) - exponential / concentration
        return tf.reshape(tf.nn.softmax(logs), tf.shape(self.inputs))

    def deterministic_sample(self) -> Any:
        """Return the means `[B, rows * n]`."""
        self.last_sample = tf.reshape(self.concentration / self.total, tf.shape(self.inputs))
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of points `[B, rows * n]`, summed over rows; finite on the edges."""
        concentration = self.concentration
        x = tf.reshape(tf.cast(actions, concentration.dtype), tf.shape(concentration))
        x = tf.clip_by_value(x, _TINY, 1)
        logs = tf.math.log(x) - tf.math.log(tf.reduce_sum(x, axis=-1, keepdims=True))
        return tf.reduce_sum((concentration - 1) * logs, axis=(1, 2)) + self.log_norm

    def kl(self, other: Any) -> Any:
        same_kind(self, other)
        if self.concentration.shape[1:] != other.concentration.shape[1:]:
            raise ModelContractError("Dirichlet.kl() takes a distribution over the same simplex.")
        return super().kl(other)


#: The smallest share that is scored as it is: the smallest normal float32.
_TINY = float(np.finfo(np.float32).tiny)


def _gamma(concentration: Any) -> Any:
    """Draw Gamma values of scale 1, with gradients by implicit reparameterisation."""
    drawn = tf.random.gamma([], concentration, dtype=concentration.dtype)
    drawn.set_shape(concentration.shape)  # a trace would forget it
    return drawn
