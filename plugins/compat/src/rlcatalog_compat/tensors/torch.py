"""Tensor functions in PyTorch, under RLlib's names."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiDiscrete, Space
from torch import Tensor
from torch.nn import functional as F

from rlcatalog.frameworks import TensorTree
from rlcatalog_compat.spaces import SpaceTree, leaves_in, map_leaves, one_hot_widths

#: What `Tensor.to` accepts as a device.
Device = torch.device | str | int | None

atanh = torch.atanh


def convert_to_torch_tensor(x: Any, device: Device = None, pin_memory: bool = False) -> Any:
    """Convert arrays and numbers, or a structure of them, to tensors; float64 becomes float32.

    Args:
        x: Any value; None, and arrays and lists of objects or strings, are unchanged, such as a
            batch's infos.
        device: Device of the tensors.
        pin_memory: Whether to pin the tensors' memory if there is a GPU.
    """
    pins = pin_memory and torch.cuda.is_available()

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            tensor = leaf
        else:
            array = np.array(leaf)
            if array.dtype.kind in "OSU":
                return leaf
            tensor = torch.as_tensor(array)
        if tensor.dtype is torch.float64:
            tensor = tensor.float()
        if pins:
            tensor = tensor.pin_memory()
        return tensor.to(device)

    # A list is one array, not a structure.
    return map_leaves(convert, x, kinds=tuple)


def convert_to_non_torch_type(stats: Any) -> Any:
    """Convert tensors, or a structure of tensors, to arrays.

    Single-element tensors become Python numbers.
    """
    return map_leaves(_to_numpy, stats)


def _to_numpy(leaf: Any) -> Any:
    """Return a tensor as a number or an array; other leaves are unchanged."""
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.ndim == 0:
        return leaf.item()
    return leaf.detach().cpu().numpy()


def copy_torch_tensors(x: Any, device: Device = None) -> Any:
    """Return detached copies of tensors, or of a structure of tensors."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().clone().to(device)
        return leaf

    return map_leaves(copy, x)


def one_hot(x: Tensor, space: Space[Any]) -> Tensor:
    """Return Discrete values `[...]` as float one-hots, or MultiDiscrete values `[..., k]` as
    joined float one-hots.

    Args:
        x: Values that start at 0.
        space: A Discrete or MultiDiscrete.

    Raises:
        UnsupportedSpaceError: The space is of a different kind.
    """
    widths = one_hot_widths(space)
    x = x.long()
    columns = [x]
    if isinstance(space, MultiDiscrete) and x.ndim > 0:
        columns = list(x.unbind(-1))
    one_hots = [F.one_hot(column, width) for column, width in zip(columns, widths, strict=True)]
    return torch.cat(one_hots, dim=-1).float()


def flatten_inputs_to_1d_tensor(
    inputs: TensorTree, spaces_struct: SpaceTree | None = None, time_axis: bool = False
) -> Tensor:
    """Return a structure of values as one tensor `[B, n]`: flattened leaves, with discrete leaves
    as one-hots.

    Args:
        inputs: The values, each `[B, ...]`.
        spaces_struct: The spaces of the leaves, in the same structure; None if no leaf is discrete.
        time_axis: Whether the values are `[B, T, ...]`, and the result `[B, T, n]`.
    """
    num_leading_axes = 2 if time_axis else 1
    columns = []
    for leaf, space in leaves_in(inputs, spaces_struct):
        value = torch.as_tensor(leaf)
        if isinstance(space, Discrete | MultiDiscrete):
            value = one_hot(value, space)
        flat = value.reshape(*value.shape[:num_leading_axes], -1)
        columns.append(flat.float())
    return torch.cat(columns, dim=-1)


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """Return the fraction of the variance in `y` that the predictions explain, at least -1."""
    unexplained = torch.var(y - pred, dim=0) / torch.var(y, dim=0)
    return (1.0 - unexplained).clamp(min=-1.0)


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """Return the Huber loss of errors: squared within `delta`, linear beyond."""
    error = x.abs()
    return torch.where(error < delta, 0.5 * x.square(), delta * (error - 0.5 * delta))


def l2_loss(x: Tensor) -> Tensor:
    """Return half the sum of squares."""
    return 0.5 * x.square().sum()


def global_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the joint L2 norm of several tensors."""
    squares = [tensor.square().sum() for tensor in tensors if tensor is not None]
    return torch.stack(squares).sum().sqrt()


def minimize_and_clip(optimizer: torch.optim.Optimizer, clip_val: float = 10.0) -> Tensor:
    """Clip the gradient norm of an optimiser's parameters to `clip_val`; return the norm before
    clipping.
    """
    parameters = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameters.append(parameter)
    return torch.nn.utils.clip_grad_norm_(parameters, clip_val)


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Tensor:
    """Return the mean of all values except minus infinity."""
    is_counted = x != -torch.inf
    values = torch.where(is_counted, x, 0.0)
    counts = is_counted.float()
    if axis is None:
        return values.sum() / counts.sum()
    return values.sum(axis) / counts.sum(axis)


def sequence_mask(
    lengths: Tensor,
    maxlen: int | None = None,
    dtype: torch.dtype | None = None,
    time_major: bool = False,
) -> Tensor:
    """Return a mask of the non-padding positions in padded sequences.

    Args:
        lengths: Lengths `[S]`.
        maxlen: Padded length. Default: the longest length.
        dtype: Dtype. Default: bool.
        time_major: Whether time comes first.
    """
    if maxlen is None:
        maxlen = int(lengths.max())
    mask = torch.arange(maxlen, device=lengths.device) < lengths[:, None]
    if time_major:
        mask = mask.t()
    return mask.to(dtype or torch.bool)


def softmax_cross_entropy_with_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy `[B]` between distributions `[B, n]` and logits `[B, n]`."""
    return -(labels * logits.log_softmax(-1)).sum(-1)


def set_torch_seed(seed: int | None = None) -> None:
    """Seed PyTorch; do nothing if `seed` is None."""
    if seed is not None:
        torch.manual_seed(seed)
        random.seed(seed)


def symlog(x: Tensor) -> Tensor:
    """Return `sign(x) * log(1 + |x|)`."""
    return x.sign() * x.abs().log1p()


def inverse_symlog(y: Tensor) -> Tensor:
    """Return the `x` that `symlog` maps to `y`."""
    return y.sign() * y.abs().expm1()
