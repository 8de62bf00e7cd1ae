"""TensorFlow 1 layers, which a model calls by name in each pass and keeps after the first one.

`rlcatalog port` replaces `tf.layers.dense(...)` and similar calls with these functions, and adds
`self.kept_layers = start()` to the constructor. This attribute contains the layers under their
names in the enclosing `variable_scope`; rlcatalog finds the model's variables there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcatalog_compat.frameworks import keras_module, tensorflow


def start() -> dict[str, Any]:
    """Return a model's layers before its first pass: a single unbuilt layer, which makes rlcatalog
    run that pass.
    """
    return {"": keras_module().layers.Layer()}


def dense(
    model: Any, name: str, inputs: Any, units: int, activation: Any = None, **options: Any
) -> Any:
    """Return a dense layer's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: The layer's input `[B, n]`.
        units: Width of the layer.
        activation: A function, or None.
        **options: Additional arguments for the Keras layer.
    """
    options |= {"units": int(units), "activation": activation}
    return _layer(model, name, lambda layers: layers.Dense(**options), ("dense", options["units"]))(
        inputs
    )


def conv2d(
    model: Any, name: str, inputs: Any, filters: int, kernel_size: Any, **options: Any
) -> Any:
    """Return a convolution's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: The layer's input `[B, H, W, C]`.
        filters: Number of output channels.
        kernel_size: Size of the kernel.
        **options: Additional arguments for the Keras layer.
    """
    options |= {"filters": int(filters), "kernel_size": kernel_size}
    return _layer(
        model, name, lambda layers: layers.Conv2D(**options), ("conv2d", options["filters"])
    )(inputs)


def flatten(model: Any, name: str, inputs: Any) -> Any:
    """Reshape `[B, ...]` to `[B, n]`."""
    return _layer(model, name, lambda layers: layers.Flatten(), ("flatten",))(inputs)


def batch_normalization(
    model: Any,
    name: str,
    inputs: Any,
    training: Any = False,
    trainable: bool = True,
    **options: Any,
) -> Any:
    """Return batch normalisation's output.

    Args:
        model: The model that keeps the layer.
        name: The layer's name in the model.
        inputs: Input of the layer.
        training: Whether to normalise with the batch's statistics.
        trainable: Whether the scale and the offset are trainable. Unlike in Keras, statistics are
            always updated, as in TensorFlow 1.
        **options: Additional arguments for the Keras layer.
    """
    layer = _layer(
        model, name, lambda layers: layers.BatchNormalization(**options), ("batch_normalization",)
    )
    if not layer.built:
        layer.build(inputs.shape)
        for variable in (layer.gamma, layer.beta):
            if variable is not None:
                variable.trainable = trainable
    return layer(inputs, training=training)


def get_variable(
    model: Any,
    name: str,
    shape: Any = (),
    dtype: Any = None,
    initializer: Any = None,
    trainable: bool = True,
) -> Any:
    """Return a variable.

    Args:
        model: The model that keeps the variable.
        name: The variable's name in the model.
        shape: Shape of the variable.
        dtype: Dtype of the variable; float32 if None.
        initializer: A function that takes a shape, or a value; Glorot uniform if None.
        trainable: Whether the variable is trainable.
    """
    tf, keras = tensorflow(), keras_module()

    def make(layers: Any) -> Any:
        found = keras.initializers.GlorotUniform() if initializer is None else initializer
        found = found() if isinstance(found, type) else found
        value = found(tuple(shape)) if callable(found) else tf.fill(tuple(shape), found)
        return tf.Variable(value, trainable=trainable, name=name, dtype=dtype)

    return _layer(model, name, make, ("get_variable",))


def _layer(model: Any, name: str, make: Callable[[Any], Any], kind: tuple[Any, ...]) -> Any:
    """Return the model's layer with a given name in the enclosing scope; create it if it is
    missing.

    Raises:
        ValueError: The name belongs to a layer of a different kind.
    """
    tf, keras = tensorflow(), keras_module()
    kept, kinds = model.kept_layers, model.__dict__.setdefault("_kept_kinds", {})
    kept.pop("", None)
    scope = tf.compat.v1.get_variable_scope().name
    whole = f"{scope}/{name}" if scope else name
    if whole not in kept:
        with tf.init_scope():  # the variables must outlive a trace
            kept[whole] = make(keras.layers)
    if kinds.setdefault(whole, kind) != kind:
        raise ValueError(
            f"Layer {whole!r}: expected {kinds[whole]}, as in its first call, found {kind}. Rename"
            " one of them."
        )
    return kept[whole]
