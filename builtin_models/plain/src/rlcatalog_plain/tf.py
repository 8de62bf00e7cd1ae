"""Plain Keras layers and models as models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog_plain.common import Plain
from rlcatalog_tf import (
    DenseStack,
    OutputLayers,
    TFModelV2,
    copy_layer,
    dtype_of,
    floats_as,
    has_unbuilt_layers,
    is_layer_class,
    keras,
    raw_variable,
    tf,
)


class KerasModules:
    """Keras-specific code for models around a Keras layer; see `Plain`."""

    channels_first = False
    show: Any

    @staticmethod
    def unwrapped(module: Any) -> Any:
        """Return the layer itself, because compiling does not wrap it."""
        return module

    @staticmethod
    def is_module(value: Any) -> bool:
        """Return whether a value is a Keras layer or model, or a class of Keras layers or models.

        Raises:
            NotServedError: It is, but Keras runs on a backend other than TensorFlow.
        """
        kind = value if isinstance(value, type) else type(value)
        if not is_layer_class(kind):
            return False
        if (backend := keras.backend.backend()) != "tensorflow" and issubclass(kind, keras.Layer):
            raise NotServedError(
                f"{kind.__name__} is a Keras layer, and Keras uses the backend {backend!r}, but"
                " framework='tf' needs 'tensorflow'. Set KERAS_BACKEND=tensorflow before Keras is"
                " imported."
            )
        return True

    def copied(self, module: Any) -> Any:
        """Return a deep copy of a layer.

        Raises:
            NotServedError: The layer cannot be copied.
        """
        return copy_layer(module)

    def run_module(self, module: Any, x: Any, inputs: Mapping[str, Any]) -> Any:
        """Return the layer's outputs, in the precision that the next layers use."""
        output = module(x, training=inputs.get("is_training", False))
        return tf.nest.map_structure(lambda part: tf.cast(part, tf.float32), output)

    def try_module(self, module: Any, rows: np.ndarray[Any, Any]) -> Any:
        """Run a layer in inference mode, then restore its variables; if the layer is built, only
        trace it.
        """
        x = self.show(floats_as(tf.convert_to_tensor(rows), dtype_of(self)))
        before = [(variable, variable.numpy()) for variable in map(raw_variable, module.variables)]
        output = None
        if not has_unbuilt_layers(module):
            output = (
                tf.function(lambda: module(x, training=False))
                .get_concrete_function()
                .structured_outputs
            )
        if output is None or any(
            None in part.shape for part in tf.nest.flatten(output) if hasattr(part, "shape")
        ):
            output = module(x, training=False)
        for variable, value in before:
            variable.assign(value)
        return output

    def seen(self, x: Any, leaf: Any) -> Any:
        """Return a leaf of the observation in the form that the layer expects."""
        x = x if x.dtype.is_floating else tf.cast(x, tf.float32)
        x = x if leaf.axes is None else tf.transpose(x, [0, *(axis + 1 for axis in leaf.axes)])
        if leaf.shape is not None:
            x = tf.reshape(x, [-1, *leaf.shape])
        return (
            x
            if leaf.span is None
            else (x - tf.cast(leaf.low, x.dtype)) / tf.cast(leaf.span, x.dtype)
        )


class PlainModel(Plain, KerasModules, TFModelV2):
    """Plain module followed by dense layers, logits and a value; see `Plain`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
