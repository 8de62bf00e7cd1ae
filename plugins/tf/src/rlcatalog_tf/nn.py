"""Activations, initialisers and dense layers in TensorFlow, under the names in
`rlcatalog.config.layer_names`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rlcatalog.config import INITIALIZERS, activation_name, fan_in, initializer_name, initializing
from rlcatalog.models import DenseSpec, OutputPlan, check_features, check_values, output_spec
from rlcatalog.observations import Scaling
from rlcatalog_tf.dtypes import to_float32_at_least
from rlcatalog_tf.ops import flatten_rows

ACTIVATIONS: dict[str, Callable[[Any], Any] | None] = {
    "linear": None,
    **{
        name: getattr(tf.nn, name)
        for name in ("relu", "tanh", "elu", "silu", "gelu", "sigmoid", "softplus", "selu")
    },
    "softmax": tf.nn.softmax,
    "leaky_relu": lambda x: tf.nn.leaky_relu(x, alpha=0.01),  # PyTorch's slope
}


def activation(value: Any) -> Callable[[Any], Any] | None:
    """Return the function for an activation's name or callable; None for "linear"."""
    name = activation_name(value)
    if isinstance(name, str):
        return ACTIVATIONS[name]
    return name() if isinstance(name, type) else name  # type: ignore[no-any-return]


def _normc(shape: Sequence[int], std: float) -> Any:
    value = tf.random.normal(shape)
    return value * (
        std
        / tf.sqrt(tf.reduce_sum(tf.square(value), axis=list(range(1, len(shape))), keepdims=True))
    )


def _scaled(shape: Sequence[int], scale: float, fan: str, uniform: bool) -> Any:
    receptive = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * receptive, shape[0] * receptive
    std = scale * math.sqrt({"avg": 2.0 / (fan_in + fan_out), "in": 2.0 / fan_in}[fan])
    bound = math.sqrt(3.0) * std
    return (
        tf.random.uniform(shape, -bound, bound) if uniform else tf.random.normal(shape, stddev=std)
    )


def _fan_in_uniform(shape: Sequence[int], gain: float, inputs: int | None = None) -> Any:
    bound = gain / math.sqrt(fan_in(shape, inputs))
    return tf.random.uniform(shape, -bound, bound)


def _orthogonal(shape: Sequence[int], gain: float) -> Any:
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = tf.linalg.qr(tf.random.normal([max(rows, columns), min(rows, columns)]))
    q *= tf.sign(tf.linalg.diag_part(r))
    return tf.reshape(gain * (tf.transpose(q) if rows < columns else q), shape)


#: Each returns a value in PyTorch's layout, `[out, in, ...]`.
_INITIALIZERS: dict[str, Callable[..., Any]] = {
    "normc": _normc,
    "xavier_uniform": lambda shape, gain: _scaled(shape, gain, "avg", uniform=True),
    "xavier_normal": lambda shape, gain: _scaled(shape, gain, "avg", uniform=False),
    "kaiming_uniform": lambda shape: _scaled(shape, 1.0, "in", uniform=True),
    "kaiming_normal": lambda shape: _scaled(shape, 1.0, "in", uniform=False),
    "orthogonal": _orthogonal,
    "fan_in_uniform": _fan_in_uniform,
    "uniform": lambda shape, a, b: tf.random.uniform(shape, a, b),
    "normal": lambda shape, mean, std: tf.random.normal(shape, mean, std),
    "truncated_normal": lambda shape, mean, std: tf.random.truncated_normal(shape, mean, std),
    "constant": lambda shape, val: tf.fill(shape, float(val)),
    "zeros": lambda shape: tf.zeros(shape),
    "ones": lambda shape: tf.ones(shape),
}


def initial_value(
    shape: Sequence[int], value: Any, config: Mapping[str, Any], inputs: int | None = None
) -> Any:
    """Return a float32 initial value in PyTorch's layout.

    Args:
        shape: `[out, in, ...]` for weights, `[out]` for a bias.
        value: A framework-neutral name, or a Keras-style callable that takes a shape (`[in, out]`
            for a dense weight).
        config: Arguments for the initialiser.
        inputs: The layer's number of inputs, which the shape of a bias does not reveal.
    """
    name = initializer_name(value, dict(config))
    with initializing(value):
        if isinstance(name, str):
            known = {"inputs": inputs} if name == "fan_in_uniform" else {}
            return _INITIALIZERS[name](tuple(shape), **{**INITIALIZERS[name], **config, **known})
        made = name(**config) if isinstance(name, type) else name
        if len(shape) != 2:
            return tf.cast(made(tuple(shape)), tf.float32)
        return tf.transpose(tf.cast(made((shape[1], shape[0])), tf.float32))


def normc_initializer(std: float = 1.0) -> Callable[..., Any]:
    """Return RLlib's initialiser as a Keras initialiser; values have the L2 norm `std` along the
    first axis.

    For a dense layer's `[in, out]`, each column has this norm.
    """

    def initialize(shape: Sequence[int], dtype: Any = None, partition_info: Any = None) -> Any:
        if len(shape) == 2:
            value = tf.transpose(_normc((int(shape[1]), int(shape[0])), std))
        else:
            value = tf.random.normal(shape)
            value *= std / tf.sqrt(tf.reduce_sum(tf.square(value), axis=0, keepdims=True))
        return value if dtype is None else tf.cast(value, dtype)

    return initialize


