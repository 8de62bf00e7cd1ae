"""Activations, initialisers and dense layers in TensorFlow, under the names in
`rlcatalog.config.layer_names`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rlcatalog.config import INITIALIZERS, activation_name, fan_in, initializer_name, initializing
from rlcatalog.frameworks import Tensor
from rlcatalog.models import (
    DensePlan,
    DenseSpec,
    ModelV2,
    check_features,
    check_values,
)
from rlcatalog.observations import EmbeddedLeaf, EmbeddedVector, Scaling
from rlcatalog_tf.dtypes import to_float32_at_least
from rlcatalog_tf.ops import flatten_rows


def _leaky_relu(x: Tensor) -> Any:
    # PyTorch's slope.
    return tf.nn.leaky_relu(x, alpha=0.01)


ACTIVATIONS: dict[str, Callable[[Any], Any] | None] = {
    "linear": None,
    "relu": tf.nn.relu,
    "tanh": tf.nn.tanh,
    "elu": tf.nn.elu,
    "silu": tf.nn.silu,
    "gelu": tf.nn.gelu,
    "sigmoid": tf.nn.sigmoid,
    "softplus": tf.nn.softplus,
    "selu": tf.nn.selu,
    "softmax": tf.nn.softmax,
    "leaky_relu": _leaky_relu,
}


def activation(value: Any) -> Callable[[Any], Any] | None:
    """Return the function for an activation's name or callable; None for "linear"."""
    name = activation_name(value)
    if isinstance(name, str):
        return ACTIVATIONS[name]
    # Otherwise it is the value itself.
    if isinstance(name, type):
        return name()  # type: ignore[no-any-return]
    return name  # type: ignore[no-any-return]


# --- initialisers: each returns a value in PyTorch's layout, `[out, in, ...]` ---------------------


def _normc(shape: Sequence[int], std: float) -> Any:
    input_axes = list(range(1, len(shape)))
    return _with_norm(tf.random.normal(shape), std, input_axes)


def _with_norm(value: Tensor, norm: float, axis: int | list[int]) -> Any:
    """Scale values to an L2 norm along axes."""
    squares = tf.reduce_sum(tf.square(value), axis=axis, keepdims=True)
    return value * (norm / tf.sqrt(squares))


def _xavier_uniform(shape: Sequence[int], gain: float) -> Any:
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / (_fan_in(shape) + _fan_out(shape))))
    return tf.random.uniform(shape, -bound, bound)


def _xavier_normal(shape: Sequence[int], gain: float) -> Any:
    std = gain * math.sqrt(2.0 / (_fan_in(shape) + _fan_out(shape)))
    return tf.random.normal(shape, stddev=std)


def _kaiming_uniform(shape: Sequence[int]) -> Any:
    bound = math.sqrt(3.0) * math.sqrt(2.0 / _fan_in(shape))
    return tf.random.uniform(shape, -bound, bound)


def _kaiming_normal(shape: Sequence[int]) -> Any:
    return tf.random.normal(shape, stddev=math.sqrt(2.0 / _fan_in(shape)))


def _fan_in(shape: Sequence[int]) -> int:
    """Return the number of inputs of an output `[out, in, *window]`."""
    return shape[1] * math.prod(shape[2:])


def _fan_out(shape: Sequence[int]) -> int:
    """Return the number of outputs that an input reaches."""
    return shape[0] * math.prod(shape[2:])


def _fan_in_uniform(shape: Sequence[int], gain: float, inputs: int | None = None) -> Any:
    bound = gain / math.sqrt(fan_in(shape, inputs))
    return tf.random.uniform(shape, -bound, bound)


def _orthogonal(shape: Sequence[int], gain: float) -> Any:
    """Return a weight `[out, in, ...]` with orthogonal rows or columns of length `gain`."""
    rows = shape[0]
    columns = math.prod(shape[1:])
    q, r = tf.linalg.qr(tf.random.normal([max(rows, columns), min(rows, columns)]))
    # The signs make the distribution uniform (Mezzadri 2007), as in PyTorch.
    q *= tf.sign(tf.linalg.diag_part(r))
    if rows < columns:
        q = tf.transpose(q)
    return tf.reshape(gain * q, shape)


