"""Distributions over choices in TensorFlow: one or several choices, bits, relaxed one-hot vectors,
slates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from gymnasium import Space
from numpy.typing import ArrayLike

from rlcatalog import ModelV2
from rlcatalog.actions import check_same_kind
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_categorical import common
from rlcatalog_categorical.choice_columns import counts_of, layout_of
from rlcatalog_tf import OPS, draw_categorical, draw_uniform, tf, to_float32_at_least


def tempered(logits: Tensor, temperature: float) -> Any:
    """Divide logits by a temperature; masked values stay masked, and all logits stay finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    common.check_temperature(temperature)
    lowest = logits.dtype.min
    quotients = tf.clip_by_value(logits / temperature, lowest, logits.dtype.max)
    # A mask has set the logits of forbidden values to the lowest finite number.
    is_allowed = logits > lowest
    return tf.where(is_allowed, quotients, lowest)


class Categorical(common.CategoricalBase):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; see `CategoricalBase`."""

    framework_of_class = "tf"

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, temperature: float = 1.0
    ) -> None:
        # Engines store the model's outputs, and rebuild the distribution with its temperature.
        super().__init__(tf.convert_to_tensor(inputs), model)
        self._logits = self.inputs
        if temperature != 1.0:
            self._logits = tempered(self.inputs, temperature)

    @cached_property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, n]`."""
        # The lowest finite value replaces -inf, so that 0 · log 0 is not NaN.
        return tf.maximum(tf.nn.log_softmax(self._logits), self.inputs.dtype.min)

    def sample(self) -> Any:
        """Sample values, int64 `[B]`."""
        # The index of the smallest of exponential variables, each divided by its probability.
        # Logs of uniform numbers are minus exponential variables, so theirs is the largest.
        probs = tf.exp(to_float32_at_least(self.log_probs))
        logs = tf.math.log(draw_uniform(tf.shape(probs), probs.dtype))
        self.last_sample = tf.argmax(logs / probs, axis=-1)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely value, int64 `[B]`."""
        self.last_sample = tf.argmax(self.inputs, axis=-1)
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log probability `[B]` of values with shape `[B]` or `[B, 1]`."""
        # The last sample is int64 `[B]` already.
        if actions is not self.last_sample:
            actions = tf.reshape(tf.cast(actions, tf.int64), [-1])
        return tf.gather(self.log_probs, actions, batch_dims=1)

    def entropy(self) -> Any:
        """Return the entropy -Σ p log p, `[B]`."""
        return -tf.reduce_sum(tf.exp(self.log_probs) * self.log_probs, axis=-1)

    def kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence Σ p (log p - log q), `[B]`."""
        check_same_kind(self, other)
        return tf.reduce_sum(tf.exp(self.log_probs) * (self.log_probs - other.log_probs), axis=-1)


class Quantiles(Categorical, common.QuantilesBase):
    """Distribution over `{0, …, n-1}` from quantiles `[B, num_quantiles · n]`; see
    `QuantilesBase`.
    """

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, num_quantiles: int = 200
    ) -> None:
        inputs = tf.convert_to_tensor(inputs)
        common.check_quantiles(inputs.shape, num_quantiles)
        count = inputs.shape[-1] // num_quantiles
        #: Quantiles `[B, num_quantiles, n]`.
        self.quantiles = tf.reshape(inputs, [-1, num_quantiles, count])
        # A mask sets quantiles to the lowest finite number, whose sum is infinite.
        self._means = tf.maximum(tf.reduce_mean(self.quantiles, axis=1), inputs.dtype.min)
        super().__init__(inputs, model)

    @cached_property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, n]`."""
        return tf.maximum(tf.nn.log_softmax(self._means), self.inputs.dtype.min)

    def deterministic_sample(self) -> Any:
        """Return the value with the highest mean, int64 `[B]`."""
        self.last_sample = tf.argmax(self._means, axis=-1)
        return self.last_sample


