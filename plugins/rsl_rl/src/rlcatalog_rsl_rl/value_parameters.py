"""Which weights only the value estimate depends on."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def find_value_parameters(outputs: Tensor, value: Tensor, model: nn.Module) -> list[nn.Parameter]:
    """Return the weights that the value estimates depend on, and the outputs do not.

    rsl_rl limits the norms of the actor's and the critic's gradients one by one. In one norm with
    the actor's, a critic's larger gradients would shrink the actor's steps.

    Args:
        outputs: The model's outputs `[B, n]`, with their graph.
        value: The value estimates `[B]`, with their graph.
        model: The model.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    of_outputs = _has_gradient(outputs, weights)
    of_value = _has_gradient(value, weights)
    found = []
    for weight, in_outputs, in_value in zip(weights, of_outputs, of_value, strict=True):
        if in_value and not in_outputs:
            found.append(weight)
    return found


def _has_gradient(result: Tensor, weights: list[nn.Parameter]) -> list[bool]:
    """Return for each weight whether the result depends on it."""
    if not result.requires_grad:
        return [False] * len(weights)
    gradients = torch.autograd.grad(result.sum(), weights, retain_graph=True, allow_unused=True)
    return [gradient is not None for gradient in gradients]
