"""Noise in TensorFlow, from which distributions sample instead of using a policy's generator."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog_export.noise import LEAST, MOST, Noise
from rlcatalog_tf import tf


def _first(is_chosen: Tensor, x: Tensor) -> Any:
    """Return the first chosen value along the last axis, or the first value if none is chosen."""
    place = tf.argmax(tf.cast(is_chosen, tf.int32), axis=-1)[..., None]
    return tf.gather(x, place, batch_dims=x.shape.rank - 1)[..., 0]


class TFNoise(Noise):
    """Noise for TensorFlow, usable inside traced functions."""

    math = SimpleNamespace(
        log=tf.math.log,
        sqrt=tf.sqrt,
        rsqrt=tf.math.rsqrt,
        cos=tf.cos,
        sin=tf.sin,
        where=tf.where,
        concat=tf.concat,
        reshape=tf.reshape,
        shape=tf.shape,
        at_least=tf.maximum,
        first=_first,
    )

    def sizes(self, shape: Any) -> Sequence[Any]:
        """Return a shape as a sequence of sizes."""
        if tf.is_tensor(shape):
            return tf.unstack(shape)  # type: ignore[no-any-return]
        return list(shape)

    def numbers(self, columns: Tensor, shape: Sequence[Any] | Tensor, dtype: Any) -> Any:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        inside = tf.clip_by_value(columns, LEAST, MOST)
        return tf.cast(tf.reshape(inside, shape), dtype)

    def categorical(self, logits: Tensor) -> Any:
        """Return an index for each row, int64 `[B, 1]`: the argmin of exponential variables with
        these rates.
        """
        uniform = self.uniform(tf.shape(logits), logits.dtype)
        log_times = tf.math.log(-tf.math.log(uniform))
        # The first to ring has the least time over its rate.
        return tf.argmax(logits - log_times, axis=1)[:, None]
