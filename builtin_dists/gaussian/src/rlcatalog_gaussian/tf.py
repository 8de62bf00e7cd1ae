"""The Gaussians in TensorFlow: unbounded, and squashed into bounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from rlcatalog import ModelV2
from rlcatalog.actions import hashable_bound, interval
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_gaussian.common import (
    DiagGaussianBase,
    NormalsBase,
    SquashedGaussianBase,
)
from rlcatalog_gaussian.config import clip_range, squashed_clip_range
from rlcatalog_gaussian.numeric_limits import DIVERGENCE_LIMITS, MAX_LOG_STD, MAX_SQUASHED_MEAN
from rlcatalog_tf import OPS, draw_normal, tf, to_float32_at_least

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class _Normals(NormalsBase):
    """Means and log standard deviations `[B, d]` of normal values."""

    framework_of_class = "tf"
    ops = OPS
    log_std: Any

    @property
    def std(self) -> Any:
        """Standard deviations `[B, d]`."""
        return tf.exp(self.log_std)

    def divergence(self, other: Self) -> Any:
        """Return the sum of (r² - 1) / 2 - log r + z² / 2, `[B]`, where r is the ratio of the
        standard deviations, and z the distance of the means in the other's standard deviations.
        """
        max_exponent, max_distance = DIVERGENCE_LIMITS[self.mean.dtype.size]
        ratio_squared = tf.exp(tf.minimum(2 * (self.log_std - other.log_std), max_exponent))
        distance = (self.mean - other.mean) * tf.exp(-other.log_std)
        z = tf.clip_by_value(distance, -max_distance, max_distance)
        # Halved one by one, because their sum might overflow.
        terms = other.log_std - self.log_std + (0.5 * ratio_squared + 0.5 * tf.square(z) - 0.5)
        return tf.minimum(tf.reduce_sum(terms, axis=-1), terms.dtype.max)


class DiagGaussian(_Normals, DiagGaussianBase):
    """Independent normal values `[B, d]`, unbounded; see `DiagGaussianBase`."""

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        self.mean, log_std = tf.split(parameters, 2, axis=-1)
        lowest, highest = clip_range(log_std_min, log_std_max, least=-MAX_LOG_STD, most=MAX_LOG_STD)
        self.log_std = tf.clip_by_value(log_std, lowest, highest)

    def rsample(self) -> Any:
        """Draw `[B, d]` with reparameterisation: mean + std * noise."""
        noise = draw_normal(tf.shape(self.mean), self.mean.dtype)
        return self.mean + tf.exp(self.log_std) * noise

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        x = tf.reshape(tf.cast(actions, self.mean.dtype), tf.shape(self.mean))
        z = (x - self.mean) * tf.exp(-self.log_std)
        terms = 0.5 * tf.square(z) + self.log_std
        return -tf.reduce_sum(terms, axis=-1) - _HALF_LOG_2PI * self.mean.shape[-1]

    def entropy(self) -> Any:
        """Return the entropy Σ (log σ + ½ log 2πe), `[B]`."""
        return tf.reduce_sum(self.log_std, axis=-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]


class _Draw(NamedTuple):
    """A reparameterised draw.

    Attributes:
        action: The squashed action.
        normal: The normal value from which the action was computed.
        noise: The standard normal value from which the normal value was computed.
    """

    action: Tensor
    normal: Tensor
    noise: Tensor


class SquashedGaussian(_Normals, SquashedGaussianBase):
    """Independent normal values, squashed into bounds; see `SquashedGaussianBase`."""

    #: The last draw of `rsample`; `logp` scores it from its normal value.
    _last_draw: _Draw | None = None

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        low: float | bytes | Array = -1.0,
        high: float | bytes | Array = 1.0,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        mean, log_std = tf.split(parameters, 2, axis=-1)
        lowest, highest = squashed_clip_range(log_std_min, log_std_max)
        self.mean = tf.clip_by_value(mean, -MAX_SQUASHED_MEAN, MAX_SQUASHED_MEAN)
        self.log_std = tf.clip_by_value(log_std, lowest, highest)
        # Hashable, because the interval between two bounds is computed once and cached.
        self.bounds = interval(
            hashable_bound(low), hashable_bound(high), mean.shape[-1], mean.dtype.name
        )

    def sample(self) -> Any:
        """Sample `[B, d]` within the bounds, without gradients."""
        self.last_sample = tf.stop_gradient(self._draw().action)
        return self.last_sample

    def rsample(self) -> Any:
        """Draw `[B, d]` within the bounds with reparameterisation: mean + std * noise, then
        squashed.
        """
        self._last_draw = self._draw()
        return self._last_draw.action

    def deterministic_sample(self) -> Any:
        """Return the squashed means `[B, d]`, which are the medians."""
        self.last_sample = self._squash(self.mean)
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        draw = self._last_draw
        if draw is not None and actions is draw.action:
            return self._logp_of_draw(draw.normal, draw.noise)
        bounds = self.bounds
        x = tf.reshape(tf.cast(actions, self.mean.dtype), tf.shape(self.mean))
        x = tf.clip_by_value(x, bounds.lowest, bounds.highest)
        # With the distances of x from the bounds, u = (log below - log above) / 2 and
        # dx/du = 2 below * above / width. The distances are exact, while tanh's inverse would lose
        # precision near a bound.
        log_below = tf.math.log(x - bounds.low)
        log_above = tf.math.log(bounds.high - x)
        z = (0.5 * (log_below - log_above) - self.mean) * tf.exp(-self.log_std)
        terms = 0.5 * tf.square(z) + log_below + log_above + self.log_std
        constant = bounds.log_volume - (_HALF_LOG_2PI + _LOG_2) * self.mean.shape[-1]
        return constant - tf.reduce_sum(terms, axis=-1)

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]`: minus the log density of a new sample, with its
        gradient.
        """
        draw = self._draw()
        return -self._logp_of_draw(draw.normal, draw.noise)

    def _draw(self) -> _Draw:
        noise = draw_normal(tf.shape(self.mean), self.mean.dtype)
        normal = self.mean + tf.exp(self.log_std) * noise
        return _Draw(self._squash(normal), normal, noise)

    def _squash(self, normal: Tensor) -> Any:
        # (tanh(u) + 1) / 2 is the logistic function of 2u, which keeps its precision near the lower
        # bound.
        share = tf.sigmoid(2 * normal)
        return self.bounds.low + self.bounds.width * share

    def _logp_of_draw(self, normal: Tensor, noise: Tensor) -> Any:
        """Return the log density `[B]` of the action that was squashed from a normal value."""
        # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), finite for every u.
        log_jacobian = 2 * (_LOG_2 - normal - tf.math.softplus(-2 * normal))
        terms = 0.5 * tf.square(noise) + self.log_std + log_jacobian
        constant = self.bounds.log_volume + (_HALF_LOG_2PI - _LOG_2) * self.mean.shape[-1]
        return -tf.reduce_sum(terms, axis=-1) - constant
