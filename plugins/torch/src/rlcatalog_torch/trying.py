"""What the conformance kit asks of PyTorch: gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def gradient(function: Callable[[Any], Any], inputs: Array) -> Array | None:
    """Return the gradient of the sum of what a function returns; None where none reaches the inputs.

    Args:
        function: Takes a tensor of the inputs, and returns a tensor.
        inputs: Floats of any shape.
    """
    x = torch.tensor(inputs, requires_grad=True)
    total = function(x).sum()
    if not total.requires_grad:
        return None
    (found,) = torch.autograd.grad(total, x, allow_unused=True)
    return None if found is None else found.numpy()
