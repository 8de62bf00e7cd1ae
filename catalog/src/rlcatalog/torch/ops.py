"""Operations that PyTorch spells differently from NumPy and TensorFlow."""

from __future__ import annotations

import torch
from torch import Tensor

from rlcatalog.frameworks import TensorOps
from rlcatalog.torch.dtypes import LOWEST


def reshape_last(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give the last axis of `x` the given shape, as a view where possible."""
    return x if len(shape) == 1 else x.reshape(x.shape[:-1] + shape)


def integers(x: Tensor) -> Tensor:
    """Return `x` as int64."""
    return x.long()


def side_by_side(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Join `[B, n]` tensors along their columns."""
    return torch.cat(pieces, dim=1)


def flatten_rows(x: Tensor) -> Tensor:
    """Return `[B]` or `[B, ...]` as `[B, n]`; B may be 0, which leaves no `-1` to be found out."""
    return x[:, None] if x.ndim == 1 else x.flatten(1)


def fill_forbidden(inputs: Tensor, mask: Tensor) -> Tensor:
    """Give inputs where `mask` is False the lowest finite value of their dtype."""
    return torch.where(mask.bool(), inputs, LOWEST[inputs.dtype])


#: What framework-neutral code needs of PyTorch.
OPS = TensorOps(reshape_last, integers, side_by_side, fill_forbidden)
