"""Several independent choices in TensorFlow, all in one padded operation."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import same_kind
from rlcatalog_categorical.multi.choice_columns import (
    check_actions,
    check_width,
    layout_of,
    lens_of,
    same_lens,
)
from rlcatalog_categorical.multi.contract import MultiCategoricalContract
from rlcatalog_categorical.tf import Categorical
from rlcatalog_tf import draw_categorical, tf


class MultiCategorical(MultiCategoricalContract):
    """Independent choices `[B, k]`, each counting from 0; see `MultiCategoricalContract`."""

    framework_of_class = "tf"
    choice = Categorical

    # Computed at first use.
    _log_probs: Any = None
    _probs: Any = None

    def __init__(self, inputs: Any, model: Any = None, input_lens: Any = None, action_space: Any = None) -> None:
        self.layout = layout_of(input_lens if type(input_lens) is tuple else lens_of(input_lens, action_space))
        super().__init__(tf.convert_to_tensor(inputs), model)
        check_width(self.inputs.shape, self.layout)
        inputs, layout = self.inputs, self.layout
        if layout.index is not None:
            padded = tf.pad(inputs, [[0, 0], [0, 1]], constant_values=float("-inf"))
            inputs = tf.gather(padded, layout.index, axis=1)
        #: Logits `[B, k, longest]`; -inf in the padding of shorter choices.
        self.logits = tf.reshape(inputs, [-1, len(layout.lens), layout.longest])

    @property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, k, longest]`; the lowest finite value in the padding."""
        if self._log_probs is None:
            # The lowest finite value stands in for -inf, which 0 · log 0 would make NaN.
            self._log_probs = tf.maximum(tf.nn.log_softmax(self.logits), self.logits.dtype.min)
            self._probs = tf.exp(self._log_probs)
        return self._log_probs

    def sample(self) -> Any:
        """Draw int64 `[B, k]`, anew at each call."""
        flat = tf.reshape(self.logits, [-1, self.layout.longest])
        drawn = tf.minimum(draw_categorical(flat), self.layout.longest - 1)  # of NaN it draws one too many
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
        # Two forbidden values together have a log probability beyond the dtype.
        return tf.maximum(log_probs, log_probs.dtype.min)

    def _indices(self, actions: Any) -> Any:
        """Return actions in any form as int64 `[B, k]`."""
        if isinstance(actions, list | tuple) and actions and hasattr(actions[0], "shape"):
            actions = tf.stack([tf.reshape(part, [-1]) for part in actions], axis=1)
        else:
            actions = tf.convert_to_tensor(actions)
        check_actions(actions.shape, self.inputs.shape[0], self.layout)
        return tf.reshape(tf.cast(actions, tf.int64), [-1, len(self.layout.lens)])

    def entropy(self) -> Any:
        """Return the sum of the choices' entropies, `[B]`."""
        log_probs = self.log_probs
        return -tf.reduce_sum(self._probs * log_probs, axis=[-2, -1])

    def multi_entropy(self) -> Any:
        """Return the entropy of each choice, `[B, k]`."""
        log_probs = self.log_probs
        return -tf.reduce_sum(self._probs * log_probs, axis=-1)

    def kl(self, other: Any) -> Any:
        """Return the sum of the choices' divergences, `[B]`."""
        divergence = tf.reduce_sum(self._divergences(other), axis=[-2, -1])
        return tf.minimum(divergence, divergence.dtype.max)

    def multi_kl(self, other: Any) -> Any:
        """Return the divergence of each choice, `[B, k]`."""
        divergence = tf.reduce_sum(self._divergences(other), axis=-1)
        return tf.minimum(divergence, divergence.dtype.max)

    def _divergences(self, other: Any) -> Any:
        same_kind(self, other)
        same_lens(self.layout, other.layout)
        log_probs = self.log_probs
        return self._probs * (log_probs - other.log_probs)
