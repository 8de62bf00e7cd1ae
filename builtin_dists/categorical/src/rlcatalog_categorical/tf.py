"""The categorical distribution in TensorFlow."""

from __future__ import annotations

import math
from typing import Any

from rlcatalog.actions import same_kind
from rlcatalog_categorical.contract import CategoricalContract, wrong_temperature
from rlcatalog_tf import draw_uniform, tf


def tempered(logits: Any, temperature: float) -> Any:
    """Divide logits by a temperature; what a mask forbids stays forbidden and all stays finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    if not 0 < temperature < math.inf:
        raise wrong_temperature(temperature)
    lowest, highest = logits.dtype.min, logits.dtype.max
    return tf.where(logits > lowest, tf.clip_by_value(logits / temperature, lowest, highest), lowest)


class Categorical(CategoricalContract):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; see `CategoricalContract`."""

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        inputs = tf.convert_to_tensor(inputs)
        super().__init__(inputs if temperature == 1.0 else tempered(inputs, temperature), model)
        self._log_probs: Any = None

    @property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, n]`."""
        if self._log_probs is None:
            # The lowest finite value stands in for -inf, which 0 · log 0 would make NaN.
            self._log_probs = tf.maximum(tf.nn.log_softmax(self.inputs), self.inputs.dtype.min)
        return self._log_probs

    def sample(self) -> Any:
        """Draw int64 `[B]`, anew at each call, by the Gumbel-max trick."""
        # Normalised logits: against a large common offset the noise would be lost to rounding.
        uniform = draw_uniform(tf.shape(self.inputs), self.inputs.dtype)
        # log1p(-u) with u in [0, 1) is never infinite; the tiny floor keeps log 0 away.
        exponential = tf.maximum(-tf.math.log1p(-uniform), tf.cast(1e-7, self.inputs.dtype))
        self.last_sample = tf.argmax(self.log_probs - tf.math.log(exponential), axis=-1)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely value, int64 `[B]`."""
        self.last_sample = tf.argmax(self.inputs, axis=-1)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of values `[B]` or `[B, 1]`."""
        index = tf.reshape(tf.cast(actions, tf.int64), [-1])
        return tf.gather(self.log_probs, index, batch_dims=1)

    def entropy(self) -> Any:
        """Return -Σ p log p, `[B]`."""
        return -tf.reduce_sum(tf.exp(self.log_probs) * self.log_probs, axis=-1)

    def kl(self, other: Any) -> Any:
        """Return Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        return tf.reduce_sum(tf.exp(self.log_probs) * (self.log_probs - other.log_probs), axis=-1)
