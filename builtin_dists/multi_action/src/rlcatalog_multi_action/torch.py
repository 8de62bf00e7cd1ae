"""The distribution of Tuple and Dict spaces in PyTorch: its operations, and the class that takes them from here."""

from __future__ import annotations

import operator
import sys
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcatalog.torch import HALF, widened
from rlcatalog_multi_action.composite import CompositeDistribution
from rlcatalog_multi_action.members import Cut

_ARRAYS = (Tensor, np.ndarray)
#: Finite limits by dtype; looked up, as `torch.finfo` costs more than an operation on one row.
_HIGHEST = {dtype: torch.finfo(dtype).max for dtype in (*HALF, torch.float32, torch.float64)}


def tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """Return an array or tensor as a tensor, on the device of `like`."""
    if like is None:
        return value if isinstance(value, Tensor) else torch.as_tensor(value)
    return torch.as_tensor(value, device=like.device)


def is_array(value: Any) -> bool:
    """Whether a value is one tensor or array, not a structure."""
    return isinstance(value, _ARRAYS)


def cut(columns: Tensor, how: Cut) -> tuple[Tensor, ...]:
    """Cut `[B, n]` into pieces `[B, width]`."""
    if how.order is not None:
        columns = columns.index_select(1, _index(how, columns.device))
    return columns.split_with_sizes(how.widths, 1)


@lru_cache(maxsize=256)
def _index(how: Cut, device: torch.device) -> Tensor:
    # Kept for later calls, so it must not be an inference tensor, which training cannot use.
    with torch.inference_mode(False):
        return torch.tensor(how.order, dtype=torch.int64, device=device)


def in_rows(value: Any, like: Tensor, width: int) -> Tensor | None:
    """Return values as `[B, width]` with the rows of `like`; None where there are too many or too few."""
    value = tensor(value, like)
    return value.reshape(like.shape[0], width) if value.numel() == like.shape[0] * width else None


def side_by_side(pieces: list[Tensor]) -> Tensor:
    """Return `[B, w]` tensors as one, in the widest of their types."""
    if len({piece.dtype for piece in pieces}) > 1:  # half precision would not hold whole numbers
        pieces = [widened(piece) for piece in pieces]
    return torch.cat(pieces, 1)


def whole(values: Tensor) -> Tensor:
    """Return whole numbers as int64, rounded where they are stored as floats."""
    return values.round().long() if values.is_floating_point() else values


def total(values: list[Tensor]) -> Tensor:
    """Return the sum of tensors `[B]`, in the widest of their types."""
    return reduce(operator.add, values)


def stack(values: list[Tensor]) -> Tensor:
    """Return tensors `[B]` as the columns of one, in the widest of their types."""
    return torch.stack(values, dim=1)


def finite(values: Tensor) -> Tensor:
    """Return values with the nearest finite number of their type."""
    return values.clamp(-_HIGHEST[values.dtype], _HIGHEST[values.dtype])


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions of a Tuple's or Dict's parts, nested to any depth; see `CompositeDistribution`."""

    framework_of_class = "torch"
    ops = sys.modules[__name__]
    #: Of this very class, not of subclasses: inside another composite, its parts become parts of that one.
    taken_apart = True
