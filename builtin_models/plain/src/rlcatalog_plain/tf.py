"""Plain Keras layers and models as models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, Tensor, TensorTree
from rlcatalog_plain.common import Leaf, Plain
from rlcatalog_plain.module_source import Module
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


class KerasSource:
    """What TensorFlow's models around a plain module know of Keras layers; see `ModelOfModule`."""

    @staticmethod
    def is_module(value: Module) -> bool:
        """Return whether a value is a Keras layer or model, or a class of Keras layers or models.

        Raises:
            NotServedError: It is, but Keras runs on a backend other than TensorFlow.
        """
        cls = value if isinstance(value, type) else type(value)
        if not is_layer_class(cls):
            return False
        # Legacy Keras has no other backend.
        if issubclass(cls, keras.Layer):
            backend = keras.backend.backend()
            if backend != "tensorflow":
                raise NotServedError(
                    f"{cls.__name__} is a Keras layer, and Keras uses the backend {backend!r}, but"
                    " framework='tf' needs 'tensorflow'. Set KERAS_BACKEND=tensorflow before Keras"
                    " is imported."
                )
        return True

    @staticmethod
    def unwrapped(module: Module) -> Any:
        """Return the layer itself, because compiling does not wrap it."""
        return module

    def copy_module(self, module: Module) -> Any:
        """Return a deep copy of a layer.

        Raises:
            NotServedError: The layer cannot be copied.
        """
        return copy_layer(module)


class PlainModel(KerasSource, Plain, TFModelV2):
    """Plain module followed by dense layers, logits and a value; see `Plain`."""

    stack_class = DenseStack
    outputs_class = OutputLayers
    channels_first = False

    def run_module(self, module: Module, x: TensorTree, inputs: Mapping[str, Any]) -> Any:
        """Return the layer's outputs, in the precision that the next layers use."""
        is_training = inputs.get("is_training", False)
        if self._is_still(module):
            is_training = False
        output = module(x, training=is_training)
        return tf.nest.map_structure(_to_float32, output)

    def _is_still(self, module: Module) -> bool:
        """Return whether a layer is in a frozen part, so that it acts in training as in acting."""
        if module is self.value_module:
            return self._rlcatalog_bookkeeping.is_value_side_still
        return self._rlcatalog_bookkeeping.is_still

    def try_module(self, module: Any, rows: Array) -> Any:
        """Run a layer in inference mode, then restore its variables; if the layer is built, only
        trace it.
        """
        x = self.show(floats_as(tf.convert_to_tensor(rows), dtype_of(self)))
        variables = [raw_variable(variable) for variable in module.variables]
        values = [variable.numpy() for variable in variables]
        # A layer that is not built yet creates its variables in a real call.
        output = None
        if not has_unbuilt_layers(module):
            output = _trace(module, x)
        if output is None or _has_unknown_shape(output):
            output = module(x, training=False)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return output

    def convert_leaf(self, x: Tensor, leaf: Leaf) -> Any:
        """Return a leaf of the observation in the form that the layer expects."""
        if not x.dtype.is_floating:
            x = tf.cast(x, tf.float32)
        if leaf.axes is not None:
            # The axes do not count the batch's.
            x = tf.transpose(x, [0, *(axis + 1 for axis in leaf.axes)])
        if leaf.shape is not None:
            x = tf.reshape(x, [-1, *leaf.shape])
        if leaf.span is not None:
            x = (x - tf.cast(leaf.low, x.dtype)) / tf.cast(leaf.span, x.dtype)
        return x


def _to_float32(part: Tensor) -> Any:
    return tf.cast(part, tf.float32)


def _trace(module: Module, x: TensorTree) -> Any:
    """Return a layer's outputs as symbolic tensors, without computing them."""

    def run() -> Any:
        return module(x, training=False)

    return tf.function(run).get_concrete_function().structured_outputs


def _has_unknown_shape(output: TensorTree) -> bool:
    """Return whether a tensor of an output has an axis of unknown length."""
    for part in tf.nest.flatten(output):
        # A user's layer may also return values without a shape.
        if hasattr(part, "shape") and None in part.shape:
            return True
    return False