def features_of(
    trunk: Any, input_dict: Mapping[str, Any], state: list[Any], seq_lens: Any
) -> tuple[Any, list[Any]]:
    """Run the trunk of a memory or head; return its float32 features `[B, width]` and its new
    state.

    Raises:
        ModelContractError: The width differs from the trunk's `num_outputs`.
    """
    x, new_state = trunk(input_dict, state, seq_lens)
    x = flatten_rows(x)
    check_features(trunk, x.shape[1])
    return tf.cast(x, tf.float32), new_state


def values_of(model: Any, rows: int | None = None) -> Any:
    """Return the value estimates `[B]` of a model's last pass, as float32 or wider.

    Args:
        model: The model, whose `value_function` returns `[B]` or `[B, 1]`.
        rows: B, if known.

    Raises:
        ModelContractError: The values have the wrong shape.
    """
    value = model.value_function()
    if not tf.is_tensor(value):
        check_values(model, value, rows)
        value = tf.convert_to_tensor(value)
    if value.shape.rank is not None:
        check_values(
            model, value, rows if value.shape.rank and value.shape[0] is not None else None
        )
        if value.shape.rank == 2:
            value = value[:, 0]
    return to_float32_at_least(value)


class Dense:
    """Linear layer that creates its variables in the constructor.

    The weight is stored as `[in, out]`; its canonical form is PyTorch's `[out, in]`.

    Args:
        inputs: Width of the input.
        spec: The layer's sizes and initialisers; the caller applies its activation.
    """

    def __init__(self, inputs: int, spec: DenseSpec) -> None:
        weight = initial_value((spec.size, inputs), spec.weights, spec.weights_config)
        self.kernel = tf.Variable(tf.transpose(weight), name="kernel")
        self.bias = tf.Variable(
            initial_value((spec.size,), spec.bias, spec.bias_config, inputs), name="bias"
        )

    def __call__(self, x: Any) -> Any:
        """Map `[B, in]` to `[B, out]`."""
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def canonical(self) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
        """Yield the canonical name, the variable, and its axis order in the canonical layout."""
        yield "weight", self.kernel, (1, 0)
        yield "bias", self.bias, None


class DenseStack:
    """Dense layers with their activations.

    Args:
        inputs: Width of the input.
        specs: The layers.

    Attributes:
        outputs: Width of the output.
    """

    def __init__(self, inputs: int, specs: Sequence[DenseSpec]) -> None:
        widths = [inputs, *(spec.size for spec in specs)]
        self.layers = [Dense(n, spec) for n, spec in zip(widths, specs, strict=False)]
        self.activations = [activation(spec.activation) for spec in specs]
        self.outputs = widths[-1]

    def __call__(self, x: Any) -> Any:
        """Map `[B, inputs]` to `[B, outputs]`."""
        for layer, activate in zip(self.layers, self.activations, strict=True):
            x = layer(x)
            if activate is not None:
                x = activate(x)
        return x


class ScaledInput:
    """First step of a net that reads integers, which it scales as `scaling_of` says.

    Args:
        scaling: The affine map, with arrays in the shape of one observation.
    """

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling

    def __call__(self, x: Any, like: Any) -> Any:
        """Return observations `[B, ...]` scaled, as float32; `like` is the net that reads them."""
        return (tf.cast(x, tf.float32) - self.scaling.offset) * self.scaling.factor


class FreeLogStd:
    """Layer for the option `free_log_std`: it appends a trained vector, the same for every row, to
    the means.

    Args:
        size: Number of log standard deviations.
    """

    def __init__(self, size: int) -> None:
        self.log_std = tf.Variable(tf.zeros(size), name="log_std")

    def __call__(self, means: Any) -> Any:
        """Map `[B, size]` to `[B, 2 size]`."""
        log_std = tf.broadcast_to(self.log_std, tf.shape(means))
        return tf.concat([means, log_std], axis=1)


class OutputLayers:
    """Last layers of a model, for the logits and the value.

    Args:
        plan: Sizes of the layers; the logits layer is required.
        value_inputs: Width of the value layer's input; None means the width of the logits' input.
    """

    def __init__(self, plan: OutputPlan, value_inputs: int | None = None) -> None:
        assert plan.logits is not None
        self.logits = Dense(plan.features, plan.logits)
        self.activation = activation(plan.logits.activation)
        self.free_log_std = FreeLogStd(plan.free_log_std) if plan.free_log_std else None
        self.value = Dense(value_inputs or plan.features, output_spec(1))

    def __call__(self, features: Any) -> Any:
        """Map features `[B, n]` to the model's output `[B, num_outputs]`."""
        output = self.logits(features)
        if self.activation is not None:
            output = self.activation(output)
        return output if self.free_log_std is None else self.free_log_std(output)

    def values(self, features: Any) -> Any:
        """Map features `[B, n]` to value estimates `[B]`."""
        return self.value(features)[:, 0]
