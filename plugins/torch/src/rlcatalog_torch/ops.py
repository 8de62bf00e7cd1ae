"""Tensor operations in PyTorch; see `rlcatalog.frameworks.TensorOps` for their documentation."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rlcatalog.actions import Interval, interval
from rlcatalog.frameworks import TensorOps
from rlcatalog.spaces import parts_of
from rlcatalog_torch.dtypes import HALF, HIGHEST, LOWEST
from rlcatalog_torch.private_api import cached_constant

#: Highest finite numbers by dtype, because `torch.finfo` takes longer than an operation on one row.
_HIGHEST = {dtype: highest.item() for dtype, highest in HIGHEST.items()}


def flatten_rows(x: Tensor) -> Tensor:
    """Reshape `[B]` or `[B, ...]` to `[B, n]`; B can be 0, in which case `reshape` cannot infer a
    `-1`.
    """
    return x[:, None] if x.ndim == 1 else x.flatten(1)


def flat_sample(sample: Any) -> Tensor:
    """Return a sample in its stored form: a structure's parts as `[B, width]`, or a single tensor
    unchanged.
    """
    if isinstance(sample, Tensor):
        return sample
    parts = [flatten_rows(part) for part in parts_of(sample) or []]
    # float32 represents integers that half precision does not.
    if len({part.dtype for part in parts}) > 1:
        parts = [part if part.dtype is torch.float64 else part.float() for part in parts]
    return torch.cat(parts, dim=1)


def _side_by_side(pieces: list[Tensor]) -> Tensor:
    if len({piece.dtype for piece in pieces}) > 1:  # half precision does not represent all integers
        pieces = [piece.float() if piece.dtype in HALF else piece for piece in pieces]
    return torch.cat(pieces, 1)


def _in_rows(value: Any, like: Tensor, width: int) -> Tensor | None:
    value = torch.as_tensor(value, device=like.device)
    return value.reshape(like.shape[0], width) if value.numel() == like.shape[0] * width else None


def _columns(values: list[Tensor]) -> Tensor:
    first = values[0].dtype
    if all(value.ndim == 1 and value.dtype is first for value in values):
        return torch.stack(values, dim=1)
    return _side_by_side([flatten_rows(value) for value in values])


def _cut(x: Tensor, how: Any) -> tuple[Tensor, ...]:
    if how.order is not None:
        x = x.index_select(1, _order(how.order, x.device))
    return x.split_with_sizes(how.widths, 1)


@cached_constant
def _order(order: tuple[int, ...], device: torch.device) -> Tensor:
    # Cached, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        return torch.tensor(order, dtype=torch.int64, device=device)


@cached_constant
def tensor_interval(
    low: Any, high: Any, size: int, dtype: torch.dtype, device: torch.device
) -> Interval:
    """Return the result of `rlcatalog.actions.interval` as tensors on a device."""
    *arrays, log_volume = interval(low, high, size, str(dtype).removeprefix("torch."))
    # Cached, so they must not be inference tensors, which training cannot use.
    with torch.inference_mode(False):
        return Interval(*[torch.tensor(a, device=device) for a in arrays], *[log_volume])


def _array(x: Tensor) -> Any:
    if torch.compiler.is_compiling():
        return None
    try:
        x = x.detach().cpu()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    except RuntimeError:  # inside torch.func's transforms
        return None


OPS = TensorOps(
    "torch",
    reshape=lambda x, shape: x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape),
    integers=lambda x: x.long(),
    side_by_side=_side_by_side,
    fill_forbidden=lambda inputs, mask: torch.where(mask.bool(), inputs, LOWEST[inputs.dtype]),
    array=_array,
    tensor=lambda value, like=None: torch.as_tensor(
        value, device=None if like is None else like.device
    ),
    booleans=lambda value, like: torch.as_tensor(value, device=like.device).bool(),
    is_array=lambda value: isinstance(value, (Tensor, np.ndarray)),
    is_float=lambda x: x.is_floating_point(),
    is_half=lambda x: x.dtype in HALF,
    cast=lambda x, dtype: x.to(dtype),
    whole=lambda x: x.round().long() if x.is_floating_point() else x,
    finite=lambda x: x.clamp(-_HIGHEST[x.dtype], _HIGHEST[x.dtype]),
    rows=lambda x, shape: x.reshape(-1, *shape),
    in_rows=_in_rows,
    columns=_columns,
    cut=_cut,
    each_row=lambda x, count: x.repeat_interleave(count, dim=0),
    all_rows=lambda x, like: x.repeat(like.shape[0], 1),
    padded=lambda x, width: F.pad(x, (0, width - x.shape[1])),
    taken=lambda lengths, places: torch.arange(places, device=lengths.device) < lengths[:, None],
    only=lambda taken, x: torch.where(
        taken.reshape(*taken.shape, *[1] * (x.ndim - taken.ndim)), x, 0
    ),
    total=lambda values: reduce(operator.add, values),
    sum=torch.sum,
    mean=torch.mean,
    std=torch.std,
    exp=torch.exp,
    minimum=torch.minimum,
    clip=torch.clamp,
    without_gradient=lambda x: x.detach(),
    concat=torch.cat,
    as_type=lambda x, name: x.to(getattr(torch, name)),
    flat=flatten_rows,
    maximum=lambda x, y: torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y),
    columns_at=lambda x, places: x.index_select(1, torch.as_tensor(places, device=x.device)),
    one_hot=lambda x, n: (x[:, None] == torch.arange(n, device=x.device)).float(),
    argmax=lambda x: x.argmax(dim=1),
)
