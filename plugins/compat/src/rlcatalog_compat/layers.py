"""TensorFlow 1 layers, which a model calls by name in each pass and keeps after the first one.

`rlcatalog port` replaces `tf.layers.dense(...)` and similar calls with these functions, and adds
`self.kept_layers = start()` to the constructor. This attribute contains the layers under their
names in the enclosing `variable_scope`; rlcatalog finds the model's variables there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rlcatalog.frameworks import Tensor
from rlcatalog_compat.frameworks import keras_module, tensorflow


def start() -> dict[str, Any]:
    """Return a model's layers before its first pass: a single unbuilt layer, which makes rlcatalog
    run that pass.
    """
    return {"": keras_module().layers.Layer()}


class Model(Protocol):
    """Model that keeps layers, in an attribute that `rlcatalog port` adds to its constructor."""

    kept_layers: dict[str, Any]


def dense(
    model: Model,
    name: str,
    inputs: Tensor,
    units: int,
    activation: Callable[..., Any] | str | None = None,
    **options: Any,
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
    options["units"] = int(units)
    options["activation"] = activation
    kind = ("dense", options["units"])
    layer = _keep(model, name, kind, lambda: keras_module().layers.Dense(**options))
    return layer(inputs)


def conv2d(
    model: Model,
    name: str,
    inputs: Tensor,
    filters: int,
    kernel_size: int | Sequence[int],
    **options: Any,
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
    options["filters"] = int(filters)
    options["kernel_size"] = kernel_size
    kind = ("conv2d", options["filters"])
    layer = _keep(model, name, kind, lambda: keras_module().layers.Conv2D(**options))
    return layer(inputs)


def flatten(model: Model, name: str, inputs: Tensor) -> Any:
    """Reshape `[B, ...]` to `[B, n]`."""
    layer = _keep(model, name, ("flatten",), lambda: keras_module().layers.Flatten())
    return layer(inputs)


def batch_normalization(
    model: Model,
    name: str,
    inputs: Tensor,
    training: bool | Tensor = False,
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
    kind = ("batch_normalization",)
    layer = _keep(model, name, kind, lambda: keras_module().layers.BatchNormalization(**options))
    if not layer.built:
        layer.build(inputs.shape)
        for variable in (layer.gamma, layer.beta):
            if variable is not None:
                variable.trainable = trainable
    return layer(inputs, training=training)


def get_variable(
    model: Model,
    name: str,
    shape: Sequence[int] = (),
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
    tf = tensorflow()

    def create_variable() -> Any:
        value = _initial_value(initializer, tuple(shape))
        return tf.Variable(value, trainable=trainable, name=name, dtype=dtype)

    return _keep(model, name, ("get_variable",), create_variable)


def _initial_value(initializer: Any, shape: tuple[int, ...]) -> Any:
    """Return a new variable's value; see `get_variable` for the initialiser."""
    if initializer is None:
        initializer = keras_module().initializers.GlorotUniform
    if isinstance(initializer, type):
        initializer = initializer()
    if callable(initializer):
        return initializer(shape)
    return tensorflow().fill(shape, initializer)


def _keep(model: Model, name: str, kind: tuple[Any, ...], create: Callable[[], Any]) -> Any:
    """Return the model's layer or variable with a given name in the enclosing scope; create it if
    it is missing.

    Args:
        model: The model.
        name: Name of the layer.
        kind: What a call with this name must create: a function's name and the layer's width.
        create: Creates the layer.

    Raises:
        ValueError: The name belongs to a layer of a different kind.
    """
    tf = tensorflow()
    layers = model.kept_layers
    kinds = model.__dict__.setdefault("_kept_kinds", {})
    # The layer of `start` has done its work: this is the model's first pass.
    layers.pop("", None)
    full_name = name
    scope = tf.compat.v1.get_variable_scope().name
    if scope:
        full_name = f"{scope}/{name}"
    if full_name not in layers:
        with tf.init_scope():  # the variables must outlive a trace
            layers[full_name] = create()
    first_kind = kinds.setdefault(full_name, kind)
    if first_kind != kind:
        raise ValueError(
            f"Layer {full_name!r}: expected {first_kind}, as in its first call, found {kind}."
            " Rename one of them."
        )
    return layers[full_name]
