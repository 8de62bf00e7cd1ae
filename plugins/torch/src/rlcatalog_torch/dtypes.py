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

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rlcatalog_torch.private_api import cached_constant, modules_of, parameters_of

#: Half-precision dtypes.
HALF = (torch.float16, torch.bfloat16)
#: Dtypes of floating-point numbers.
FLOATS = frozenset((*HALF, torch.float32, torch.float64))


class FloatLimits(NamedTuple):
    """The finite limits of a floating-point dtype, as tensors without axes.

    Operations on one row are faster with tensors than with Python numbers.

    Attributes:
        lowest: The lowest finite number.
        highest: The highest finite number.
    """

    lowest: Tensor
    highest: Tensor


def limits_of(x: Tensor) -> FloatLimits:
    """Return the finite limits of a tensor's dtype, on its device."""
    return _limits(x.dtype, x.device)


@cached_constant
def _limits(dtype: torch.dtype, device: torch.device) -> FloatLimits:
    # Cached, so they must not be inference tensors, which training cannot use.
    with torch.inference_mode(False):
        highest = torch.tensor(torch.finfo(dtype).max, dtype=dtype, device=device)
        return FloatLimits(-highest, highest)


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of a model's first floating-point parameter; float32 if there is none.

    The dtype is not cached, because parameters can be converted or replaced at any time. For most
    models, the search ends at the first parameter and takes one microsecond.
    """
    module: nn.Module | None = model
    # Go down through the first submodules: in most models, one of them has weights.
    while module is not None:
        for own_parameter in parameters_of(module).values():
            if own_parameter is not None and own_parameter.dtype in FLOATS:
                return own_parameter.dtype
        module = next(iter(modules_of(module).values()), None)
    for parameter in model.parameters():
        if parameter.dtype in FLOATS:
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
