"""The complex-input network in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlcatalog.frameworks import Tensor
from rlcatalog.models import ModelV2
from rlcatalog_complex_input.common import ComplexInput
from rlcatalog_complex_input.parts import Inputs
from rlcatalog_complex_input.plans import Net
from rlcatalog_tf import OPS, DenseStack, OutputLayers, TFModelV2, tf


class ComplexInputNetwork(ComplexInput, TFModelV2):
    """One network for each part of the observation; see `ComplexInput`."""

    ops = OPS
    stack_class = DenseStack
    outputs_class = OutputLayers
    list_class = list

    @staticmethod
    def dtype_of(_model: ModelV2) -> Any:
        """Return float32, the dtype of all weights in TensorFlow."""
        return tf.float32

    def _build(self, nets: tuple[Net, ...], name: str) -> Any:
        models = super()._build(nets, name)
        for net, model in zip(nets, models, strict=True):
            # Keras layers create their variables in the first call, which must not be inside a
            # `tf.function`. Only Keras' objects have the attribute `built`.
            if any(getattr(value, "built", True) is False for value in vars(model).values()):
                model({"obs": tf.zeros([1, *net.part.shape]), "is_training": False})
        return models

    def _join(self, nets: Iterable[ModelV2], inputs: Inputs, is_training: bool | Tensor) -> Any:
        return tf.cast(super()._join(nets, inputs, is_training), tf.float32)
