"""Independent bits in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import same_kind
from rlcatalog_categorical.bernoulli.contract import BernoulliContract, wrong_mask
from rlcatalog_tf import draw_uniform, tf


class Bernoulli(BernoulliContract):
    """Independent bits `[B, n]` from a logit each; see `BernoulliContract`."""

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        #: Log probabilities `[B, n]` of 1; finite.
        self.log_p = tf.math.log_sigmoid(self.inputs)
        #: Log probabilities `[B, n]` of 0; finite. Stable, where log(1 - p) would lose small probabilities.
        self.log_q = tf.math.log_sigmoid(-self.inputs)
        self._p, self._q = tf.exp(self.log_p), tf.exp(self.log_q)

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Force bits: mask `[B, 2n]`, for each bit whether it may be 0 and whether it may be 1.

        Raises:
            ActionMaskError: The mask has not two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise wrong_mask(inputs, mask)
        allowed = tf.cast(mask, tf.bool)
        inputs = tf.where(allowed[:, ::2], inputs, inputs.dtype.max)
        return tf.where(allowed[:, 1::2], inputs, inputs.dtype.min)

    def sample(self) -> Any:
        """Draw int64 `[B, n]`, anew at each call."""
        # Uniform in [0, 1): below 0 never, below 1 always. In half precision it would be coarse.
        uniform = draw_uniform(tf.shape(self._p))
        self.last_sample = tf.cast(uniform < tf.cast(self._p, tf.float32), tf.int64)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely bits, int64 `[B, n]`; 0 where both are equally likely."""
        self.last_sample = tf.cast(self.inputs > 0, tf.int64)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed over the bits."""
        if actions is not self.last_sample:
            actions = tf.reshape(actions, tf.shape(self.inputs))
        log_probs = tf.reduce_sum(tf.where(tf.cast(actions, tf.bool), self.log_p, self.log_q), axis=-1)
        return tf.maximum(log_probs, log_probs.dtype.min)

    def entropy(self) -> Any:
        """Return the sum of the bits' entropies, `[B]`."""
        return tf.reduce_sum(self.multi_entropy(), axis=-1)

    def multi_entropy(self) -> Any:
        """Return the entropy of each bit, `[B, n]`."""
        return -(self._p * self.log_p + self._q * self.log_q)

    def kl(self, other: Any) -> Any:
        """Return the sum of the bits' divergences, `[B]`."""
        divergence = tf.reduce_sum(self.multi_kl(other), axis=-1)
        return tf.minimum(divergence, divergence.dtype.max)

    def multi_kl(self, other: Any) -> Any:
        """Return the divergence of each bit, `[B, n]`."""
        same_kind(self, other)
        return self._p * (self.log_p - other.log_p) + self._q * (self.log_q - other.log_q)
