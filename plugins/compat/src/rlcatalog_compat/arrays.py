"""NumPy versions of network operations for RLlib's tests and losses, and padding for
convolutions.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from rlcatalog import one_hot
from rlcatalog.errors import ConfigError
from rlcatalog_compat.spaces import leaves_in

Array = np.ndarray[Any, Any]


def sigmoid(x: Any, derivative: bool = False) -> Any:
    """Return the logistic function of `x`, or its derivative at `x`."""
    s = 1.0 / (1.0 + np.exp(-np.asarray(x)))
    return s * (1.0 - s) if derivative else s


def softmax(x: Any, axis: int = -1, epsilon: float | None = None) -> Array:
    """Return the softmax along an axis, with no value below `epsilon` (default 1e-6)."""
    x = np.asarray(x)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.maximum(e / e.sum(axis=axis, keepdims=True), 1e-6 if epsilon is None else epsilon)  # type: ignore[no-any-return]


def relu(x: Any, alpha: float = 0.0) -> Any:
    """Return the larger of `x` and `alpha * x`."""
    return np.maximum(x, np.asarray(x) * alpha)


def huber_loss(x: Any, delta: float = 1.0) -> Any:
    """Return the Huber loss for errors: quadratic within `delta`, linear beyond it."""
    error = np.abs(x)
    return np.where(error < delta, 0.5 * np.square(x), delta * (error - 0.5 * delta))


def l2_loss(x: Any) -> Any:
    """Return half the sum of squares."""
    return np.sum(np.square(x)) / 2.0


def fc(x: Any, weights: Any, biases: Any = None, framework: str | None = None) -> Array:
    """Return a dense layer's output `[B, out]`.

    Args:
        x: Input `[B, in]`.
        weights: `[in, out]`, or `[out, in]` in PyTorch's layout.
        biases: `[out]`, or None.
        framework: `"torch"` if the weights come from PyTorch.
    """
    x, weights = convert_to_numpy(x), convert_to_numpy(weights)
    found: Array = x @ (weights.T if framework == "torch" else weights)
    return found if biases is None else found + convert_to_numpy(biases)


def one_hot_multidiscrete(x: Any, depths: Any) -> Array:
    """Convert choices `[..., k]` to concatenated one-hots `[..., sum(depths)]`."""
    x = np.asarray(x)
    return np.concatenate([one_hot(x[..., i], int(n)) for i, n in enumerate(depths)], axis=-1)


def flatten_inputs_to_1d_tensor(
    inputs: Any, spaces_struct: Any = None, time_axis: bool = False, batch_axis: bool = True
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
    leading = int(batch_axis) + int(time_axis)
    columns = []
    for leaf, space in leaves_in(inputs, spaces_struct):
        value = np.asarray(leaf)
        if isinstance(space, MultiDiscrete):
            value = one_hot_multidiscrete(value, space.nvec)
        elif isinstance(space, Discrete):
            value = one_hot(value, int(space.n))
        columns.append(value.reshape(*value.shape[:leading], -1).astype(np.float32))
    return np.concatenate(columns, axis=-1)


def make_action_immutable(obj: Any) -> Any:
    """Return an action that raises an error when it is changed: the array itself, now read-only, or
    a read-only view of a dict; anything else is unchanged.
    """
    if isinstance(obj, np.ndarray):
        obj.setflags(write=False)
        return obj
    return MappingProxyType(obj) if isinstance(obj, dict) else obj


def convert_to_numpy(x: Any, reduce_type: bool = True, reduce_floats: Any = None) -> Any:
    """Convert tensors, or a structure of tensors, to NumPy arrays.

    Args:
        x: Tensors of either framework, arrays, numbers, or dicts, lists and tuples of them.
        reduce_type: Whether to convert 64-bit values to 32 bits.
        reduce_floats: RLlib's older name for `reduce_type`, which only covered floats; has no
            effect.
    """
    if isinstance(x, dict):
        return {key: convert_to_numpy(value, reduce_type) for key, value in x.items()}
    if isinstance(x, list | tuple) and any(
        hasattr(value, "shape") or isinstance(value, dict) for value in x
    ):
        return type(x)(convert_to_numpy(value, reduce_type) for value in x)
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    array = np.asarray(x.numpy() if hasattr(x, "numpy") else x)
    smaller = (
        {"float64": np.float32, "int64": np.int32}.get(array.dtype.name) if reduce_type else None
    )
    return array if smaller is None else array.astype(smaller)


def standardized(array: Any) -> Any:
    """Return values shifted to mean 0 and scaled to standard deviation 1."""
    return (array - np.mean(array)) / max(1e-4, float(np.std(array)))


def discount_cumsum(x: Any, gamma: float) -> Array:
    """Return the discounted sum of each value and all later values."""
    found = np.zeros(len(x), np.float32)
    total = 0.0
    for place in reversed(range(len(x))):
        total = x[place] + gamma * total
        found[place] = total
    return found


def pair(value: Any) -> tuple[int, int]:
    """Return a pair of numbers: a single number is repeated, and two numbers are returned
    unchanged.
    """
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def same_padding(
    in_size: Any, filter_size: Any, stride_size: Any
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
    found, sizes = [], []
    for size, kernel, stride in zip(
        pair(in_size), pair(filter_size), pair(stride_size), strict=True
    ):
        out = -(-size // stride)
        total = (out - 1) * stride + kernel - size
        found.append((total // 2, total - total // 2))
        sizes.append(out)
    (top, bottom), (left, right) = found
    return (left, right, top, bottom), (sizes[0], sizes[1])


def valid_padding(in_size: Any, filter_size: Any, stride_size: Any) -> tuple[int, int]:
    """Return a convolution's output size without padding."""
    sizes = zip(pair(in_size), pair(filter_size), pair(stride_size), strict=True)
    height, width = (-(-(size - kernel + 1) // stride) for size, kernel, stride in sizes)
    return height, width
