"""A distribution over slates in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog_categorical.slates.contract import SlateMultiCategoricalContract
from rlcatalog_categorical.tf import Categorical
from rlcatalog_tf import tf


class SlateMultiCategorical(SlateMultiCategoricalContract, Categorical):
    """Distribution over a list of slates `[B, k]`; see `SlateMultiCategoricalContract`."""

    @classmethod
    def _allowed(cls, mask: Any, columns: Any) -> Any:
        return tf.reduce_all(tf.gather(tf.cast(mask, tf.bool), columns, axis=1), axis=-1)

    def _slates_of(self, index: Any) -> Any:
        self.last_sample = tf.gather(self.slates.table, index)
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log probability `[B]` of slates `[B, k]`; of one not in the list the lowest finite number."""
        slates = self.slates
        items = tf.reshape(tf.cast(actions, tf.int64), [tf.shape(self.inputs)[0], len(slates.weights)])
        code = tf.reduce_sum(items * slates.weights, axis=-1)
        place = tf.minimum(tf.searchsorted(slates.codes, code), len(slates.codes) - 1)
        known = (tf.gather(slates.codes, place) == code) & tf.reduce_all((items >= 0) & (items < slates.items), axis=-1)
        found = tf.gather(self.log_probs, tf.gather(slates.order, place), batch_dims=1)
        return tf.where(known, found, found.dtype.min)
