"""RLlib's functions that import optional frameworks, and its helpers for both frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlcatalog.errors import ConfigError, MissingFrameworkError
from rlcatalog.frameworks import frameworks, require_framework

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: RLlib's names for TensorFlow.
_TENSORFLOW_NAMES = ("tf", "tf2", "tfe")

#: RLlib's names of activations → classes of `torch.nn`.
_TORCH_ACTIVATIONS = {
    "swish": "SiLU",
    "silu": "SiLU",
    "relu": "ReLU",
    "tanh": "Tanh",
    "elu": "ELU",
    "softmax": "Softmax",
}


def absent(name: str, why: str) -> type:
    """Return a placeholder for a class that can be referenced and subclassed, but not instantiated.

    Args:
        name: Name of the class.
        why: Reason, for the error.
    """

    def refuse(self: object, *_args: Any, **_kwargs: Any) -> None:
        raise MissingFrameworkError(f"{type(self).__name__}: {why}")

    return type(name, (), {"__init__": refuse})


class AbsentModule:
    """Placeholder for a framework that is not installed: each name in it is a class that raises an
    error when used.

    Args:
        why: Reason, for the error.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(name, self._why)


def tensorflow() -> Any:
    """Import TensorFlow in an order that is safe with PyTorch, and return it.

    Raises:
        MissingFrameworkError: TensorFlow is missing.
    """
    require_framework("tf")
    frameworks()["tf"].prepare()
    return importlib.import_module("tensorflow")


def keras_module() -> Any:
    """Return Keras; see `tensorflow`."""
    tensorflow()
    return importlib.import_module("keras")


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """Return `(torch, torch.nn)`; without PyTorch, return None and a module whose classes cannot be
    used.

    Args:
        error: Whether to raise an error if it is missing.

    Raises:
        MissingFrameworkError: The framework is missing, and `error` is set.
    """
    try:
        require_framework("torch")
    except MissingFrameworkError as missing:
        if error:
            raise
        return None, AbsentModule(str(missing))
    torch = importlib.import_module("torch")
    return torch, torch.nn


def try_import_tf(error: bool = False) -> tuple[Any, Any, int | None]:
    """Return `(tensorflow.compat.v1, tensorflow, 2)`; without TensorFlow, `(None, None, None)`.

    Args:
        error: Whether to raise an error if it is missing.

    Raises:
        MissingFrameworkError: The framework is missing, and `error` is set.
    """
    try:
        tf = tensorflow()
    except MissingFrameworkError:
        if error:
            raise
        return None, None, None
    return tf.compat.v1, tf, 2


def try_import_tfp(error: bool = False) -> Any:
    """Return `tensorflow_probability`, or None if it is missing and `error` is not set."""
    try:
        return importlib.import_module("tensorflow_probability")
    except ImportError:
        if error:
            raise
        return None


def try_import_jax(error: bool = False) -> tuple[Any, Any]:
    """Return `(None, None)`, because RLlib's JAX models are not supported.

    Raises:
        MissingFrameworkError: `error` is set.
    """
    if error:
        raise MissingFrameworkError("rlcatalog does not support jax; it supports torch and tf.")
    return None, None


def tf_function(tf_module: ModuleType | None) -> Callable[[Any], Any]:
    """Return a decorator that traces a function with TensorFlow, or returns it unchanged if
    `tf_module` is None.
    """
    if tf_module is None:
        return _unchanged
    tf_function_decorator: Callable[[Any], Any] = tf_module.function
    return tf_function_decorator


def _unchanged(function: Any) -> Any:
    """Return the function, for programs without TensorFlow."""
    return function


def get_activation_fn(name: str | Callable[..., Any] | None = None, framework: str = "tf") -> Any:
    """Return the activation with this name: a class of `torch.nn`, a function of TensorFlow, or
    None for "linear".

    Args:
        name: RLlib's name; a callable is returned unchanged.
        framework: `"torch"`, `"tf"` or `"tf2"`.

    Raises:
        ConfigError: The framework has no such activation.
    """
    if name is None or callable(name):
        return name
    if name.lower() == "linear":
        return None
    if framework == "torch":
        activation = _torch_activation(name)
    elif framework in _TENSORFLOW_NAMES:
        # A function of `tf.nn`.
        activation = getattr(tensorflow().nn, name.lower(), None)
    else:
        raise ConfigError(f"framework: expected 'torch' or 'tf', found {framework!r}.")
    if activation is None:
        raise ConfigError(f"Unknown activation {name!r} for framework={framework!r}.")
    return activation


