"""The complex-input network in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog_complex_input.network import ComplexInput
from rlcatalog_complex_input.parts import Inputs
from rlcatalog_complex_input.plans import Net, OneHot
from rlcatalog_tf import OPS, DenseStack, OutputLayers, TFModelV2, tf


class _Hot:
    """One-hots of integers `[N, *shape]`, as `[N, n]`."""

    def __init__(self, hot: OneHot) -> None:
        self.entries, self.values = hot.entries, hot.values

    def __call__(self, x: Any) -> Any:
        """Set one column per entry."""
        x = tf.reshape(tf.cast(x, tf.int64), [-1, int(self.entries[-1]) + 1])
        return tf.cast(tf.gather(x, self.entries, axis=1) == self.values, tf.float32)


class ComplexInputNetwork(ComplexInput, TFModelV2):
    """A net for each part of the observation; see `ComplexInput`."""

    ops, stack_class, outputs_class = OPS, DenseStack, OutputLayers
    list_class, one_hot_class = list, _Hot

    def _dtype(self) -> Any:
        return tf.float32

    def _build(self, nets: tuple[Net, ...], name: str) -> Any:
        models = super()._build(nets, name)
        for net, model in zip(nets, models, strict=True):
            # Keras layers make their variables at the first call, which must not be inside a `tf.function`.
            if any(getattr(value, "built", True) is False for value in vars(model).values()):
                model({"obs": tf.zeros([1, *net.part.shape]), "is_training": False})
        return models

    def _join(self, nets: Any, inputs: Inputs, is_training: Any) -> Any:
        return tf.cast(super()._join(nets, inputs, is_training), tf.float32)
