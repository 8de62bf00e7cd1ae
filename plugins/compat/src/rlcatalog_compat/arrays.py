"""NumPy versions of network operations for RLlib's tests and losses, and padding for
convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from numpy.typing import ArrayLike

from rlcatalog import one_hot
from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import Array, Tensor
from rlcatalog_compat.spaces import SpaceTree, leaves_in

#: A height and a width, or one number for both.
Size = int | Sequence[int]

#: 64-bit dtypes → the dtypes that replace them where RLlib works with 32 bits.
_SMALLER_DTYPES: dict[str, type] = {"float64": np.float32, "int64": np.int32}


def sigmoid(x: ArrayLike, derivative: bool = False) -> Any:
    """Return the logistic function of `x`, or its derivative at `x`."""
    value = 1.0 / (1.0 + np.exp(-np.asarray(x)))
    if derivative:
        return value * (1.0 - value)
    return value


def softmax(x: ArrayLike, axis: int = -1, epsilon: float | None = None) -> Array:
    """Return the softmax along an axis, with no value below `epsilon` (default 1e-6)."""
    if epsilon is None:
        epsilon = 1e-6
    logits = np.asarray(x)
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return np.maximum(probabilities, epsilon)  # type: ignore[no-any-return]


def relu(x: ArrayLike, alpha: float = 0.0) -> Any:
    """Return the larger of `x` and `alpha * x`."""
    return np.maximum(x, np.asarray(x) * alpha)


def huber_loss(x: ArrayLike, delta: float = 1.0) -> Any:
    """Return the Huber loss for errors: quadratic within `delta`, linear beyond it."""
    error = np.abs(x)
    return np.where(error < delta, 0.5 * np.square(x), delta * (error - 0.5 * delta))


def l2_loss(x: ArrayLike) -> Any:
    """Return half the sum of squares."""
    return np.sum(np.square(x)) / 2.0


def fc(
    x: Tensor, weights: Tensor, biases: Tensor | None = None, framework: str | None = None
) -> Array:
    """Return a dense layer's output `[B, out]`.

    Args:
        x: Input `[B, in]`.
        weights: `[in, out]`, or `[out, in]` in PyTorch's layout.
        biases: `[out]`, or None.
        framework: `"torch"` if the weights come from PyTorch.
    """
    kernel = convert_to_numpy(weights)
    if framework == "torch":
        kernel = kernel.T
    outputs: Array = convert_to_numpy(x) @ kernel
    if biases is None:
        return outputs
    outputs_with_biases: Array = outputs + convert_to_numpy(biases)
    return outputs_with_biases


def one_hot_multidiscrete(x: ArrayLike, depths: Sequence[int] | Array) -> Array:
    """Convert choices `[..., k]` to concatenated one-hots `[..., sum(depths)]`."""
    choices = np.asarray(x)
    columns = [one_hot(choices[..., i], int(depth)) for i, depth in enumerate(depths)]
    return np.concatenate(columns, axis=-1)


def flatten_inputs_to_1d_tensor(
    inputs: Any,
    spaces_struct: SpaceTree | None = None,
    time_axis: bool = False,
    batch_axis: bool = True,
) -> Array:
    """Return a structure of values as one float32 array `[B, n]`: flattened leaves, with discrete
    leaves as one-hots.

    Args:
        inputs: The values, each `[B, ...]`.
        spaces_struct: The spaces of the leaves, in the same structure; None if no leaf is discrete.
        time_axis: Whether the values are `[B, T, ...]`, and the result `[B, T, n]`.
        batch_axis: Whether there are these axes; if not, the result is `[n]`.

    Raises:
        ConfigError: There is a time axis, but no batch axis.
    """
    if time_axis and not batch_axis:
        raise ConfigError(
            "flatten_inputs_to_1d_tensor: expected batch_axis=True with time_axis=True, found"
            " batch_axis=False."
        )
    num_leading_axes = int(batch_axis) + int(time_axis)
    columns = []
    for leaf, space in leaves_in(inputs, spaces_struct):
        value = np.asarray(leaf)
        if isinstance(space, MultiDiscrete):
            value = one_hot_multidiscrete(value, space.nvec)
        elif isinstance(space, Discrete):
            value = one_hot(value, int(space.n))
        flat = value.reshape(*value.shape[:num_leading_axes], -1)
        columns.append(flat.astype(np.float32))
    return np.concatenate(columns, axis=-1)


def make_action_immutable(obj: Any) -> Any:
    """Return an action that raises an error when it is changed: the array itself, now read-only, or
    a read-only view of a dict; anything else is unchanged.
    """
    if isinstance(obj, np.ndarray):
        obj.setflags(write=False)
        return obj
    if isinstance(obj, dict):
        return MappingProxyType(obj)
    return obj


def convert_to_numpy(
    x: Any,
    reduce_type: bool = True,
    reduce_floats: bool | None = None,  # noqa: ARG001  (RLlib's signature)
) -> Any:
    """Convert tensors, or a structure of tensors, to NumPy arrays.

    Args:
        x: Tensors of either framework, arrays, numbers, or dicts, lists and tuples of them.
        reduce_type: Whether to convert 64-bit values to 32 bits.
        reduce_floats: RLlib's older name for `reduce_type`, which only covered floats; has no
            effect.
    """
    if isinstance(x, dict):
        return {key: convert_to_numpy(value, reduce_type) for key, value in x.items()}
    if isinstance(x, list | tuple) and any(map(_holds_values, x)):
        return type(x)(convert_to_numpy(value, reduce_type) for value in x)
    return _tensor_to_numpy(x, reduce_type)


def _holds_values(item: Any) -> bool:
    """Return whether an item makes its list a structure of tensors, instead of a list of numbers
    that is one array.
    """
    # Tensors of every framework, and arrays, have a shape; numbers do not.
    return isinstance(item, dict) or hasattr(item, "shape")


def _tensor_to_numpy(x: Any, reduce_type: bool) -> Array:
    """Return a tensor, an array, a number or a list of numbers as an array."""
    # PyTorch's tensors may need gradients or be on a GPU.
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    # Tensors of both frameworks.
    if hasattr(x, "numpy"):
        x = x.numpy()
    array = np.asarray(x)
    if reduce_type and array.dtype.name in _SMALLER_DTYPES:
        return array.astype(_SMALLER_DTYPES[array.dtype.name])
    return array


def standardized(array: Array) -> Any:
    """Return values shifted to mean 0 and scaled to standard deviation 1."""
    return (array - np.mean(array)) / max(1e-4, float(np.std(array)))


def discount_cumsum(x: Sequence[float] | Array, gamma: float) -> Array:
    """Return the discounted sum of each value and all later values."""
    sums = np.zeros(len(x), np.float32)
    discounted_sum = 0.0
    for step in reversed(range(len(x))):
        discounted_sum = x[step] + gamma * discounted_sum
        sums[step] = discounted_sum
    return sums


def pair(value: Size) -> tuple[int, int]:
    """Return a pair of numbers: a single number is repeated, and two numbers are returned
    unchanged.
    """
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def same_padding(
    in_size: Size, filter_size: Size, stride_size: Size
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Return the padding that makes a convolution's output size equal to its input size over its
    stride, rounded up.

    If the total padding is odd, the extra row or column is at the bottom or on the right.

    Args:
        in_size: Size of the image.
        filter_size: Size of the kernel.
        stride_size: Stride.

    Returns:
        `(left, right, top, bottom)` and the output size. In each pair of sizes, the first is the
        height.
    """
    height, width = pair(in_size)
    kernel_height, kernel_width = pair(filter_size)
    stride_height, stride_width = pair(stride_size)
    top, bottom = _same_padding_of_axis(height, kernel_height, stride_height)
    left, right = _same_padding_of_axis(width, kernel_width, stride_width)
    out_height = _divide_rounded_up(height, stride_height)
    out_width = _divide_rounded_up(width, stride_width)
    return (left, right, top, bottom), (out_height, out_width)


def _same_padding_of_axis(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after one axis of an image; see `same_padding`."""
    out_size = _divide_rounded_up(size, stride)
    total = (out_size - 1) * stride + kernel - size
    before = total // 2
    return before, total - before


def valid_padding(in_size: Size, filter_size: Size, stride_size: Size) -> tuple[int, int]:
    """Return a convolution's output size without padding."""
    height, width = pair(in_size)
    kernel_height, kernel_width = pair(filter_size)
    stride_height, stride_width = pair(stride_size)
    out_height = _divide_rounded_up(height - kernel_height + 1, stride_height)
    out_width = _divide_rounded_up(width - kernel_width + 1, stride_width)
    return out_height, out_width


def _divide_rounded_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
