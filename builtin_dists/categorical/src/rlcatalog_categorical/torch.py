"""The categorical distribution in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog import SpaceInfo
from rlcatalog.distribution import ActionDistribution
from rlcatalog.errors import ConfigError
from rlcatalog_categorical.plugin import size


class Categorical(ActionDistribution):
    """Distribution over `{0, …, n-1}` from logits `[B, n]`; the adapter adds a Discrete's `start`.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that made them, or None.
        temperature: Divides the logits; above 1 flattens, below 1 sharpens.
    """

    framework_of_class = "torch"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if temperature <= 0:
            raise ConfigError(f"temperature must be positive, found {temperature}.")
        if not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(inputs)
        super().__init__(inputs if temperature == 1.0 else inputs / temperature, model)
        self._log_probs: Tensor | None = None

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return n."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor) -> Tensor:
        """Give forbidden values the lowest finite logit of the dtype; mask `[B, n]`, True = allowed."""
        return inputs.masked_fill(~mask.bool(), torch.finfo(inputs.dtype).min)

    @property
    def log_probs(self) -> Tensor:
        """Normalised log probabilities `[B, n]`."""
        if self._log_probs is None:
            self._log_probs = torch.log_softmax(self.inputs, dim=-1)
        return self._log_probs

    def sample(self) -> Tensor:
        """Draw int64 `[B]` by an exponential race: argmax of logits - log E with E ~ Exp(1), the Gumbel-max trick."""
        # Normalised logits: against a large common offset the race would be lost to rounding.
        race = torch.empty_like(self.log_probs).exponential_().log_()
        return self._remembered((self.log_probs - race).argmax(dim=-1, keepdim=True))

    def deterministic_sample(self) -> Tensor:
        """Return the most likely value, int64 `[B]`."""
        return self._remembered(self.inputs.argmax(dim=-1, keepdim=True))

    def _remembered(self, index: Tensor) -> Tensor:
        self._index = index
        self.last_sample = index.squeeze(-1)
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of values `[B]` or `[B, 1]`."""
        if actions is self.last_sample:  # just drawn: its index is at hand, its probability is not 0
            return self.log_probs.gather(-1, self._index).squeeze(-1)
        index = torch.as_tensor(actions, device=self.inputs.device).long().reshape(-1, 1)
        return self._finite().gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return -Σ p log p, `[B]`."""
        log_probs = self._finite()
        return -(log_probs.exp() * log_probs).sum(dim=-1)

    def kl(self, other: ActionDistribution) -> Tensor:
        """Return Σ p (log p - log q), `[B]`."""
        assert isinstance(other, Categorical)
        log_probs = self._finite()
        return (log_probs.exp() * (log_probs - other._finite())).sum(dim=-1)

    def _finite(self) -> Tensor:
        """Log probabilities with the lowest finite value in place of -inf, which 0 · log 0 would make NaN."""
        return self.log_probs.clamp(min=torch.finfo(self.log_probs.dtype).min)
