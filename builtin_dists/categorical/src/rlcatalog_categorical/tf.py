"""Distributions over choices in TensorFlow: one or several choices, bits, relaxed one-hot vectors,
slates.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from rlcatalog.actions import same_kind
from rlcatalog_categorical import common
from rlcatalog_categorical.choice_columns import layout_of, lens_of
from rlcatalog_tf import OPS, draw_categorical, draw_uniform, tf, to_float32_at_least


def tempered(logits: Any, temperature: float) -> Any:
    """Divide logits by a temperature; masked values stay masked, and all logits stay finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    common.check_temperature(temperature)
    lowest, highest = logits.dtype.min, logits.dtype.max
    return tf.where(
        logits > lowest, tf.clip_by_value(logits / temperature, lowest, highest), lowest
    )


class Categorical(common.CategoricalBase):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; see `CategoricalBase`."""

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        inputs = tf.convert_to_tensor(inputs)
        super().__init__(inputs if temperature == 1.0 else tempered(inputs, temperature), model)

    @cached_property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, n]`."""
        # The lowest finite value replaces -inf, so that 0 · log 0 is not NaN.
        return tf.maximum(tf.nn.log_softmax(self.inputs), self.inputs.dtype.min)

    def sample(self) -> Any:
        """Sample values, int64 `[B]`."""
        # The argmin of exponential variables, which are minus the logs of uniform numbers, divided
        # by their rates.
        probs = tf.exp(to_float32_at_least(self.log_probs))
        self.last_sample = tf.argmax(
            tf.math.log(draw_uniform(tf.shape(probs), probs.dtype)) / probs, axis=-1
        )
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely value, int64 `[B]`."""
        self.last_sample = tf.argmax(self.inputs, axis=-1)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of values with shape `[B]` or `[B, 1]`."""
        index = (
            actions if actions is self.last_sample else tf.reshape(tf.cast(actions, tf.int64), [-1])
        )
        return tf.gather(self.log_probs, index, batch_dims=1)

    def entropy(self) -> Any:
        """Return the entropy -Σ p log p, `[B]`."""
        return -tf.reduce_sum(tf.exp(self.log_probs) * self.log_probs, axis=-1)

    def kl(self, other: Any) -> Any:
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        same_kind(self, other)
        return tf.reduce_sum(tf.exp(self.log_probs) * (self.log_probs - other.log_probs), axis=-1)


class MultiCategorical(common.MultiCategoricalBase):
    """Independent choices `[B, k]`, each starting at 0; see `MultiCategoricalBase`."""

    framework_of_class, ops, choice = "tf", OPS, Categorical

    def __init__(
        self, inputs: Any, model: Any = None, input_lens: Any = None, action_space: Any = None
    ) -> None:
        self.layout = layout_of(
            input_lens if type(input_lens) is tuple else lens_of(input_lens, action_space)
        )
        super().__init__(tf.convert_to_tensor(inputs), model)
        self.layout.check_width(self.inputs.shape)
        inputs, layout = self.inputs, self.layout
        if layout.index is not None:
            padded = tf.pad(inputs, [[0, 0], [0, 1]], constant_values=float("-inf"))
            inputs = tf.gather(padded, layout.index, axis=1)
        #: Logits `[B, k, longest]`; -inf in the padding of shorter choices.
        self.logits = tf.reshape(inputs, [-1, len(layout.lens), layout.longest])

    @cached_property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, k, longest]`, padded with the lowest finite value."""
        # The lowest finite value replaces -inf, so that 0 · log 0 is not NaN.
        return tf.maximum(tf.nn.log_softmax(self.logits), self.logits.dtype.min)

    @cached_property
    def probs(self) -> Any:
        """Probabilities `[B, k, longest]`."""
        return tf.exp(self.log_probs)

    def sample(self) -> Any:
        """Sample int64 `[B, k]`."""
        flat = tf.reshape(self.logits, [-1, self.layout.longest])
        # With NaN, it returns an index out of range.
        drawn = tf.minimum(draw_categorical(flat), self.layout.longest - 1)
        self.last_sample = tf.reshape(drawn, [-1, len(self.layout.lens)])
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely values, int64 `[B, k]`."""
        self.last_sample = tf.argmax(self.logits, axis=-1)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]`, summed over the choices.

        Args:
            actions: `[B, k]` or `[B, *shape]` in C order, or a list of k tensors or arrays `[B]`.
        """
        index = actions if actions is self.last_sample else self._indices(actions)
        log_probs = tf.reduce_sum(tf.gather(self.log_probs, index, batch_dims=2), axis=-1)
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return tf.maximum(log_probs, log_probs.dtype.min)

    def _indices(self, actions: Any) -> Any:
        """Return actions in any form as int64 `[B, k]`."""
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            actions = tf.stack([tf.reshape(part, [-1]) for part in actions], axis=1)
        else:
            actions = tf.convert_to_tensor(actions)
        self.layout.check_actions(actions.shape, self.inputs.shape[0])
        return tf.reshape(tf.cast(actions, tf.int64), [-1, len(self.layout.lens)])

    def entropy(self) -> Any:
        """Return the sum of the choices' entropies, `[B]`."""
        return -tf.reduce_sum(self.probs * self.log_probs, axis=[-2, -1])

    def multi_entropy(self) -> Any:
        """Return the entropy of each choice, `[B, k]`."""
        return -tf.reduce_sum(self.probs * self.log_probs, axis=-1)

    def _divergences(self, other: Any) -> Any:
        same_kind(self, other)
        self.layout.check_same(other.layout)
        return self.probs * (self.log_probs - other.log_probs)


