"""Relaxed one-hots in TensorFlow."""

from __future__ import annotations

import math
from typing import Any

from rlcatalog_categorical.contract import wrong_temperature
from rlcatalog_categorical.gumbel.contract import GumbelSoftmaxContract, wrong_actions
from rlcatalog_tf import draw_uniform, tf, to_float32_at_least

#: Entries below this are zero to `logp`: their reciprocals, which gradients hold, would soon be infinite.
_FLOOR = {tf.float32: 1e-30, tf.float64: 1e-290}


class GumbelSoftmax(GumbelSoftmaxContract):
    """Relaxed one-hots `[B, n]`, that gradients flow through; see `GumbelSoftmaxContract`."""

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if not 0 < temperature < math.inf:
            raise wrong_temperature(temperature)
        super().__init__(tf.convert_to_tensor(inputs), model)
        self.temperature = temperature
        logits = to_float32_at_least(self.inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; float32 for half precisions. Finite.
        self.log_probs = tf.maximum(tf.nn.log_softmax(logits), logits.dtype.min)

    def sample(self) -> Any:
        """Draw relaxed one-hots `[B, n]`, anew at each call, without gradient."""
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self, straight_through: bool = False) -> Any:
        """Draw relaxed one-hots `[B, n]`, with gradient.

        Args:
            straight_through: Return exact one-hots instead, with the gradient of the relaxed ones.
        """
        uniform = draw_uniform(tf.shape(self.log_probs), self.log_probs.dtype)
        # log1p(-u) with u in [0, 1) is never infinite; the tiny floor keeps log 0 away.
        noise = tf.math.log(tf.maximum(-tf.math.log1p(-uniform), 1e-7))
        soft = tf.cast(tf.nn.softmax((self.log_probs - noise) / self.temperature), self.inputs.dtype)
        if not straight_through:
            return soft
        hard = tf.one_hot(tf.argmax(soft, axis=-1), soft.shape[-1], dtype=soft.dtype)
        return hard + (soft - tf.stop_gradient(soft))

    def deterministic_sample(self) -> Any:
        """Return the one-hot `[B, n]` of the most likely value."""
        best = tf.argmax(self.inputs, axis=-1)
        self.last_sample = tf.one_hot(best, self.inputs.shape[-1], dtype=self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`.

        Entries of 0 are entries too small for the dtype; a sample with such entries lies on a face of the simplex.
        There, this is the log density on the face of the others, plus the log probability that the largest entry is
        one of these. So inner points have the density of the Concrete distribution, exact one-hots the log probability
        that `Categorical` gives to their value, and nothing is infinite.

        Args:
            actions: (Relaxed) one-hots `[B, n]`, or values `[B]` or `[B, 1]`, which mean their one-hots.

        Raises:
            ModelContractError: The actions have another shape.
        """
        log_probs = self.log_probs
        dtype, n = log_probs.dtype, log_probs.shape[-1]
        x = tf.convert_to_tensor(actions)
        given = x.shape
        if n > 1 and (x.shape.rank == 1 or (x.shape.rank == 2 and x.shape[1] == 1)):
            x = tf.one_hot(tf.reshape(tf.cast(x, tf.int64), [-1]), n)
        if not x.shape.is_compatible_with(log_probs.shape):
            raise wrong_actions(log_probs.shape, given)
        x = tf.cast(x, dtype)
        inside = x > _FLOOR[dtype]
        count = tf.reduce_sum(tf.cast(inside, dtype), axis=-1)
        log_x = tf.math.log(tf.where(inside, x, tf.ones_like(x)))
        nowhere = tf.fill(tf.shape(x), tf.constant(float("-inf"), dtype))
        weights = tf.where(inside, log_probs - self.temperature * log_x, nowhere)
        inner = tf.where(inside, log_probs - (self.temperature + 1) * log_x, tf.zeros_like(x))
        density = (
            tf.math.lgamma(count)
            + (count - 1) * math.log(self.temperature)
            + tf.reduce_sum(inner, axis=-1)
            - count * tf.reduce_logsumexp(weights, axis=-1)
        )
        of_face = tf.reduce_logsumexp(tf.where(inside, log_probs, nowhere), axis=-1)
        found = self.inputs.dtype
        return tf.cast(tf.clip_by_value(density + of_face, found.min, found.max), found)
