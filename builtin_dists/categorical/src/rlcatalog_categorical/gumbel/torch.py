"""Relaxed one-hots in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution
from rlcatalog.config import read_config
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog.torch import LOWEST, widened
from rlcatalog_categorical.config import GumbelSoftmaxConfig
from rlcatalog_categorical.plugin import gumbel_size

#: Entries below this are zero to `logp`: their reciprocals, which gradients hold, would soon be infinite.
_FLOOR = {torch.float32: 1e-30, torch.float64: 1e-290}


class GumbelSoftmax(ActionDistribution):
    """Points of the simplex near its corners `[B, n]`, that gradients flow through; the adapter takes the largest.

    This is the Concrete distribution (Maddison, Mnih and Teh 2016, arXiv 1611.00712; also Jang, Gu and Poole 2016,
    arXiv 1611.01144): softmax((logits + Gumbel noise) / temperature). Neither its entropy nor its divergences have a
    closed form. The largest entry is distributed as `Categorical` of the same logits, whatever the temperature.

    Args:
        inputs: Logits `[B, n]`, unnormalised.
        model: The model that made them, or None.
        temperature: Near 0, draws come close to one-hots.
    """

    framework_of_class = "torch"
    last_sample: Tensor
    raw_kind = "onehot"
    entropy_kind = "estimate"

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if not 0 < temperature < math.inf:
            raise ConfigError(f"temperature must be positive, found {temperature}.")
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)
        self.temperature = temperature
        logits = widened(self.inputs)
        #: Normalised log probabilities `[B, n]` of the largest entry; float32 for half precisions. Finite.
        self.log_probs = torch.log_softmax(logits, dim=-1).maximum(LOWEST[logits.dtype])

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return n."""
        return gumbel_size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def options_for(
        cls, action: SpaceInfo, config: Mapping[str, Any], children: Sequence[tuple[Any, int]] = ()
    ) -> dict[str, Any]:
        """Return the temperature, where it is not 1."""
        temperature = read_config(config, GumbelSoftmaxConfig).gumbel_softmax_temperature
        return {} if temperature == 1.0 else {"temperature": temperature}

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
            raise ModelContractError(
                f"GumbelSoftmax: expected one-hots {tuple(log_probs.shape)} or values [{log_probs.shape[0]}], found"
                f" shape {tuple(x.shape)}."
            )
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