Categorical.joint = MultiCategorical


class Bernoulli(common.BernoulliBase):
    """Independent bits `[B, n]`, with one logit each; see `BernoulliBase`."""

    framework_of_class, ops = "tf", OPS

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        #: Log probabilities `[B, n]` of 1; finite.
        self.log_p = tf.math.log_sigmoid(self.inputs)
        #: Log probabilities `[B, n]` of 0; finite. Numerically stable: log(1 - p) would lose small
        #: probabilities.
        self.log_q = tf.math.log_sigmoid(-self.inputs)
        self._p, self._q = tf.exp(self.log_p), tf.exp(self.log_q)

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Apply a mask `[B, 2n]`, which says for each bit whether it may be 0 and whether it may be
        1.

        Raises:
            ActionMaskError: The mask does not have two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise common.wrong_mask(inputs, mask)
        allowed = tf.cast(mask, tf.bool)
        inputs = tf.where(allowed[:, ::2], inputs, inputs.dtype.max)
        return tf.where(allowed[:, 1::2], inputs, inputs.dtype.min)

    def sample(self) -> Any:
        """Sample int64 `[B, n]`."""
        # Uniform in (0, 1): never below 0, always below 1. Half precision would be too coarse.
        uniform = draw_uniform(tf.shape(self._p))
        self.last_sample = tf.cast(uniform < tf.cast(self._p, tf.float32), tf.int64)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely bits, int64 `[B, n]`; 0 where both are equally likely."""
        self.last_sample = tf.cast(self.inputs > 0, tf.int64)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed
        over the bits.
        """
        if actions is not self.last_sample:
            actions = tf.reshape(actions, tf.shape(self.inputs))
        log_probs = tf.reduce_sum(
            tf.where(tf.cast(actions, tf.bool), self.log_p, self.log_q), axis=-1
        )
        return tf.maximum(log_probs, log_probs.dtype.min)

    def multi_entropy(self) -> Any:
        """Return the entropy of each bit, `[B, n]`."""
        return -(self._p * self.log_p + self._q * self.log_q)

    def multi_kl(self, other: Any) -> Any:
        """Return the KL divergence for each bit, `[B, n]`."""
        same_kind(self, other)
        return self._p * (self.log_p - other.log_p) + self._q * (self.log_q - other.log_q)


#: `logp` treats smaller entries as zero, because their reciprocals, which occur in gradients, may
#: be infinite.
_FLOOR = {tf.float32: 1e-30, tf.float64: 1e-290}


