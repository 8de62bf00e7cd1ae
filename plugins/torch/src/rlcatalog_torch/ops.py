"""The tensor operations of PyTorch; `rlcatalog.frameworks.TensorOps` says what each of the table does."""

from __future__ import annotations

import operator
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rlcatalog.frameworks import TensorOps
from rlcatalog.spaces import parts_of
from rlcatalog_torch.dtypes import HALF, HIGHEST, LOWEST

_ARRAYS = (Tensor, np.ndarray)
#: Highest finite numbers by dtype; looked up, as `torch.finfo` costs more than an operation on one row.
_HIGHEST = {dtype: highest.item() for dtype, highest in HIGHEST.items()}


def reshape_last(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give the last axis of `x` the given shape, as a view where possible."""
    return x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape)


def flatten_rows(x: Tensor) -> Tensor:
    """Return `[B]` or `[B, ...]` as `[B, n]`; B may be 0, which leaves no `-1` to be found out."""
    return x[:, None] if x.ndim == 1 else x.flatten(1)


def flat_sample(sample: Any) -> Tensor:
    """Return a sample in its stored form: a structure's parts side by side, `[B, width]`; one tensor as it is."""
    if isinstance(sample, Tensor):
        return sample
    parts = [flatten_rows(part) for part in parts_of(sample) or []]
    if len({part.dtype for part in parts}) > 1:  # float32 holds whole numbers that half precision would not
        parts = [part if part.dtype is torch.float64 else part.float() for part in parts]
    return torch.cat(parts, dim=1)


def fill_forbidden(inputs: Tensor, mask: Tensor) -> Tensor:
    """Give inputs where `mask` is False the lowest finite value of their dtype."""
    return torch.where(mask.bool(), inputs, LOWEST[inputs.dtype])


def _integers(x: Tensor) -> Tensor:
    return x.long()


def _side_by_side(pieces: list[Tensor]) -> Tensor:
    if len({piece.dtype for piece in pieces}) > 1:  # half precision would not hold whole numbers
        pieces = [piece.float() if piece.dtype in HALF else piece for piece in pieces]
    return torch.cat(pieces, 1)


def _tensor(value: Any, like: Tensor | None = None) -> Tensor:
    if like is None:
        return value if isinstance(value, Tensor) else torch.as_tensor(value)
    return torch.as_tensor(value, device=like.device)


def _booleans(value: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(value, device=like.device).bool()


def _is_array(value: Any) -> bool:
    return isinstance(value, _ARRAYS)


def _is_float(x: Tensor) -> bool:
    return x.is_floating_point()


def _is_half(x: Tensor) -> bool:
    return x.dtype in HALF


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def _whole(x: Tensor) -> Tensor:
    return x.round().long() if x.is_floating_point() else x


def _finite(x: Tensor) -> Tensor:
    highest = _HIGHEST[x.dtype]
    return x.clamp(-highest, highest)


def _rows(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.reshape(-1, *shape)


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
        x = x.index_select(1, _order(how, x.device))
    return x.split_with_sizes(how.widths, 1)


@lru_cache(maxsize=256)
def _order(how: Any, device: torch.device) -> Tensor:
    # Kept for later calls, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        return torch.tensor(how.order, dtype=torch.int64, device=device)


def _each_row(x: Tensor, count: int) -> Tensor:
    return x.repeat_interleave(count, dim=0)


def _all_rows(x: Tensor, like: Tensor) -> Tensor:
    return x.repeat(like.shape[0], 1)


def _padded(x: Tensor, width: int) -> Tensor:
    return F.pad(x, (0, width - x.shape[1]))


def _taken(lengths: Tensor, places: int) -> Tensor:
    return torch.arange(places, device=lengths.device) < lengths[:, None]


def _only(taken: Tensor, x: Tensor) -> Tensor:
    return torch.where(taken.reshape(*taken.shape, *[1] * (x.ndim - taken.ndim)), x, 0)


def _total(values: list[Tensor]) -> Tensor:
    return reduce(operator.add, values)


def _without_gradient(x: Tensor) -> Tensor:
    return x.detach()


def _as_type(x: Tensor, name: str) -> Tensor:
    return x.to(getattr(torch, name))


def _maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def _columns_at(x: Tensor, places: Any) -> Tensor:
    return x.index_select(1, torch.as_tensor(places, device=x.device))


def _one_hot(x: Tensor, n: int) -> Tensor:
    return (x[:, None] == torch.arange(n, device=x.device)).float()


def _argmax(x: Tensor) -> Tensor:
    return x.argmax(dim=1)


def _array(x: Tensor) -> Any:
    if torch.compiler.is_compiling():
        return None
    try:
        x = x.detach().cpu()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    except RuntimeError:  # inside torch.func's transforms
        return None


OPS = TensorOps(
    "torch", reshape_last, _integers, _side_by_side, fill_forbidden, _array,
    tensor=_tensor, booleans=_booleans, is_array=_is_array, is_float=_is_float, is_half=_is_half, cast=_cast,
    whole=_whole, finite=_finite, rows=_rows, in_rows=_in_rows, columns=_columns, cut=_cut, each_row=_each_row,
    all_rows=_all_rows, padded=_padded, taken=_taken, only=_only, total=_total, sum=torch.sum, mean=torch.mean,
    std=torch.std, exp=torch.exp, minimum=torch.minimum, clip=torch.clamp, without_gradient=_without_gradient,
    concat=torch.cat, as_type=_as_type, flat=flatten_rows, maximum=_maximum, columns_at=_columns_at, one_hot=_one_hot,
    argmax=_argmax,
)  # fmt: skip
