"""The deterministic distribution in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog import ModelV2
from rlcatalog.frameworks import Tensor
from rlcatalog_deterministic.common import DeterministicBase
from rlcatalog_tf import OPS, tf


class Deterministic(DeterministicBase):
    """Point mass: the action equals the inputs `[B, d]`; see `DeterministicBase`."""

    framework_of_class = "tf"
    ops = OPS

    def __init__(self, inputs: Tensor, model: ModelV2 | None = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)

    def logp(self, actions: Tensor) -> Any:
        """Return zeros `[B]` for all actions; rows whose inputs contain NaN yield NaN."""
        has_nan = tf.reduce_any(tf.math.is_nan(self.inputs), axis=-1)
        nan = tf.cast(float("nan"), self.inputs.dtype)
        return tf.where(has_nan, nan, 0)

    def entropy(self) -> Any:
        """Return zeros `[B]`, because sampling is deterministic."""
        return tf.zeros(tf.shape(self.inputs)[:1], self.inputs.dtype)