class GumbelSoftmax(common.GumbelSoftmaxBase):
    """Relaxed one-hot vectors `[B, n]`, with gradients; see `GumbelSoftmaxBase`."""

    framework_of_class = "tf"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        common.check_temperature(temperature)
        super().__init__(tf.convert_to_tensor(inputs), model)
        self.temperature = temperature
        logits = to_float32_at_least(self.inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; finite, and float32 for
        #: half-precision inputs.
        self.log_probs = tf.maximum(tf.nn.log_softmax(logits), logits.dtype.min)

    def sample(self) -> Any:
        """Sample relaxed one-hot vectors `[B, n]`, without gradients."""
        self.last_sample = tf.stop_gradient(self.rsample())
        return self.last_sample

    def rsample(self, straight_through: bool = False) -> Any:
        """Draw relaxed one-hot vectors `[B, n]`, with gradients.

        Args:
            straight_through: Return exact one-hot vectors instead, with the gradient of the relaxed
                ones.
        """
        uniform = draw_uniform(tf.shape(self.log_probs), self.log_probs.dtype)
        noise = tf.math.log(-tf.math.log(uniform))
        soft = tf.cast(
            tf.nn.softmax((self.log_probs - noise) / self.temperature), self.inputs.dtype
        )
        if not straight_through:
            return soft
        hard = tf.one_hot(tf.argmax(soft, axis=-1), soft.shape[-1], dtype=soft.dtype)
        return hard + (soft - tf.stop_gradient(soft))

    def deterministic_sample(self) -> Any:
        """Return the one-hot vector `[B, n]` of the most likely value."""
        best = tf.argmax(self.inputs, axis=-1)
        self.last_sample = tf.one_hot(best, self.inputs.shape[-1], dtype=self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]`.

        An entry of 0 was too small for the dtype; a sample with such entries lies on a face of the
        simplex. For such a sample, `logp` adds two terms: the log density on the face of the other
        entries, and the log probability that the largest entry is among them. All results are
        finite. Interior points have the log density of the Concrete distribution; exact one-hot
        vectors have the log probability of their value under `Categorical`.

        Args:
            actions: Exact or relaxed one-hot vectors `[B, n]`, or values `[B]` or `[B, 1]`, which
                are treated as one-hot vectors.

        Raises:
            ModelContractError: The actions do not have this shape.
        """
        log_probs = self.log_probs
        dtype, n = log_probs.dtype, log_probs.shape[-1]
        x = tf.convert_to_tensor(actions)
        given = x.shape
        if n > 1 and (x.shape.rank == 1 or (x.shape.rank == 2 and x.shape[1] == 1)):
            x = tf.one_hot(tf.reshape(tf.cast(x, tf.int64), [-1]), n)
        if not x.shape.is_compatible_with(log_probs.shape):
            raise common.wrong_actions(log_probs.shape, given)
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


class SlateMultiCategorical(common.SlateMultiCategoricalBase, Categorical):
    """Distribution over the slates in a list, `[B, k]`; see `SlateMultiCategoricalBase`."""

    @classmethod
    def _allowed(cls, mask: Any, columns: Any) -> Any:
        return tf.reduce_all(tf.gather(tf.cast(mask, tf.bool), columns, axis=1), axis=-1)

    def _slates_of(self, index: Any) -> Any:
        self.last_sample = tf.gather(self.slates.table, index)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of slates `[B, k]`; for unknown slates, it is the lowest
        finite number.
        """
        slates = self.slates
        items = tf.reshape(
            tf.cast(actions, tf.int64), [tf.shape(self.inputs)[0], len(slates.weights)]
        )
        code = tf.reduce_sum(items * slates.weights, axis=-1)
        place = tf.minimum(tf.searchsorted(slates.codes, code), len(slates.codes) - 1)
        known = (tf.gather(slates.codes, place) == code) & tf.reduce_all(
            (items >= 0) & (items < slates.items), axis=-1
        )
        found = tf.gather(self.log_probs, tf.gather(slates.order, place), batch_dims=1)
        return tf.where(known, found, found.dtype.min)