def _normal(shape: Sequence[int], mean: float, std: float) -> Any:
    return tf.random.normal(shape, mean, std)


def _truncated_normal(shape: Sequence[int], mean: float, std: float) -> Any:
    return tf.random.truncated_normal(shape, mean, std)


def _zeros(shape: Sequence[int]) -> Any:
    return tf.zeros(shape)


def _ones(shape: Sequence[int]) -> Any:
    return tf.ones(shape)


def _uniform(shape: Sequence[int], a: float, b: float) -> Any:
    return tf.random.uniform(shape, a, b)


def _constant(shape: Sequence[int], val: float) -> Any:
    return tf.fill(shape, float(val))


#: The initialisers' names and arguments are those in `rlcatalog.config.INITIALIZERS`.
_INITIALIZERS: dict[str, Callable[..., Any]] = {
    "normc": _normc,
    "xavier_uniform": _xavier_uniform,
    "xavier_normal": _xavier_normal,
    "kaiming_uniform": _kaiming_uniform,
    "kaiming_normal": _kaiming_normal,
    "orthogonal": _orthogonal,
    "fan_in_uniform": _fan_in_uniform,
    "uniform": _uniform,
    "normal": _normal,
    "truncated_normal": _truncated_normal,
    "constant": _constant,
    "zeros": _zeros,
    "ones": _ones,
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
            arguments = {**INITIALIZERS[name], **config}
            if name == "fan_in_uniform":
                arguments["inputs"] = inputs
            return _INITIALIZERS[name](tuple(shape), **arguments)
        # A user's class of initialisers, or an initialiser.
        keras_initializer = name(**config) if isinstance(name, type) else name
        if len(shape) != 2:
            return tf.cast(keras_initializer(tuple(shape)), tf.float32)
        # Keras' layout of a dense weight is `[in, out]`.
        value = keras_initializer((shape[1], shape[0]))
        return tf.transpose(tf.cast(value, tf.float32))


def normc_initializer(std: float = 1.0) -> Callable[..., Any]:
    """Return RLlib's initialiser as a Keras initialiser; values have the L2 norm `std` along the
    first axis.

    For a dense layer's `[in, out]`, each column has this norm.
    """

    def initialize(
        shape: Sequence[int], dtype: tf.DType | None = None, partition_info: Any = None
    ) -> Any:
        del partition_info  # unused; RLlib's initialiser has this parameter of TensorFlow 1
        if len(shape) == 2:
            value = tf.transpose(_normc((int(shape[1]), int(shape[0])), std))
        else:
            value = _with_norm(tf.random.normal(shape), std, axis=0)
        if dtype is not None:
            value = tf.cast(value, dtype)
        return value

    return initialize


def features_of(
    trunk: ModelV2, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
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


def values_of(model: ModelV2, rows: int | None = None) -> Any:
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
    rank = value.shape.rank
    # In a trace, the rank and the number of rows may be unknown, and are not checked then.
    if rank is not None:
        knows_rows = rank > 0 and value.shape[0] is not None
        check_values(model, value, rows if knows_rows else None)
        if rank == 2:
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
        bias = initial_value((spec.size,), spec.bias, spec.bias_config, inputs)
        self.bias = tf.Variable(bias, name="bias")

    def __call__(self, x: Tensor) -> Any:
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
        self.layers = [Dense(width, spec) for width, spec in zip(widths[:-1], specs, strict=True)]
        self.activations = [activation(spec.activation) for spec in specs]
        self.outputs = widths[-1]

    def __call__(self, x: Tensor) -> Any:
        """Map `[B, inputs]` to `[B, outputs]`."""
        for layer, activate in zip(self.layers, self.activations, strict=True):
            x = layer(x)
            if activate is not None:
                x = activate(x)
        return x


class InputScaling:
    """First step of a net that reads integers, which it scales as `scaling_of` says.

    Args:
        scaling: The affine map, with arrays in the shape of one observation.
    """

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling

    def __call__(self, x: Tensor, like: ModelV2) -> Any:
        """Return observations `[B, ...]` scaled, as float32; `like` is the net that reads them."""
        return (tf.cast(x, tf.float32) - self.scaling.offset) * self.scaling.factor


class InputEmbedding:
    """First step of a net that looks ids up in tables, as `embedded_vector` says; other columns
    stay as they are.

    Args:
        vector: Which columns are ids.
    """

    def __init__(self, vector: EmbeddedVector) -> None:
        self.tables = [_Table(leaf) for leaf in vector.leaves]
        self._columns = vector.columns
        #: For each slice of columns, the index of its table, or None.
        self._table_indices = vector.table_indices

    def __call__(self, x: Tensor) -> Any:
        """Map encoded observations `[B, n]`, as float32, to `[B, vector.width]`."""
        pieces = []
        for columns, table_index in zip(self._columns, self._table_indices, strict=True):
            piece = x[:, columns]
            if table_index is not None:
                piece = self.tables[table_index](piece)
            pieces.append(piece)
        return tf.concat(pieces, axis=1)


class _Table:
    """Table with a row for each id of a leaf.

    Args:
        leaf: The leaf.
    """

    def __init__(self, leaf: EmbeddedLeaf) -> None:
        weight = initial_value((leaf.rows, leaf.size), "normal", {"std": 1.0})
        self.weight = tf.Variable(weight, name="weight")
        self._characters = leaf.ids.characters
        self._places = leaf.places()
        self._width = leaf.width

    def __call__(self, x: Tensor) -> Any:
        """Map a leaf's columns `[B, n]` to `[B, leaf.width]`."""
        if self._characters is None:
            return tf.reshape(self._look_up(x), [-1, self._width])
        rows = self._look_up(x[:, : self._characters])
        mask = tf.cast(x[:, self._characters :, None], rows.dtype)
        # A text without characters has the mean 0.
        count = tf.maximum(tf.reduce_sum(mask, axis=1), 1)
        return tf.reduce_sum(rows * mask, axis=1) / count

    def _look_up(self, ids: Tensor) -> Any:
        """Return the rows of ids `[B, n]` as `[B, n, size]`; ids outside the space have the nearest
        one's.
        """
        places = self._places
        rows = tf.cast(ids, tf.int64) - places.lowest + places.first_rows
        rows = tf.minimum(tf.maximum(rows, places.first_rows), places.last_rows)
        return tf.gather(self.weight, rows)


class FreeLogStd:
    """Layer for the option `free_log_std`: it appends a trained vector, the same for every row, to
    the means.

    Args:
        size: Number of log standard deviations.
    """

    def __init__(self, size: int) -> None:
        self.log_std = tf.Variable(tf.zeros(size), name="log_std")

    def __call__(self, means: Tensor) -> Any:
        """Map `[B, size]` to `[B, 2 size]`."""
        log_std = tf.broadcast_to(self.log_std, tf.shape(means))
        return tf.concat([means, log_std], axis=1)


class OutputLayers:
    """Last layers of a model, for the logits and, unless there is a critic, for the value.

    Args:
        plan: Sizes of the layers; the logits layer is required.
        value_inputs: Width of the value layer's input; None means the width of the logits' input.
    """

    def __init__(self, plan: DensePlan, value_inputs: int | None = None) -> None:
        assert plan.logits is not None
        self.logits = Dense(plan.num_features, plan.logits)
        self.activation = activation(plan.logits.activation)
        self.free_log_std: FreeLogStd | None = None
        if plan.free_log_std:
            self.free_log_std = FreeLogStd(plan.free_log_std)
        if plan.has_value:
            self.value = Dense(value_inputs or plan.num_features, plan.value)

    def __call__(self, features: Tensor) -> Any:
        """Map features `[B, n]` to the model's output `[B, num_outputs]`."""
        output = self.logits(features)
        if self.activation is not None:
            output = self.activation(output)
        if self.free_log_std is not None:
            output = self.free_log_std(output)
        return output

    def values(self, features: Tensor) -> Any:
        """Map features `[B, n]` to value estimates `[B]`."""
        return self.value(features)[:, 0]