class MultiCategorical(common.MultiCategoricalBase):
    """Independent choices `[B, k]`, each starting at 0; see `MultiCategoricalBase`."""

    framework_of_class = "tf"
    ops = OPS
    choice_class = Categorical

    def __init__(
        self,
        inputs: Tensor,
        model: ModelV2 | None = None,
        input_lens: ArrayLike | None = None,
        action_space: Space[Any] | None = None,
    ) -> None:
        # The catalog passes a tuple, which needs no conversion; a user may pass a list.
        if not isinstance(input_lens, tuple):
            input_lens = counts_of(input_lens, action_space)
        layout = layout_of(input_lens)
        self.layout = layout
        super().__init__(tf.convert_to_tensor(inputs), model)
        logits = self.inputs
        if len(logits.shape) != 2 or logits.shape[1] != layout.total:
            raise layout.wrong_width(logits.shape)
        if layout.padded_columns is not None:
            # A column of -inf after the last one: the layout takes it as padding.
            with_padding = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
            logits = tf.gather(with_padding, layout.padded_columns, axis=1)
        #: Logits `[B, k, longest]`; -inf in the padding of shorter choices.
        self.logits = tf.reshape(logits, [-1, len(layout.counts), layout.longest])

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
        # Where a logit is NaN, `draw_categorical` returns an index out of range.
        indices = tf.minimum(draw_categorical(flat), self.layout.longest - 1)
        self.last_sample = tf.reshape(indices, [-1, len(self.layout.counts)])
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Return the most likely values, int64 `[B, k]`."""
        self.last_sample = tf.argmax(self.logits, axis=-1)
        return self.last_sample

    def logp(self, actions: Tensor | Sequence[Tensor]) -> Any:
        """Return the log probability `[B]`, summed over the choices.

        Args:
            actions: `[B, k]` or `[B, *shape]` in C order, or a list of k tensors or arrays `[B]`.
        """
        # The last sample is int64 `[B, k]` already.
        if actions is not self.last_sample:
            actions = self._indices(actions)
        log_probs = tf.reduce_sum(tf.gather(self.log_probs, actions, batch_dims=2), axis=-1)
        # The sum of two forbidden values' log probabilities exceeds the dtype's range.
        return tf.maximum(log_probs, log_probs.dtype.min)

    def _indices(self, actions: Tensor | Sequence[Tensor]) -> Any:
        """Return actions in any form as int64 `[B, k]`."""
        # The caller's tensors or arrays, one for each choice; nested lists of numbers are rows.
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            values = tf.stack([tf.reshape(column, [-1]) for column in actions], axis=1)
        else:
            values = tf.convert_to_tensor(actions)
        self.layout.check_actions(values.shape, self.inputs.shape[0])
        return tf.reshape(tf.cast(values, tf.int64), [-1, len(self.layout.counts)])

    def entropy(self) -> Any:
        """Return the sum of the choices' entropies, `[B]`."""
        return -tf.reduce_sum(self.probs * self.log_probs, axis=[-2, -1])

    def multi_entropy(self) -> Any:
        """Return the entropy of each choice, `[B, k]`."""
        return -tf.reduce_sum(self.probs * self.log_probs, axis=-1)

    def _divergence_terms(self, other: Self) -> Any:
        """Return the terms p (log p - log q), `[B, k, longest]`."""
        check_same_kind(self, other)
        self.layout.check_same(other.layout)
        return self.probs * (self.log_probs - other.log_probs)


Categorical.joint_class = MultiCategorical


