"""Independent bits in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlcatalog.actions import same_kind
from rlcatalog_categorical.bernoulli.contract import BernoulliContract, wrong_mask
from rlcatalog_torch import HALF, HIGHEST, LOWEST


class Bernoulli(BernoulliContract):
    """Independent bits `[B, n]` from a logit each; see `BernoulliContract`."""

    framework_of_class = "torch"
    last_sample: Tensor

    # Probabilities of 1 and of 0, computed at first use.
    _both: tuple[Tensor, Tensor] | None = None

    def __init__(self, inputs: Any, model: Any = None) -> None:
        self.inputs = inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs)
        self.model = model
        #: Log probabilities `[B, n]` of 1; finite.
        self.log_p = functional.logsigmoid(inputs)
        #: Log probabilities `[B, n]` of 0; finite. Stable, where log(1 - p) would lose small probabilities.
        self.log_q = functional.logsigmoid(-inputs)

    @classmethod
    def masked(cls, inputs: Tensor, mask: Tensor, **options: Any) -> Tensor:
        """Force bits: mask `[B, 2n]`, for each bit whether it may be 0 and whether it may be 1.

        Raises:
            ActionMaskError: The mask has not two columns per bit.
        """
        if mask.shape[-1] != 2 * inputs.shape[-1]:
            raise wrong_mask(inputs, mask)
        forbidden = ~mask.bool()
        dtype = inputs.dtype
        return inputs.masked_fill(forbidden[:, ::2], HIGHEST[dtype]).masked_fill(forbidden[:, 1::2], LOWEST[dtype])

    def sample(self) -> Tensor:
        """Draw int64 `[B, n]`, anew at each call."""
        p, _ = self._probs()
        # Uniform in [0, 1): below 0 never, below 1 always. In half precision it would be coarse.
        uniform = torch.rand_like(p, dtype=torch.float32) if p.dtype in HALF else torch.rand_like(p)
        return self._remembered(uniform.lt_(p.detach()).type_as(p))

    def deterministic_sample(self) -> Tensor:
        """Return the most likely bits, int64 `[B, n]`; 0 where both are equally likely."""
        return self._remembered((self.inputs > 0).type_as(self.inputs))

    def _remembered(self, bits: Tensor) -> Tensor:
        self._bits = bits
        self.last_sample = bits.long()
        return self.last_sample

    def logp(self, actions: Any) -> Tensor:
        """Return the log probability `[B]` of bits `[B, n]` or `[B, *shape]`, summed over the bits."""
        if actions is self.last_sample:  # just drawn: its probability is not 0
            # At weights of 0 and 1, lerp returns either end as it is; for many rows it is ten times as fast as where.
            return torch.lerp(self.log_q, self.log_p, self._bits).sum(-1)
        actions = torch.as_tensor(actions, device=self.inputs.device).reshape(self.inputs.shape)
        log_probs = torch.where(actions.bool(), self.log_p, self.log_q).sum(-1)
        # Two forced bits together have a log probability beyond the dtype.
        return log_probs.maximum(LOWEST[log_probs.dtype])

    def entropy(self) -> Tensor:
        """Return the sum of the bits' entropies, `[B]`."""
        return -self._negative_entropies().sum(-1)

    def multi_entropy(self) -> Tensor:
        """Return the entropy of each bit, `[B, n]`."""
        return -self._negative_entropies()

    def _negative_entropies(self) -> Tensor:
        p, q = self._probs()
        return torch.addcmul(p * self.log_p, q, self.log_q)

    def kl(self, other: Any) -> Tensor:
        """Return the sum of the bits' divergences, `[B]`."""
        divergence = self.multi_kl(other).sum(-1)
        return divergence.minimum(HIGHEST[divergence.dtype])

    def multi_kl(self, other: Any) -> Tensor:
        """Return the divergence of each bit, `[B, n]`."""
        if type(other) is not type(self):
            same_kind(self, other)
        p, q = self._probs()
        return torch.addcmul(p * (self.log_p - other.log_p), q, self.log_q - other.log_q)

    def _probs(self) -> tuple[Tensor, Tensor]:
        if self._both is None:
            self._both = self.log_p.exp(), self.log_q.exp()
        return self._both
