"""Noise in TensorFlow, from which distributions sample instead of using a policy's generator."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rlcatalog_export.noise import LEAST, MOST, Noise
from rlcatalog_tf import tf


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
        first=lambda taken, x: tf.gather(
            x, tf.argmax(tf.cast(taken, tf.int32), axis=-1)[..., None], batch_dims=x.shape.rank - 1
        )[..., 0],
    )

    def sizes(self, shape: Any) -> Sequence[Any]:
        """Return a shape as a sequence of sizes."""
        return tf.unstack(shape) if tf.is_tensor(shape) else list(shape)

    def numbers(self, columns: Any, shape: Any, dtype: Any) -> Any:
        """Return the next columns of the noise, excluding 0 and 1, with the given
        shape and dtype.
        """
        return tf.cast(tf.reshape(tf.clip_by_value(columns, LEAST, MOST), shape), dtype)

    def categorical(self, logits: Any) -> Any:
        """Return an index for each row, int64 `[B, 1]`: the argmin of exponential variables with
        these rates.
        """
        clocks = tf.math.log(-tf.math.log(self.uniform(tf.shape(logits), logits.dtype)))
        return tf.argmax(logits - clocks, axis=1)[:, None]
