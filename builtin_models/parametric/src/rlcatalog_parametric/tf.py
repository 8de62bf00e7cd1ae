"""Parametric actions in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog_parametric.common import ParametricHead
from rlcatalog_tf import OPS, OutputLayers, TFModelV2, features_of, flatten_rows, sequence_mask, tf


class ParametricActionsHead(ParametricHead, TFModelV2):
    """Logits for actions that the observation describes; see `ParametricHead`.

    Inside a caller's `tf.function`, a row that allows no action raises TensorFlow's
    InvalidArgumentError, unless `is_training` is set.
    """

    ops = OPS
    outputs_class = OutputLayers
    features_of = staticmethod(features_of)

    def _read_mask(self, leaves: list[Any]) -> Any:
        values = tf.concat([tf.cast(flatten_rows(leaf), tf.float32) for leaf in leaves], axis=1)
        assert self._mask is not None
        if self._mask.places is not None:
            values = tf.gather(values, self._mask.places, axis=1)
        return tf.not_equal(values, tf.constant(self._mask.forbidding, tf.float32))

    def _products(self, embeddings: Tensor, intent: Tensor) -> Any:
        return tf.linalg.matvec(embeddings, intent)

    def _check_rows(
        self, allowed: Any, input_dict: dict[str, Any], seq_lens: Tensor | None
    ) -> None:
        """Raise an error if a row allows no value."""
        is_eager = tf.executing_eagerly()
        is_traced_training = not is_eager and input_dict.get("is_training")
        if is_traced_training:
            return  # training steps are traced without this check
        if seq_lens is not None and not input_dict.get("single_steps"):
            # Padding allows no action; let it pass the check.
            is_real = sequence_mask(seq_lens, tf.shape(allowed)[0] // tf.shape(seq_lens)[0])
            allowed |= ~tf.reshape(is_real, [-1, 1])
        assert self._row_check is not None
        if is_eager:
            # Called for its check; it raises an ActionMaskError.
            self._row_check.matrix(allowed.numpy())
            return
        # In a trace, the check is an operation for each choice of the action.
        for path, allows_any in self._row_check.allowing(allowed):
            first_without = tf.argmin(tf.cast(allows_any, tf.int32))
            message = ["mask: row", first_without, f"allows no value for {path}"]
            tf.debugging.Assert(tf.reduce_all(allows_any), message)