class Bernoulli(common.BernoulliBase):
    """Independent bits `[B, n]`, with one logit each; see `BernoulliBase`."""

    framework_of_class = "tf"
    ops = OPS

    def __init__(self, inputs: Tensor, model: ModelV2 | None = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        #: Log probabilities `[B, n]` of 1; finite.
        self.log_p = tf.math.log_sigmoid(self.inputs)
        #: Log probabilities `[B, n]` of 0; finite. Numerically stable: log(1 - p) would lose small
        #: probabilities.
        self.log_q = tf.math.log_sigmoid(-self.inputs)
        self._p = tf.exp(self.log_p)
        self._q = tf.exp(self.log_q)

    @classmethod
    def masked(
        cls,
        inputs: Tensor,
        mask: Tensor,
        **options: Any,  # noqa: ARG003  (ActionDistribution's signature)
    ) -> Any:
        """Apply a mask `[B, 2n]`, which says for each bit whether it may be 0 and whether it may be
        1.

        Raises:
            ActionMaskError: The mask does not have two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise common.wrong_mask(inputs, mask)
        allowed = tf.cast(mask, tf.bool)
        allows_0 = allowed[:, ::2]
        allows_1 = allowed[:, 1::2]
        inputs = tf.where(allows_0, inputs, inputs.dtype.max)
        return tf.where(allows_1, inputs, inputs.dtype.min)

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

    def logp(self, actions: Tensor) -> Any:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed
        over the bits.
        """
        if actions is not self.last_sample:
            actions = tf.reshape(actions, tf.shape(self.inputs))
        of_bits = tf.where(tf.cast(actions, tf.bool), self.log_p, self.log_q)
        log_probs = tf.reduce_sum(of_bits, axis=-1)
        # The sum of two forbidden bits' log probabilities exceeds the dtype's range.
        return tf.maximum(log_probs, log_probs.dtype.min)

    def multi_entropy(self) -> Any:
        """Return the entropy of each bit, `[B, n]`."""
        return -(self._p * self.log_p + self._q * self.log_q)

    def multi_kl(self, other: Self) -> Any:  # type: ignore[override]  # of the same kind
        """Return the KL divergence for each bit, `[B, n]`."""
        check_same_kind(self, other)
        return self._p * (self.log_p - other.log_p) + self._q * (self.log_q - other.log_q)


#: `logp` treats smaller entries as zero, because their reciprocals, which occur in gradients, may
#: be infinite.
_FLOOR = {tf.float32: 1e-30, tf.float64: 1e-290}


class GumbelSoftmax(common.GumbelSoftmaxBase):
    """Relaxed one-hot vectors `[B, n]`, with gradients; see `GumbelSoftmaxBase`."""

    framework_of_class = "tf"

    def __init__(
        self, inputs: Tensor, model: ModelV2 | None = None, temperature: float = 1.0
    ) -> None:
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
        # Minus the log of an exponential variable is Gumbel noise.
        uniform = draw_uniform(tf.shape(self.log_probs), self.log_probs.dtype)
        log_exponential = tf.math.log(-tf.math.log(uniform))
        relaxed = tf.nn.softmax((self.log_probs - log_exponential) / self.temperature)
        relaxed = tf.cast(relaxed, self.inputs.dtype)
        if not straight_through:
            return relaxed
        best = tf.argmax(relaxed, axis=-1)
        exact = tf.one_hot(best, relaxed.shape[-1], dtype=relaxed.dtype)
        # The difference is zero, but has the gradient of the relaxed vectors.
        return exact + (relaxed - tf.stop_gradient(relaxed))

    def deterministic_sample(self) -> Any:
        """Return the one-hot vector `[B, n]` of the most likely value."""
        best = tf.argmax(self.inputs, axis=-1)
        self.last_sample = tf.one_hot(best, self.inputs.shape[-1], dtype=self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
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
        dtype = log_probs.dtype
        temperature = self.temperature
        x = self._vectors(actions)
        is_inside = x > _FLOOR[dtype]  # smaller entries count as 0
        count = tf.reduce_sum(tf.cast(is_inside, dtype), axis=-1)
        log_x = tf.math.log(tf.where(is_inside, x, tf.ones_like(x)))
        minus_inf = tf.fill(tf.shape(x), tf.constant(float("-inf"), dtype))
        # The density of the Concrete distribution over the entries that are not 0, as a log:
        # (count - 1)! temperature^(count - 1) Π p x^-(temperature + 1) / (Σ p x^-temperature)^count
        terms = tf.where(is_inside, log_probs - temperature * log_x, minus_inf)
        products = tf.where(is_inside, log_probs - (temperature + 1) * log_x, tf.zeros_like(x))
        density = (
            tf.math.lgamma(count)
            + (count - 1) * math.log(temperature)
            + tf.reduce_sum(products, axis=-1)
            - count * tf.reduce_logsumexp(terms, axis=-1)
        )
        log_prob_of_face = tf.reduce_logsumexp(tf.where(is_inside, log_probs, minus_inf), axis=-1)
        result_dtype = self.inputs.dtype
        finite = tf.clip_by_value(density + log_prob_of_face, result_dtype.min, result_dtype.max)
        return tf.cast(finite, result_dtype)

    def _vectors(self, actions: Tensor) -> Any:
        """Return actions in any form as exact or relaxed one-hot vectors `[B, n]`.

        Raises:
            ModelContractError: The actions have a different shape.
        """
        shape = self.log_probs.shape
        n = shape[-1]
        values = tf.convert_to_tensor(actions)
        vectors = values
        rank = values.shape.rank
        has_one_value_per_row = rank == 1 or (rank == 2 and values.shape[1] == 1)
        # For n = 1, a column of values is a column of one-hot vectors.
        if has_one_value_per_row and n > 1:
            vectors = tf.one_hot(tf.reshape(tf.cast(values, tf.int64), [-1]), n)
        if not vectors.shape.is_compatible_with(shape):
            raise common.wrong_actions(shape, values.shape)
        return tf.cast(vectors, self.log_probs.dtype)


class SlateMultiCategorical(common.SlateMultiCategoricalBase, Categorical):
    """Distribution over the slates in a list, `[B, k]`; see `SlateMultiCategoricalBase`."""

    @classmethod
    def _allowed(cls, mask: Tensor, columns: Array) -> Any:
        return tf.reduce_all(tf.gather(tf.cast(mask, tf.bool), columns, axis=1), axis=-1)

    def _slates_of(self, index: Tensor) -> Any:
        self.last_sample = tf.gather(self.slates.table, index)
        return self.last_sample

    def logp(self, actions: Tensor) -> Any:
        """Return the log probability `[B]` of slates `[B, k]`; for unknown slates, it is the lowest
        finite number.
        """
        slates = self.slates
        rows = tf.shape(self.inputs)[0]
        items = tf.reshape(tf.cast(actions, tf.int64), [rows, len(slates.weights)])
        code = tf.reduce_sum(items * slates.weights, axis=-1)
        # Where the slate's number is among the sorted numbers, if it is known.
        place = tf.minimum(tf.searchsorted(slates.codes, code), len(slates.codes) - 1)
        # Items out of range could add up to the number of a different slate.
        has_known_items = tf.reduce_all((items >= 0) & (items < slates.items), axis=-1)
        is_known = (tf.gather(slates.codes, place) == code) & has_known_items
        index = tf.gather(slates.order, place)
        log_probs = tf.gather(self.log_probs, index, batch_dims=1)
        return tf.where(is_known, log_probs, log_probs.dtype.min)
