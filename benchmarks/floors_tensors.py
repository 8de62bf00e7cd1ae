"""Floors of acting on tensors: a network written by hand, as the code around a GPU simulator has
it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.floors import HALF_LOG_2PI, build_torch, torch_draw

#: Actions, their log density, values, and the distribution's parameters.
Act = tuple[Tensor, Tensor, Tensor, Tensor]


class ChoiceFloor:
    """A network for a Discrete: bare modules and a fused draw."""

    def __init__(self, obs_size: int, n: int, hiddens: Sequence[int]) -> None:
        self.trunk, self.logits, self.value = build_torch(obs_size, n, hiddens)

    @torch.no_grad()
    def act(self, obs: Tensor, mask: Tensor | None = None) -> Act:
        """Choose actions for observations `[B, n]`."""
        features = self.trunk(obs)
        logits = self.logits(features)
        if mask is not None:
            logits = torch.where(mask.bool(), logits, -3.4e38)
        log_probs = logits.log_softmax(-1)
        action = torch_draw(log_probs)
        logp = log_probs.gather(-1, action).squeeze(-1)
        return action.squeeze(-1), logp, self.value(features).squeeze(-1), logits


class GaussianFloor:
    """A network for a Box with bounds from -1 to 1: bare modules and a Gaussian."""

    def __init__(self, obs_size: int, n: int, hiddens: Sequence[int]) -> None:
        self.trunk, self.params, self.value = build_torch(obs_size, 2 * n, hiddens)

    @torch.no_grad()
    def act(self, obs: Tensor) -> Act:
        """Choose actions for observations `[B, n]`."""
        features = self.trunk(obs)
        params = self.params(features)
        mean, log_std = params.chunk(2, -1)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        logp = (-0.5 * noise.square() - log_std - HALF_LOG_2PI).sum(-1)
        return raw.clamp(-1, 1), logp, self.value(features).squeeze(-1), params


class RunningScale:
    """Running statistics in float32, as such code has them."""

    def __init__(self, size: int) -> None:
        self.mean = torch.zeros(size)
        self.std = torch.ones(size)

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Return normalised observations within [-10, 10]."""
        return ((obs - self.mean) / (self.std + 1e-6)).clamp(-10, 10)
