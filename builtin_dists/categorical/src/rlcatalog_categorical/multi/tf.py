"""Several independent choices in TensorFlow, all in one padded operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution, BoundDistribution, DistPart, same_kind
from rlcatalog.tf import tf
from rlcatalog_categorical.multi.choice_columns import (
    check_actions,
    check_width,
    choices,
    layout_of,
    lens_of,
    same_lens,
)
from rlcatalog_categorical.plugin import input_lens as lens_of_space, multi_size
from rlcatalog_categorical.tf import Categorical


class MultiCategorical(ActionDistribution):
    """Independent choices `[B, k]`, each counting from 0; the adapter adds a space's lowest values.

    Args:
        inputs: Logits `[B, Σ input_lens]`, unnormalised, those of the first choice first.
        model: The model that made them, or None.
        input_lens: Number of values of each choice: a list, tuple or array (of any rank, read in C order).
        action_space: A MultiDiscrete space or a Box of integers to take them from when they are missing.
    """

    framework_of_class = "tf"

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
    def input_lens(self) -> tuple[int, ...]:
        """Number of values of each choice."""
        return self.layout.lens

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return the sum of the numbers of values."""
        return multi_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return `input_lens`."""
        return {"input_lens": lens_of_space(action)}

    @property
    def log_probs(self) -> Any:
        """Normalised log probabilities `[B, k, longest]`; the lowest finite value in the padding."""
        if self._log_probs is None:
            # The lowest finite value stands in for -inf, which 0 · log 0 would make NaN.
            self._log_probs = tf.maximum(tf.nn.log_softmax(self.logits), self.logits.dtype.min)
            self._probs = tf.exp(self._log_probs)
        return self._log_probs

    @classmethod
    def parts(cls, action: SpaceInfo, size: int, options: Mapping[str, Any]) -> list[DistPart]:
        return [DistPart(choice, Categorical, choice.n or 0) for choice in choices(action, options["input_lens"])]

    @classmethod
    def family(cls, options: Mapping[str, Any]) -> Any:
        """Join all choices."""
        return "choices" if cls is MultiCategorical and set(options) == {"input_lens"} else None

    @classmethod
    def side_by_side(cls, members: Sequence[tuple[Mapping[str, Any], int]]) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return one MultiCategorical over all choices; a Categorical is one choice."""
        lens = tuple(n for options, size in members for n in options.get("input_lens", (size,)))
        return BoundDistribution(MultiCategorical, {"input_lens": lens}), [
            (i, 0, size) for i, (_, size) in enumerate(members)
        ]

    def sample(self) -> Any:
        """Draw int64 `[B, k]`, anew at each call."""
        flat = tf.reshape(self.logits, [-1, self.layout.longest])
        drawn = tf.minimum(tf.random.categorical(flat, 1), self.layout.longest - 1)  # of NaN it draws one too many
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
