"""Relaxed one-hots in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlcatalog_categorical.contract import wrong_temperature
from rlcatalog_categorical.gumbel.contract import GumbelSoftmaxContract, wrong_actions
from rlcatalog_torch import LOWEST, to_float32_at_least

#: Entries below this are zero to `logp`: their reciprocals, which gradients hold, would soon be infinite.
_FLOOR = {torch.float32: 1e-30, torch.float64: 1e-290}


class GumbelSoftmax(GumbelSoftmaxContract):
    """Relaxed one-hots `[B, n]`, that gradients flow through; see `GumbelSoftmaxContract`."""

    framework_of_class = "torch"
    last_sample: Tensor

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if not 0 < temperature < math.inf:
            raise wrong_temperature(temperature)
        self.inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        self.model = model
        self.temperature = temperature
        logits = to_float32_at_least(self.inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; float32 for half precisions. Finite.
        self.log_probs = torch.log_softmax(logits, dim=-1).maximum(LOWEST[logits.dtype])

    def sample(self) -> Tensor:
        """Draw relaxed one-hots `[B, n]`, without gradient."""
        self.last_sample = self.rsample().detach()
        return self.last_sample

    def rsample(self, straight_through: bool = False) -> Tensor:
        """Draw relaxed one-hots `[B, n]`, with gradient.

        Args:
            straight_through: Return exact one-hots instead, with the gradient of the relaxed ones.
        """
        noise = torch.empty_like(self.log_probs).exponential_().log()
        soft = torch.softmax((self.log_probs - noise) / self.temperature, dim=-1).to(self.inputs.dtype)
        if not straight_through:
            return soft
        hard = functional.one_hot(soft.argmax(dim=-1), soft.shape[-1]).to(soft.dtype)
        return hard + (soft - soft.detach())

    def deterministic_sample(self) -> Tensor:
        """Return the one-hot `[B, n]` of the most likely value."""
        best = functional.one_hot(self.inputs.argmax(dim=-1), self.inputs.shape[-1])
        self.last_sample = best.to(self.inputs.dtype)
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log density `[B]`.

        Entries of 0 are entries too small for the dtype; a sample with such entries lies on a face of the simplex.
        There, this is the log density on the face of the others, plus the log probability that the largest entry is
        one of these. So inner points have the density of the Concrete distribution, exact one-hots the log probability
        that `Categorical` gives to their value, and nothing is infinite.

        Args:
            actions: (Relaxed) one-hots `[B, n]`, or values `[B]` or `[B, 1]`, which mean their one-hots.

        Raises:
            ModelContractError: The actions have another shape.
        """
        log_probs, n = self.log_probs, self.log_probs.shape[-1]
        x = torch.as_tensor(actions, device=log_probs.device)
        if x.numel() == log_probs.shape[0] and n > 1:
            x = functional.one_hot(x.long().reshape(-1), n)
        elif x.shape != log_probs.shape:
            raise wrong_actions(log_probs.shape, x.shape)
        x = x.to(log_probs.dtype)
        inside = x > _FLOOR[x.dtype]
        count = inside.sum(dim=-1).to(x.dtype)
        log_x = torch.where(inside, x, 1.0).log()
        weights = torch.where(inside, log_probs - self.temperature * log_x, -torch.inf)
        density = (
            torch.lgamma(count)
            + (count - 1) * math.log(self.temperature)
            + torch.where(inside, log_probs - (self.temperature + 1) * log_x, 0.0).sum(dim=-1)
            - count * weights.logsumexp(dim=-1)
        )
        of_face = torch.where(inside, log_probs, -torch.inf).logsumexp(dim=-1)
        lowest = torch.finfo(self.inputs.dtype).min
        return (density + of_face).clamp(lowest, -lowest).to(self.inputs.dtype)
