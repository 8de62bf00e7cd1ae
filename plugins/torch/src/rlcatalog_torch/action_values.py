"""Values of actions, for algorithms that learn Q-values."""

from __future__ import annotations

import torch
from torch import Tensor


def dueling_values(
    advantages: Tensor, state_values: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """Return the Q-values `[B, n]` of a dueling network (Wang et al. 2016, equation 9).

    Q(s, a) = V(s) + A(s, a) - the mean of A(s, ·). The mean is over the allowed actions, because
    the advantages of forbidden ones are never trained.

    Args:
        advantages: The outputs of a model for each action, A(s, ·), `[B, n]`.
        state_values: The value estimates of the same model, V(s), `[B]`.
        allowed: Whether each action is allowed, boolean `[B, n]`. If None, all are.
    """
    if allowed is None:
        mean = advantages.mean(dim=1, keepdim=True)
    else:
        count = allowed.sum(dim=1, keepdim=True).clamp(min=1)  # a row may allow nothing
        mean = torch.where(allowed, advantages, 0.0).sum(dim=1, keepdim=True) / count
    return advantages - mean + state_values.reshape(-1, 1)
