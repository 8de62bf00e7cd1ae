"""Activations, initialisers and dense layers in PyTorch, under the names in
`rlcatalog.config.layer_names`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcatalog.config import INITIALIZERS, activation_name, fan_in, initializer_name, initializing
from rlcatalog.errors import ModelContractError, NotServedError
from rlcatalog.frameworks import Array
from rlcatalog.models import (
    DensePlan,
    DenseSpec,
    ModelV2,
    check_features,
    check_values,
)
from rlcatalog.observations import EmbeddedLeaf, EmbeddedVector, Scaling
from rlcatalog_torch.dtypes import HALF, dtype_of, to_float32_at_least
from rlcatalog_torch.ops import OPS
from rlcatalog_torch.private_api import parameters_of


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "linear": None,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "selu": F.selu,
    "softmax": _softmax,
}


def activation(value: Any) -> Callable[[Tensor], Tensor] | None:
    """Return the function for an activation's name or callable; None for "linear".

    Args:
        value: A framework-neutral name, an nn.Module class or instance, or a function.
    """
    name = activation_name(value)
    if isinstance(name, str):
        return ACTIVATIONS[name]
    # Otherwise it is the value itself.
    if isinstance(name, type):
        return name()  # type: ignore[no-any-return]
    return name  # type: ignore[no-any-return]


def normc_(tensor: Tensor, std: float = 1.0) -> Tensor:
    """Fill a weight `[out, in, ...]` with normal values that are scaled to the L2 norm `std` for
    each output.
    """
    input_axes = tuple(range(1, tensor.dim()))
    with torch.no_grad():
        norm = tensor.normal_().square().sum(dim=input_axes, keepdim=True).sqrt_()
        return tensor.div_(norm.div_(std))


def _fan_in_uniform(tensor: Tensor, gain: float, inputs: int | None = None) -> Tensor:
    """Fill a weight or a bias as nn.Linear does, within the bounds ±`gain` / sqrt(inputs)."""
    bound = gain / math.sqrt(fan_in(tensor.shape, inputs))
    return nn.init.uniform_(tensor, -bound, bound)


def normc_initializer(std: float = 1.0) -> Callable[[Tensor], None]:
    """Return RLlib's initialiser, which fills a tensor in place with rows of L2 norm `std`."""

    def initialize(tensor: Tensor) -> None:
        normc_(tensor, std)

    return initialize


def _truncated_normal(tensor: Tensor, mean: float, std: float) -> Tensor:
    # Keras truncates at two standard deviations, torch at absolute bounds.
    return nn.init.trunc_normal_(tensor, mean, std, mean - 2 * std, mean + 2 * std)


#: The functions of `torch.nn.init` have the names in `INITIALIZERS`, with an underscore.
_INITIALIZERS: dict[str, Callable[..., Tensor]] = {
    name: getattr(nn.init, f"{name}_") for name in INITIALIZERS if hasattr(nn.init, f"{name}_")
}
# What `torch.nn.init` lacks or does differently.
_INITIALIZERS["normc"] = normc_
_INITIALIZERS["fan_in_uniform"] = _fan_in_uniform
_INITIALIZERS["truncated_normal"] = _truncated_normal


def initialize(
    tensor: Tensor, value: Any, config: Mapping[str, Any], inputs: int | None = None
) -> Tensor:
    """Fill a parameter in place, and return it.

    Args:
        tensor: Weight `[out, in, ...]` or bias `[out]`.
        value: A framework-neutral name, or a callable that fills a tensor in place.
        config: Arguments for the initialiser.
        inputs: The layer's number of inputs, which the shape of a bias does not reveal.
    """
    name = initializer_name(value, dict(config))
    # In half precision, some initialisers do not work, and all would draw from few numbers.
    wide = to_float32_at_least(tensor)
    if isinstance(name, str):
        arguments = {**INITIALIZERS[name], **config}
        if name == "fan_in_uniform":
            arguments["inputs"] = inputs
        _INITIALIZERS[name](wide, **arguments)
    else:
        # A user's callable; `initializing` names it in errors.
        with initializing(value):
            name(wide, **config)
    if wide is not tensor:
        with torch.no_grad():
            tensor.copy_(wide)
    return tensor


def features_of(
    trunk: ModelV2, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
) -> tuple[Tensor, list[Any]]:
    """Run the trunk of a memory or head; return its floating-point features `[B, width]` and its
    new state.

    Raises:
        ModelContractError: The width differs from the trunk's `num_outputs`.
    """
    x, new_state = trunk(input_dict, state, seq_lens)
    if x.dim() != 2:
        x = x.flatten(1)
    if x.shape[1] != trunk.num_outputs:
        check_features(trunk, x.shape[1])
    if not x.is_floating_point():
        x = x.float()
    return x, new_state


