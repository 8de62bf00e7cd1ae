"""The categorical distribution in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlcatalog.actions import same_kind
from rlcatalog_categorical.contract import CategoricalContract, wrong_temperature
from rlcatalog_torch import HALF, LOWEST


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature, in new memory; what a mask forbids stays forbidden and all stays finite.

    Raises:
        ConfigError: The temperature is not positive.
    """
    if not 0 < temperature < math.inf:
        raise wrong_temperature(temperature)
    limits = torch.finfo(logits.dtype)
    return torch.where(logits > limits.min, (logits / temperature).clamp(limits.min, limits.max), limits.min)


def race(probs: Tensor) -> Tensor:
    """Draw from probabilities `[..., n]` an index `[..., 1]`: of exponential clocks at these rates, the first to ring.

    The clocks are minus logs of uniform numbers, which take a fraction of the time of `exponential_`; the sign is left
    to argmin. From 1e-30 up, the logs are finite: what has probability 0 never wins.
    """
    if probs.dtype in HALF:  # there, clocks may round to 0
        probs = probs.float()
    return (probs / torch.empty_like(probs).uniform_(1e-30, 1.0).log_()).argmin(dim=-1, keepdim=True)


class Categorical(CategoricalContract):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; see `CategoricalContract`."""

    framework_of_class = "torch"
    last_sample: Tensor

    # Computed at first use.
    _finite_log_probs: Tensor | None = None
    _exp: Tensor | None = None

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        self.inputs, self.model = inputs if temperature == 1.0 else tempered(inputs, temperature), model
        #: Normalised log probabilities `[B, n]`.
        self.log_probs: Tensor = self.inputs.log_softmax(-1)

    @classmethod
    def draw(cls, inputs: Any, model: Any = None, **options: Any) -> Any:
        if options or cls is not Categorical:
            return super().draw(inputs, model, **options)
        return race(inputs.softmax(-1)).squeeze(-1)

    def sample(self) -> Tensor:
        """Draw int64 `[B]`, anew at each call."""
        self._index = race(self._probs())
        self.last_sample = self._index.squeeze(-1)
        return self.last_sample

    def deterministic_sample(self) -> Tensor:
        """Return the most likely value, int64 `[B]`."""
        self._index = self.inputs.argmax(dim=-1, keepdim=True)
        self.last_sample = self._index.squeeze(-1)
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of values `[B]` or `[B, 1]`."""
        if actions is self.last_sample:  # just drawn: its index is at hand, its probability is not 0
            return self.log_probs.gather(-1, self._index).squeeze(-1)
        index = torch.as_tensor(actions, device=self.inputs.device).long().reshape(-1, 1)
        return self._finite().gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return -Σ p log p, `[B]`."""
        return -(self._probs() * self._finite()).sum(dim=-1)

    def kl(self, other: Any) -> Tensor:
        """Return Σ p (log p - log q), `[B]`."""
        if type(other) is not type(self):
            same_kind(self, other)
        divergence: Tensor = self._probs() * (self._finite() - other._finite())
        return divergence.sum(dim=-1)

    def _finite(self) -> Tensor:
        """Log probabilities with the lowest finite value in place of -inf, which 0 · log 0 would make NaN."""
        if self._finite_log_probs is None:
            self._finite_log_probs = self.log_probs.maximum(LOWEST[self.log_probs.dtype])
        return self._finite_log_probs

    def _probs(self) -> Tensor:
        if self._exp is None:
            self._exp = self.log_probs.exp()
        return self._exp
