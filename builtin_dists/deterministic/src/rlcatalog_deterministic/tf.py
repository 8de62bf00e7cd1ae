"""The deterministic distribution in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog_deterministic.common import DeterministicBase
from rlcatalog_tf import OPS, tf


class Deterministic(DeterministicBase):
    """Point mass: the action equals the inputs `[B, d]`; see `DeterministicBase`."""

    framework_of_class, ops = "tf", OPS

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)

    def logp(self, actions: Any) -> Any:
        """Return zeros `[B]` for all actions; rows whose inputs contain NaN yield NaN."""
        nan = tf.reduce_any(tf.math.is_nan(self.inputs), axis=-1)
        return tf.where(nan, tf.cast(float("nan"), self.inputs.dtype), 0)

    def entropy(self) -> Any:
        """Return zeros `[B]`, because sampling is deterministic."""
        return tf.zeros(tf.shape(self.inputs)[:1], self.inputs.dtype)
