"""Operations that PyTorch spells differently from NumPy and TensorFlow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog.frameworks import TensorOps

#: Lowest finite values by dtype, as tensors: `torch.where` takes them faster than numbers.
_LOWEST = {
    dtype: torch.tensor(torch.finfo(dtype).min, dtype=dtype)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


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
    return torch.where(mask.bool(), inputs, _LOWEST[inputs.dtype])


def array(x: Tensor) -> Any:
    """Return the values of `x`, or None where a transform or a compiler hides them."""
    if torch.compiler.is_compiling():
        return None
    try:
        x = x.detach().cpu()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    except RuntimeError:  # inside torch.func's transforms
        return None


#: What framework-neutral code needs of PyTorch.
OPS = TensorOps(reshape_last, integers, side_by_side, fill_forbidden, array)