def _torch_activation(name: str) -> Any:
    """Return the class of `torch.nn` that has this name in PyTorch or in RLlib, or None."""
    nn = importlib.import_module("torch").nn
    # A class of `torch.nn`.
    activation = getattr(nn, name, None)
    if activation is not None:
        return activation
    class_name = _TORCH_ACTIVATIONS.get(name.lower())
    if class_name is None:
        return None
    # A class of `torch.nn`.
    return getattr(nn, class_name)


def get_variable(
    value: ArrayLike | Callable[..., Any],
    framework: str = "tf",
    trainable: bool = False,
    tf_name: str = "unnamed-variable",
    torch_tensor: bool = False,
    device: str | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
) -> Any:
    """Convert a value to a framework's variable.

    Args:
        value: A number or array, or, for TensorFlow, an initialiser that is called with `shape`.
        framework: `"torch"`, `"tf"`, or anything else to get the value itself.
        trainable: Whether it gets gradients.
        tf_name: Name of the TensorFlow variable.
        torch_tensor: Whether to return a tensor for PyTorch; if False, the value is returned
            unchanged.
        device: PyTorch's device.
        shape: Shape for an initialiser.
        dtype: Dtype. If None, float32 for floats, otherwise the value's dtype.
    """
    import numpy as np

    if framework in _TENSORFLOW_NAMES:
        tf = tensorflow()
        if callable(value):
            value = value(shape=shape, dtype=dtype or tf.float32)
        elif dtype is None:
            dtype = _without_float64(np.asarray(value).dtype.name)
        return tf.Variable(value, trainable=trainable, name=tf_name, dtype=dtype)
    if framework == "torch" and torch_tensor:
        torch = importlib.import_module("torch")
        array = np.asarray(value)
        array = array.astype(_without_float64(array.dtype.name))
        tensor = torch.as_tensor(array, dtype=dtype, device=device)
        if trainable:
            return torch.nn.Parameter(tensor)
        return tensor
    return value


def _without_float64(dtype: str) -> str:
    """Return the dtype of a variable with values of this dtype, as RLlib chooses it."""
    if dtype == "float64":
        return "float32"
    return dtype


def get_initializer(name: str | Callable[..., Any] | None, framework: str = "tf") -> Any:
    """Return the initialiser with this name: a function that fills a tensor in place, or a Keras
    initialiser.

    Args:
        name: `"xavier_uniform"` (also `"default"` and None) or `"xavier_normal"`; a callable is
            returned unchanged.
        framework: `"torch"`, `"tf"` or `"tf2"`.

    Raises:
        ConfigError: The name is unknown.
    """
    if callable(name):
        return name
    if name not in (None, "default", "xavier_uniform", "xavier_normal"):
        raise ConfigError(
            f"Unknown initialiser {name!r}; known: 'default', 'xavier_uniform', 'xavier_normal'."
        )
    is_normal = name == "xavier_normal"
    if framework == "torch":
        init = importlib.import_module("torch").nn.init
        return init.xavier_normal_ if is_normal else init.xavier_uniform_
    initializers = keras_module().initializers
    return initializers.glorot_normal() if is_normal else initializers.glorot_uniform()


#: Image size → filters `[channels, kernel, stride]` that reduce it to 1x1.
_FILTERS: dict[tuple[int, int], list[list[Any]]] = {
    (480, 640): [[16, [24, 32], [14, 18]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (240, 320): [[16, [12, 16], [7, 9]], [32, [6, 6], 4], [256, [9, 9], 1]],
    (96, 96): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 2]],
    (84, 84): [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]],
    (64, 64): [[32, [4, 4], 2], [64, [4, 4], 2], [128, [4, 4], 2], [256, [4, 4], 2]],
    (42, 42): [[16, [4, 4], 2], [32, [4, 4], 2], [256, [11, 11], 1]],
    (10, 10): [[16, [5, 5], 2], [32, [5, 5], 2]],
}


def get_filter_config(shape: Sequence[int]) -> list[list[Any]]:
    """Return RLlib's default `conv_filters` for images.

    Args:
        shape: `(height, width)`, optionally with channels first or last.

    Raises:
        ConfigError: There is no default for this image size.
    """
    sizes = tuple(int(size) for size in shape)
    if len(sizes) in (2, 3):
        # With three sizes, channels may be last or first.
        for image_size in (sizes[:2], sizes[1:]):
            if image_size in _FILTERS:
                return [list(layer) for layer in _FILTERS[image_size]]
    image_sizes = [f"{height} x {width}" for height, width in _FILTERS]
    raise ConfigError(
        f"No default conv_filters for images of shape {sizes}; there are defaults for"
        f" {', '.join(image_sizes)}. Set conv_filters in the model config."
    )