def values_of(model: ModelV2, rows: int | None = None) -> Tensor:
    """Return the value estimates `[B]` of a model's last pass, as float32 or wider.

    Args:
        model: The model, whose `value_function` returns `[B]` or `[B, 1]`.
        rows: B, if known.

    Raises:
        ModelContractError: The values have the wrong shape.
    """
    value: Tensor = model.value_function()
    # This condition is quicker than `check_values`, which raises the error.
    if type(value) is not Tensor or value.shape != (rows,):
        check_values(model, value, rows)
        if not isinstance(value, Tensor):
            raise ModelContractError(
                f"{type(model).__name__}.value_function() must return a torch.Tensor; found"
                f" {type(value).__name__}, through which no gradient flows."
            )
        if value.ndim == 2:
            value = value[:, 0]
    return value.float() if value.dtype in HALF else value


class Linear(nn.Linear):
    """Linear layer with less Python overhead than nn.Linear for small batches; it accepts inputs of
    any dtype.

    The constructor does not initialise the layer, because the function that creates it does. Each
    call reads the parameters from their dictionary, without nn.Module's `__getattr__`.
    """

    def reset_parameters(self) -> None:
        """Do nothing, because `dense` initialises the layer."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[B, in]` to `[B, out]`."""
        # A dict, which is faster to read than nn.Module's attributes.
        parameters = parameters_of(self)
        weight: Any
        bias: Any
        if "weight" in parameters:
            weight = parameters["weight"]
            bias = parameters["bias"]
        else:
            # The weight is computed from others, as with weight norm.
            weight = self.weight
            bias = self.bias
        if input.dtype is not weight.dtype:
            input = input.to(weight.dtype)
        return F.linear(input, weight, bias)


def dense(inputs: int, spec: DenseSpec) -> nn.Linear:
    """Return an initialised linear layer; the caller applies the activation."""
    layer = Linear(inputs, spec.size)
    initialize(layer.weight, spec.weights, spec.weights_config)
    initialize(layer.bias, spec.bias, spec.bias_config, inputs)
    return layer


