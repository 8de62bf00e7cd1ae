"""Precision in PyTorch: the rule, and the few functions that keep it.

- Of what a policy gives its model, floating-point numbers (observations, views, memory) come in the dtype of the
  model's first floating-point parameter, as it is at that moment: `model.double()`, `model.half()`, assigned weights
  and `torch.set_default_dtype` before building need no further word. Whole numbers and booleans stay as they are.
- Our layers bring what they are given into the dtype of their own weights, so that parts of a model may differ.
- Distributions, values and what a policy returns are computed in float32 at least: half precisions are widened where
  they leave the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: The half precisions.
HALF = (torch.float16, torch.bfloat16)
#: Finite limits by dtype, as tensors: on one row, operations take them faster than numbers.
LOWEST = {dtype: torch.tensor(torch.finfo(dtype).min, dtype=dtype) for dtype in (*HALF, torch.float32, torch.float64)}
HIGHEST = {dtype: -lowest for dtype, lowest in LOWEST.items()}
_SERVED = frozenset(LOWEST)


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of a model's first floating-point parameter; float32 where there is none.

    It is looked for at each call, which ends at the first parameter of most models and takes one microsecond:
    parameters are converted, assigned and replaced without a word.
    """
    module: Any = model
    while module is not None:  # in most models, the first of the first modules has weights
        for parameter in module._parameters.values():
            if parameter is not None and parameter.dtype in _SERVED:
                return parameter.dtype  # type: ignore[no-any-return]
        module = next(iter(module._modules.values()), None)
    return next((parameter.dtype for parameter in model.parameters() if parameter.dtype in _SERVED), torch.float32)


def floats_as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return floating-point numbers in a dtype, everything else as it is."""
    return x.to(dtype) if x.dtype is not dtype and x.is_floating_point() else x


def to_float32_at_least(x: Tensor) -> Tensor:
    """Return half precisions as float32, everything else as it is."""
    return x.float() if x.dtype in HALF else x


def to_array(x: Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of a tensor as an array; of bfloat16, which NumPy has not, float32, which holds its values."""
    x = x.detach().cpu()
    array: np.ndarray[Any, Any] = (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    return array.copy()
