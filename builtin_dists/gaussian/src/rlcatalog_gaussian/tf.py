"""The Gaussians in TensorFlow: unbounded, and squashed into bounds."""

from __future__ import annotations

import math
from typing import Any

from rlcatalog.actions import hashable_bound, interval
from rlcatalog_gaussian.common import (
    DiagGaussianBase,
    NormalsBase,
    SquashedGaussianBase,
)
from rlcatalog_gaussian.config import clipping, squashed_clipping
from rlcatalog_gaussian.plugin import DIVERGENCE_LIMITS, MAX_LOG_STD, MAX_SQUASHED_MEAN
from rlcatalog_tf import OPS, draw_normal, tf, to_float32_at_least

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


class _Normals(NormalsBase):
    """Means and log standard deviations `[B, d]` of normal values."""

    framework_of_class, ops = "tf", OPS
    log_std: Any

    @property
    def std(self) -> Any:
        """Standard deviations `[B, d]`."""
        return tf.exp(self.log_std)

    def divergence(self, other: Any) -> Any:
        most, farthest = DIVERGENCE_LIMITS[self.mean.dtype.size]
        ratio = tf.exp(tf.minimum(2 * (self.log_std - other.log_std), most))
        z = tf.clip_by_value((self.mean - other.mean) * tf.exp(-other.log_std), -farthest, farthest)
        # Halved one by one, because their sum might overflow.
        terms = other.log_std - self.log_std + (0.5 * ratio + 0.5 * tf.square(z) - 0.5)
        return tf.minimum(tf.reduce_sum(terms, axis=-1), terms.dtype.max)


class DiagGaussian(_Normals, DiagGaussianBase):
    """Independent normal values `[B, d]`, unbounded; see `DiagGaussianBase`."""

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        self.mean, log_std = tf.split(parameters, 2, axis=-1)
        self.log_std = tf.clip_by_value(
            log_std, *clipping(log_std_min, log_std_max, -MAX_LOG_STD, MAX_LOG_STD)
        )

    def rsample(self) -> Any:
        """Draw `[B, d]` with reparameterisation: mean + std * noise."""
        noise = draw_normal(tf.shape(self.mean), self.mean.dtype)
        return self.mean + tf.exp(self.log_std) * noise

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        x = tf.reshape(tf.cast(actions, self.mean.dtype), tf.shape(self.mean))
        z = (x - self.mean) * tf.exp(-self.log_std)
        return (
            -tf.reduce_sum(0.5 * tf.square(z) + self.log_std, axis=-1)
            - _HALF_LOG_2PI * self.mean.shape[-1]
        )

    def entropy(self) -> Any:
        """Return the entropy Σ (log σ + ½ log 2πe), `[B]`."""
        return tf.reduce_sum(self.log_std, axis=-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]


class SquashedGaussian(_Normals, SquashedGaussianBase):
    """Independent normal values, squashed into bounds; see `SquashedGaussianBase`."""

    # The last reparameterised draw: action, normal value, noise.
    _drawn: tuple[Any, Any, Any] | None = None

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        low: Any = -1.0,
        high: Any = 1.0,
        log_std_min: float | None = None,
        log_std_max: float | None = None,
    ) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        parameters = to_float32_at_least(self.inputs)
        mean, log_std = tf.split(parameters, 2, axis=-1)
        least, most = squashed_clipping(log_std_min, log_std_max)
        self.mean = tf.clip_by_value(mean, -MAX_SQUASHED_MEAN, MAX_SQUASHED_MEAN)
        self.log_std = tf.clip_by_value(log_std, least, most)
        self.bounds = interval(
            hashable_bound(low), hashable_bound(high), mean.shape[-1], mean.dtype.name
        )

    def sample(self) -> Any:
        """Sample `[B, d]` within the bounds, without gradients."""
        self.last_sample = tf.stop_gradient(self._draw()[0])
        return self.last_sample

    def rsample(self) -> Any:
        """Draw `[B, d]` within the bounds with reparameterisation: mean + std * noise, then
        squashed.
        """
        self._drawn = self._draw()
        return self._drawn[0]

    def deterministic_sample(self) -> Any:
        """Return the squashed means `[B, d]`, which are the medians."""
        self.last_sample = self._squash(self.mean)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d; it is finite even outside
        the bounds.
        """
        if self._drawn is not None and actions is self._drawn[0]:
            return self._logp_of_draw(*self._drawn[1:])
        bounds = self.bounds
        x = tf.reshape(tf.cast(actions, self.mean.dtype), tf.shape(self.mean))
        x = tf.clip_by_value(x, bounds.lowest, bounds.highest)
        # With the two distances, u = (log below - log above) / 2 and da/du = 2 below * above /
        # width: the differences are exact, while tanh's inverse would lose precision near a bound.
        below, above = tf.math.log(x - bounds.low), tf.math.log(bounds.high - x)
        z = (0.5 * (below - above) - self.mean) * tf.exp(-self.log_std)
        terms = tf.reduce_sum(0.5 * tf.square(z) + below + above + self.log_std, axis=-1)
        return (bounds.log_volume - (_HALF_LOG_2PI + _LOG_2) * self.mean.shape[-1]) - terms

    def entropy_estimate(self) -> Any:
        """Return an unbiased estimate `[B]`: minus the log density of a new sample, with its
        gradient.
        """
        return -self._logp_of_draw(*self._draw()[1:])

    def _draw(self) -> tuple[Any, Any, Any]:
        noise = draw_normal(tf.shape(self.mean), self.mean.dtype)
        normal = self.mean + tf.exp(self.log_std) * noise
        return self._squash(normal), normal, noise

    def _squash(self, normal: Any) -> Any:
        # (tanh(u) + 1) / 2 is the logistic function of 2u, which keeps its precision near the lower
        # bound.
        return self.bounds.low + self.bounds.width * tf.sigmoid(2 * normal)

    def _logp_of_draw(self, normal: Any, noise: Any) -> Any:
        # log(1 - tanh(u)²) = 2 (log 2 - u - softplus(-2u)), finite for every u.
        jacobian = 2 * (_LOG_2 - normal - tf.math.softplus(-2 * normal))
        terms = tf.reduce_sum(0.5 * tf.square(noise) + self.log_std + jacobian, axis=-1)
        return -terms - (self.bounds.log_volume + (_HALF_LOG_2PI - _LOG_2) * self.mean.shape[-1])
