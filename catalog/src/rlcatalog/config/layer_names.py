"""Framework-neutral names of activations and initialisers, and checks on them.

`rlcatalog_torch.nn` and `rlcatalog_tf.nn` contain one implementation for each name listed here; a
test compares the tables.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from rlcatalog.errors import CatalogError, ConfigError, nearest, raised_as, shown

#: Activation names. RLlib's spellings ("ReLU", "swish", "Tanh") are recognised in any case.
ACTIVATIONS = (
    "linear", "relu", "tanh", "elu", "silu", "gelu", "sigmoid", "softplus", "leaky_relu", "selu",
    "softmax",
)  # fmt: skip
ACTIVATION_ALIASES = {"swish": "silu", "none": "linear", "leakyrelu": "leaky_relu"}

#: Initialiser name → its parameters with their defaults.
INITIALIZERS: dict[str, dict[str, float]] = {
    "normc": {"std": 1.0},
    "xavier_uniform": {"gain": 1.0},
    "xavier_normal": {"gain": 1.0},
    "kaiming_uniform": {},
    "kaiming_normal": {},
    "orthogonal": {"gain": 1.0},
    "fan_in_uniform": {"gain": 1.0},
    "uniform": {"a": -0.05, "b": 0.05},
    "normal": {"mean": 0.0, "std": 0.05},
    "truncated_normal": {"mean": 0.0, "std": 0.05},
    "constant": {"val": 0.0},
    "zeros": {},
    "ones": {},
}
INITIALIZER_ALIASES = {
    "glorot_uniform": "xavier_uniform", "glorot_normal": "xavier_normal",
    "he_uniform": "kaiming_uniform", "he_normal": "kaiming_normal",
    "trunc_normal": "truncated_normal",
}  # fmt: skip


#: An initialiser's framework-neutral name or callable, and its arguments.
Initializer = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class InitRecipe:
    """Initial values of a whole net; a value of the config key `init`.

    Attributes:
        hidden: Weights of dense layers.
        convolution: Kernels of convolutions.
        logits: Weights of the layer for the logits.
        value: Weights of the layer for the value.
        bias: Biases of all these layers.
        is_uniform_in_memories: Whether the weights and biases of recurrent layers are uniform
            between plus and minus the square root of 1 / size.
    """

    hidden: Initializer
    convolution: Initializer
    logits: Initializer
    value: Initializer
    bias: Initializer
    is_uniform_in_memories: bool


_UNIFORM: Initializer = ("fan_in_uniform", {})
_ZEROS: Initializer = ("zeros", {})
#: The gain of hidden layers that the orthogonal initialisation of PPO's first implementation has.
_HIDDEN_GAIN = 2**0.5
#: Value of the config key `init` → what it means.
INIT_RECIPES = {
    # RLlib's. The last layers start small, so that a new policy is close to uniform.
    "normc": InitRecipe(
        hidden=("normc", {}),
        convolution=("xavier_uniform", {}),
        logits=("normc", {"std": 0.01}),
        value=("normc", {"std": 0.01}),
        bias=_ZEROS,
        is_uniform_in_memories=False,
    ),
    # That of OpenAI's baselines and Stable-Baselines3 for PPO and A2C.
    "orthogonal": InitRecipe(
        hidden=("orthogonal", {"gain": _HIDDEN_GAIN}),
        convolution=("orthogonal", {"gain": _HIDDEN_GAIN}),
        logits=("orthogonal", {"gain": 0.01}),
        value=("orthogonal", {"gain": 1.0}),
        bias=_ZEROS,
        is_uniform_in_memories=True,
    ),
    # PyTorch's for its own layers.
    "fan_in_uniform": InitRecipe(
        hidden=_UNIFORM,
        convolution=_UNIFORM,
        logits=_UNIFORM,
        value=_UNIFORM,
        bias=_UNIFORM,
        is_uniform_in_memories=True,
    ),
}


def activation_name(value: str | Callable[..., Any] | None, key: str = "activation") -> Any:
    """Return the neutral name of an activation, or `value` itself if it is callable.

    Args:
        value: A name in any letter case, None for "linear", or one of the framework's callables.
        key: The config key, for error messages.

    Raises:
        ConfigError: The name is unknown.
    """
    if value is None:
        return "linear"
    if callable(value):
        return value
    # A value of any other type has no name, and raises the error below.
    name = value.lower() if isinstance(value, str) else ""
    name = ACTIVATION_ALIASES.get(name, name)
    if name in ACTIVATIONS:
        return name
    raise ConfigError(
        f"config key {key!r}: unknown activation {shown(value)}.{nearest(name, ACTIVATIONS)}"
        f" Known: {', '.join(ACTIVATIONS)}, None, or one of the framework's callables."
    )


#: Initialisers that need a matrix, because they use its numbers of inputs and outputs.
MATRIX_INITIALIZERS = frozenset(
    {"normc", "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal"}
)


def initializer_name(
    value: str | Callable[..., Any] | None,
    config: dict[str, Any] | None = None,
    key: str = "initializer",
) -> Any:
    """Return the neutral name of an initialiser, or `value` itself if it is None or callable.

    Args:
        value: A name; torch's names with a trailing underscore and Keras's "glorot" and "he" names
            are also accepted.
        config: Keyword arguments for it.
        key: The config key, for error messages.

    Raises:
        ConfigError: The name, or one of its arguments, is unknown.
    """
    config = config or {}
    config_key = f"{key}_config"
    where = f"config key {config_key!r}"
    if value is None and config:
        raise ConfigError(f"{where} needs {key!r}; name the initialiser.")
    if value is None or callable(value):
        return value
    name = value.lower().rstrip("_") if isinstance(value, str) else ""
    name = INITIALIZER_ALIASES.get(name, name)
    if name not in INITIALIZERS:
        raise ConfigError(
            f"config key {key!r}: unknown initialiser {shown(value)}.{nearest(name, INITIALIZERS)}"
            f" Known: {', '.join(INITIALIZERS)}, None, or one of the framework's callables."
        )
    if "bias" in key and name in MATRIX_INITIALIZERS:
        known = ", ".join(sorted(set(INITIALIZERS) - MATRIX_INITIALIZERS))
        raise ConfigError(
            f"config key {key!r}: {name!r} needs a matrix, but a bias is a vector. For biases:"
            f" {known}."
        )
    _check_arguments(name, config, where)
    return name


def _check_arguments(name: str, config: Mapping[str, Any], where: str) -> None:
    """Check the keyword arguments of an initialiser.

    Args:
        name: Its neutral name.
        config: The arguments.
        where: The config key, for error messages.

    Raises:
        ConfigError: An argument is unknown, or has no usable value.
    """
    unknown = sorted(set(config) - set(INITIALIZERS[name]))
    if unknown:
        takes = ", ".join(INITIALIZERS[name]) or "no arguments"
        raise ConfigError(f"{where}: {name!r} takes {takes}; found {shown(unknown)}.")
    for argument, number in config.items():
        if not isinstance(number, int | float) or not abs(number) <= sys.float_info.max:
            raise ConfigError(
                f"{where}: {argument!r} must be a finite number, found {shown(number)}."
            )
    defaults = INITIALIZERS[name]
    numbers: dict[str, float] = {**defaults, **config}
    is_negative_std = numbers.get("std", 0.0) < 0
    is_empty_range = numbers.get("a", 0.0) > numbers.get("b", math.inf)  # from a to b
    if is_negative_std or is_empty_range:
        needs = "std >= 0" if "std" in numbers else "a <= b"
        raise ConfigError(f"{where}: {name!r} needs {needs}, found {shown(config)}.")


def read_initializers(
    get: Callable[[str], Any], prefix: str, *kinds: str
) -> dict[str, Initializer]:
    """Return the initialisers that the keys `{prefix}_{kind}_initializer` name, with their
    arguments, by kind.

    Args:
        get: A function that returns the value of a key.
        prefix: Beginning of the keys.
        *kinds: Kinds of variables to initialise, such as `"weights"` and `"bias"`. Kinds without an
            initialiser are omitted.

    Raises:
        ConfigError: A name, or one of its arguments, is unknown.
    """
    initializers = {}
    for kind in kinds:
        key = f"{prefix}_{kind}_initializer"
        arguments = dict(get(f"{key}_config") or {})  # the config may have None here
        name = initializer_name(get(key), arguments, key)
        if name is not None:
            initializers[kind] = (name, arguments)
    return initializers


def fan_in(shape: Sequence[int], inputs: int | None) -> int:
    """Return the fan-in of a weight or bias.

    Args:
        shape: The shape, `[out, in, ...]`.
        inputs: The fan-in of a bias, which its shape does not show.

    Raises:
        ConfigError: `inputs` is missing for a bias.
    """
    is_bias = len(shape) < 2
    if inputs is None and is_bias:
        raise ConfigError(
            "'fan_in_uniform' for a bias needs the number of inputs, which the layer does not pass."
        )
    return inputs or math.prod(shape[1:])


def initializing(value: str | Callable[..., Any]) -> AbstractContextManager[None]:
    """Return a context manager that converts errors from a user's initialiser into config errors.

    Args:
        value: The initialiser, for the error message.

    Raises:
        ConfigError: The initialiser raised an error that does not come from rlcatalog.
    """
    return raised_as(
        lambda why: ConfigError(f"model config: the initialiser {shown(value)} raised {why}"),
        CatalogError,
    )
