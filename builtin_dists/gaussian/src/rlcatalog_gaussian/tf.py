"""The diagonal Gaussian in TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from rlcatalog import SpaceInfo
from rlcatalog.distribution import ActionDistribution, same_kind
from rlcatalog_gaussian.plugin import MAX_LOG_STD, size

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagGaussian(ActionDistribution):
    """Independent normal values `[B, d]`; raw actions are unbounded, the adapter brings them into their bounds.

    Args:
        inputs: `[B, 2d]`: means, then log standard deviations.
        model: The model that made them, or None.
    """

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        self.mean, log_std = tf.split(self.inputs, 2, axis=-1)
        self.log_std = tf.clip_by_value(log_std, -MAX_LOG_STD, MAX_LOG_STD)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return 2d."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    def sample(self) -> Any:
        """Draw `[B, d]`, anew at each call, without gradient."""
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self) -> Any:
        """Draw `[B, d]`, reparameterised: mean + std * noise."""
        noise = tf.random.normal(tf.shape(self.mean), dtype=self.mean.dtype)
        return self.mean + tf.exp(self.log_std) * noise

    def deterministic_sample(self) -> Any:
        """Return the means `[B, d]`."""
        self.last_sample = self.mean
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of values `[B, d]`, summed over d."""
        x = tf.reshape(tf.cast(actions, self.mean.dtype), tf.shape(self.mean))
        z = (x - self.mean) * tf.exp(-self.log_std)
        return -tf.reduce_sum(0.5 * tf.square(z) + self.log_std, axis=-1) - _HALF_LOG_2PI * self.mean.shape[-1]

    def entropy(self) -> Any:
        """Return Σ (log σ + ½ log 2πe), `[B]`."""
        return tf.reduce_sum(self.log_std, axis=-1) + (0.5 + _HALF_LOG_2PI) * self.mean.shape[-1]

    def kl(self, other: Any) -> Any:
        """Return the divergence `[B]` between diagonal Gaussians, summed over d."""
        same_kind(self, other)
        ratio = tf.exp(2 * (self.log_std - other.log_std))
        distance = tf.square((self.mean - other.mean) * tf.exp(-other.log_std))
        return tf.reduce_sum(other.log_std - self.log_std + 0.5 * (ratio + distance - 1), axis=-1)
