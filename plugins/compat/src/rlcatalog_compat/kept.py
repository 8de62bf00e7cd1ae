"""Layers of TensorFlow 1 that a model called by name, at each pass: here the model keeps them after the first.

`rlcatalog port` writes these calls for `tf.layers.dense(...)` and the like, and `self.kept_layers = start()` into the
constructor. The layers lie in that attribute, where the model's variables are found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcatalog_compat.frameworks import keras_module, tensorflow


def start() -> dict[str, Any]:
    """Return a model's layers before its first pass: one that is not built yet, so that a pass is made for it."""
    return {"": keras_module().layers.Layer()}


def dense(model: Any, name: str, inputs: Any, units: int, activation: Any = None, **options: Any) -> Any:
    """Return a dense layer's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: Its input `[B, n]`.
        units: Its width.
        activation: A function, or None.
        **options: Further arguments of the Keras layer.
    """
    return _layer(model, name, lambda layers: layers.Dense(int(units), activation, **options))(inputs)


def conv2d(model: Any, name: str, inputs: Any, filters: int, kernel_size: Any, **options: Any) -> Any:
    """Return a convolution's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: Its input `[B, H, W, C]`.
        filters: Number of channels of the output.
        kernel_size: Size of the kernel.
        **options: Further arguments of the Keras layer.
    """
    return _layer(model, name, lambda layers: layers.Conv2D(int(filters), kernel_size, **options))(inputs)


def flatten(model: Any, name: str, inputs: Any) -> Any:
    """Return `[B, ...]` as `[B, n]`."""
    return _layer(model, name, lambda layers: layers.Flatten())(inputs)


def batch_normalization(model: Any, name: str, inputs: Any, training: Any = False, **options: Any) -> Any:
    """Return batch normalisation's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: Its input.
        training: Whether the batch's own statistics count.
        **options: Further arguments of the Keras layer.
    """
    return _layer(model, name, lambda layers: layers.BatchNormalization(**options))(inputs, training=training)


def get_variable(
    model: Any, name: str, shape: Any = (), dtype: Any = None, initializer: Any = None, trainable: bool = True
) -> Any:
    """Return a variable.

    Args:
        model: The model that keeps the variable.
        name: Its name in the model.
        shape: Its shape.
        dtype: Its dtype; float32 when None.
        initializer: A function of a shape, or a value; Glorot's uniform values when None.
        trainable: Whether it is trained.
    """
    tf, keras = tensorflow(), keras_module()

    def make(layers: Any) -> Any:
        found = keras.initializers.GlorotUniform() if initializer is None else initializer
        found = found() if isinstance(found, type) else found
        value = found(tuple(shape)) if callable(found) else tf.fill(tuple(shape), found)
        return tf.Variable(value, trainable=trainable, name=name, dtype=dtype)

    return _layer(model, name, make)


def _layer(model: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Return what a model keeps under a name, made where it is missing."""
    tf, keras = tensorflow(), keras_module()
    kept = model.kept_layers
    kept.pop("", None)
    if name not in kept:
        with tf.init_scope():  # the variables outlive a trace
            kept[name] = make(keras.layers)
    return kept[name]
