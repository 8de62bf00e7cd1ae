"""Parametric actions in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog_parametric.common import ParametricHead
from rlcatalog_tf import OPS, OutputLayers, TFModelV2, features_of, flatten_rows, sequence_mask, tf


class ParametricActionsHead(ParametricHead, TFModelV2):
    """Logits for actions that the observation describes; see `ParametricHead`.

    Inside a caller's `tf.function`, a row that allows no action raises TensorFlow's
    InvalidArgumentError, unless `is_training` is set.
    """

    ops, outputs_class, features_of = OPS, OutputLayers, staticmethod(features_of)

    def _unmasked(self, leaves: list[Any]) -> Any:
        values = tf.concat([tf.cast(flatten_rows(leaf), tf.float32) for leaf in leaves], axis=1)
        assert self._shown is not None
        if self._shown.places is not None:
            values = tf.gather(values, self._shown.places, axis=1)
        return tf.not_equal(values, tf.constant(self._shown.forbidding, tf.float32))

    def _products(self, embeddings: Any, intent: Any) -> Any:
        return tf.linalg.matvec(embeddings, intent)

    def _check(self, allowed: Any, input_dict: dict[str, Any], seq_lens: Any) -> None:
        eager = tf.executing_eagerly()
        if not eager and input_dict.get("is_training"):
            return
        if seq_lens is not None and not input_dict.get("single_steps"):  # padding allows no action
            real = sequence_mask(seq_lens, tf.shape(allowed)[0] // tf.shape(seq_lens)[0])
            allowed |= ~tf.reshape(real, [-1, 1])
        assert self._masks is not None
        if eager:
            self._masks.matrix(allowed.numpy())
            return
        for path, columns in self._masks.by_choice(allowed):
            some = tf.reduce_any(columns, axis=1)
            row = tf.argmin(tf.cast(some, tf.int32))
            tf.debugging.Assert(
                tf.reduce_all(some), ["mask: row", row, f"allows no value for {path}"]
            )
