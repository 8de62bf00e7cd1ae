"""Operations that PyTorch spells differently from NumPy and TensorFlow."""

from __future__ import annotations

import torch
from torch import Tensor


def fill_forbidden(inputs: Tensor, mask: Tensor) -> Tensor:
    """Give inputs where `mask` is False the lowest finite value of their dtype."""
    return inputs.masked_fill(~mask.bool(), torch.finfo(inputs.dtype).min)