class DenseStack(nn.Module):
    """Dense layers with their activations.

    Args:
        inputs: Width of the input.
        specs: The layers.

    Attributes:
        outputs: Width of the output.
    """

    def __init__(self, inputs: int, specs: Sequence[DenseSpec]) -> None:
        super().__init__()
        widths = [inputs, *(spec.size for spec in specs)]
        self.layers = nn.ModuleList(
            dense(input_width, spec) for input_width, spec in zip(widths[:-1], specs, strict=True)
        )
        self.outputs = widths[-1]
        self._activations = [activation(spec.activation) for spec in specs]
        # An activation with parameters, such as PReLU, must be registered to be trained.
        self.activation_modules = nn.ModuleList(
            module for module in self._activations if isinstance(module, nn.Module)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, inputs]` to `[B, outputs]`."""
        for layer, activate in zip(self.layers, self._activations, strict=True):
            x = layer(x)
            if activate is not None:
                x = activate(x)
        return x


class InputScaling(nn.Module):
    """First step of a net that reads integers, which it scales as `scaling_of` says.

    Args:
        scaling: The affine map, with arrays in the shape of one observation.
    """

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.offset: float | Tensor
        self.factor: float | Tensor
        self._keep("offset", scaling.offset)
        self._keep("factor", scaling.factor)

    def _keep(self, name: str, value: float | Array) -> None:
        """Set an attribute to a number, or to a tensor that moves with the module."""
        if isinstance(value, float):
            setattr(self, name, value)
        else:
            # Not persistent: the config gives it, and it is not a weight.
            self.register_buffer(name, torch.from_numpy(value), persistent=False)

    def forward(self, x: Tensor, like: nn.Module) -> Tensor:
        """Return observations `[B, ...]` scaled, in the dtype of a module's weights."""
        scaled = x.to(dtype_of(like))
        has_offset = not isinstance(self.offset, float) or self.offset != 0.0
        if has_offset or scaled is x:
            scaled = scaled - self.offset
        # `scaled` is a new tensor here, so it can be changed.
        return scaled.mul_(self.factor)


class InputEmbedding(nn.Module):
    """First step of a net that looks ids up in tables, as `embedded_vector` says; other columns
    stay as they are.

    Args:
        vector: Which columns are ids.
    """

    def __init__(self, vector: EmbeddedVector) -> None:
        super().__init__()
        self.tables = nn.ModuleList(_Table(leaf) for leaf in vector.leaves)
        self._columns = vector.columns
        #: For each slice of columns, the index of its table, or None.
        self._table_indices = vector.table_indices
        self._largest_id = max(leaf.ids.largest for leaf in vector.leaves)

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded observations `[B, n]` to `[B, vector.width]`.

        Raises:
            NotServedError: They have half precision, which does not represent all ids.
        """
        if x.dtype in HALF:
            self._check_half(x.dtype)
        pieces = []
        for columns, table_index in zip(self._columns, self._table_indices, strict=True):
            piece = x[:, columns]
            if table_index is not None:
                piece = self.tables[table_index](piece)
            pieces.append(piece)
        if len(pieces) == 1:
            return pieces[0]
        return OPS.side_by_side(pieces)  # type: ignore[no-any-return]

    def _check_half(self, dtype: torch.dtype) -> None:
        largest_exact = 2 / torch.finfo(dtype).eps  # up to this integer, each has a number
        if self._largest_id > largest_exact:
            raise NotServedError(
                f"embeddings: {dtype} represents integers up to {largest_exact:,.0f}, but there are"
                f" ids up to {self._largest_id:,}. Keep the model in float32, or run it under"
                " torch.autocast."
            )


class _Table(nn.Module):
    """Table with a row for each id of a leaf.

    Args:
        leaf: The leaf.
    """

    def __init__(self, leaf: EmbeddedLeaf) -> None:
        super().__init__()
        weight = torch.empty(leaf.rows, leaf.size)
        self.weight = nn.Parameter(initialize(weight, "normal", {"std": 1.0}))
        self._characters = leaf.ids.characters
        # Not persistent: the space gives them, and they are not weights.
        for name, values in leaf.places()._asdict().items():
            self.register_buffer(name, torch.from_numpy(values), persistent=False)

    lowest: Tensor
    first_rows: Tensor
    last_rows: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Map a leaf's columns `[B, n]` to `[B, leaf.width]`."""
        if self._characters is None:
            return self._look_up(x).flatten(1)
        rows = self._look_up(x[:, : self._characters])
        mask = x[:, self._characters :, None].to(rows.dtype)
        # A text without characters has the mean 0.
        count = mask.sum(1).clamp(min=1)
        return (rows * mask).sum(1) / count

    def _look_up(self, ids: Tensor) -> Tensor:
        """Return the rows of ids `[B, n]` as `[B, n, size]`; ids outside the space have the nearest
        one's.
        """
        rows = ids.long() - self.lowest + self.first_rows
        rows = torch.minimum(torch.maximum(rows, self.first_rows), self.last_rows)
        return F.embedding(rows, self.weight)


class FreeLogStd(nn.Module):
    """Layer for the option `free_log_std`: it appends a trained vector, the same for every row, to
    the means.

    Args:
        size: Number of log standard deviations.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(size))

    def forward(self, means: Tensor) -> Tensor:
        """Map `[B, size]` to `[B, 2 size]`."""
        return torch.cat([means, self.log_std.expand(means.shape[0], -1)], dim=1)


class OutputLayers(nn.Module):
    """Last layers of a model, for the logits and, unless there is a critic, for the value.

    Args:
        plan: Sizes of the layers; the logits layer is required.
        value_inputs: Width of the value layer's input; None means the width of the logits' input.
    """

    def __init__(self, plan: DensePlan, value_inputs: int | None = None) -> None:
        super().__init__()
        assert plan.logits is not None, "a trunk has no output layers"
        self.logits = dense(plan.num_features, plan.logits)
        self.activation = activation(plan.logits.activation)
        self.free_log_std: FreeLogStd | None = None
        if plan.free_log_std:
            self.free_log_std = FreeLogStd(plan.free_log_std)
        if plan.has_value:
            self.value = dense(value_inputs or plan.num_features, plan.value)

    def forward(self, features: Tensor) -> Tensor:
        """Map features `[B, n]` to the model's output `[B, num_outputs]`."""
        output: Tensor = self.logits(features)
        if self.activation is not None:
            output = self.activation(output)
        if self.free_log_std is not None:
            output = self.free_log_std(output)
        return output

    def values(self, features: Tensor) -> Tensor:
        """Map features `[B, n]` to value estimates `[B]`."""
        value: Tensor = self.value(features)
        return value.squeeze(1)
