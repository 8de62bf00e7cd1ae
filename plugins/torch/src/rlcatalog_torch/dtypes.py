"""Floating-point precision in PyTorch.

- A model receives observations, views and memory in the dtype that its first floating-point
  parameter has at the time of the call. Therefore, `model.double()`, `model.half()`, assigned
  weights and `torch.set_default_dtype` work as expected. Integers and booleans keep their dtype.
- rlcatalog's layers convert their inputs to the dtype of their weights, so dtypes can differ within
  a model.
- Distributions, values and the results of a policy are float32 or wider: outputs in half precision
  are converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog_torch.private_api import modules_of, parameters_of

#: Half-precision dtypes.
HALF = (torch.float16, torch.bfloat16)
#: Finite limits by dtype, as tensors, because operations on one row are faster with tensors than
#: with Python numbers.
LOWEST = {
    dtype: torch.tensor(torch.finfo(dtype).min, dtype=dtype)
    for dtype in (*HALF, torch.float32, torch.float64)
}
HIGHEST = {dtype: -lowest for dtype, lowest in LOWEST.items()}
_WEIGHT_DTYPES = frozenset(LOWEST)


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of a model's first floating-point parameter; float32 if there is none.

    The dtype is not cached, because parameters can be converted or replaced at any time. For most
    models, the search ends at the first parameter and takes one microsecond.
    """
    module: nn.Module | None = model
    # Go down through the first submodules: in most models, one of them has weights.
    while module is not None:
        for own_parameter in parameters_of(module).values():
            if own_parameter is not None and own_parameter.dtype in _WEIGHT_DTYPES:
                return own_parameter.dtype
        module = next(iter(modules_of(module).values()), None)
    for parameter in model.parameters():
        if parameter.dtype in _WEIGHT_DTYPES:
            return parameter.dtype
    return torch.float32


def floats_as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert floating-point numbers to a dtype; return other tensors unchanged."""
    if x.dtype is not dtype and x.is_floating_point():
        return x.to(dtype)
    return x


def to_float32_at_least(x: Tensor) -> Tensor:
    """Convert half precision to float32; return other tensors unchanged."""
    return x.float() if x.dtype in HALF else x


def to_array(x: Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of a tensor as an array; bfloat16, which NumPy does not support, becomes
    float32.
    """
    x = x.detach().cpu()
    if x.dtype is torch.bfloat16:
        x = x.float()
    array: np.ndarray[Any, Any] = x.numpy()
    return array.copy()
