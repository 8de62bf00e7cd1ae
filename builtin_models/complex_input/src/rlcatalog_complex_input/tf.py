"""The complex-input network in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog_complex_input.common import ComplexInput
from rlcatalog_complex_input.parts import Inputs
from rlcatalog_complex_input.plans import Net
from rlcatalog_tf import OPS, DenseStack, OutputLayers, TFModelV2, tf


class ComplexInputNetwork(ComplexInput, TFModelV2):
    """One network for each part of the observation; see `ComplexInput`."""

    ops, stack_class, outputs_class, list_class = OPS, DenseStack, OutputLayers, list
    dtype_of = staticmethod(lambda model: tf.float32)

    def _build(self, nets: tuple[Net, ...], name: str) -> Any:
        models = super()._build(nets, name)
        for net, model in zip(nets, models, strict=True):
            # Keras layers create their variables in the first call, which must not be inside a
            # `tf.function`.
            if any(getattr(value, "built", True) is False for value in vars(model).values()):
                model({"obs": tf.zeros([1, *net.part.shape]), "is_training": False})
        return models

    def _join(self, nets: Any, inputs: Inputs, is_training: Any) -> Any:
        return tf.cast(super()._join(nets, inputs, is_training), tf.float32)
