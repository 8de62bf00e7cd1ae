"""RLlib's base class of distributions in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog import ActionDistribution


class TorchDistributionWrapper(ActionDistribution):
    """Base of distributions around one of `torch.distributions`: set `self.dist` in the constructor.

    Args:
        inputs: Model output `[B, size]`; arrays become tensors.
        model: The model that made it, or None.
    """

    dist: Any
    framework_of_class = "torch"

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)

    def sample(self) -> Any:
        """Draw raw actions."""
        self.last_sample = self.dist.sample()
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Return the log density `[B]` of raw actions."""
        return self.dist.log_prob(actions)

    def entropy(self) -> Any:
        """Return the entropy `[B]`."""
        return self.dist.entropy()

    def kl(self, other: ActionDistribution) -> Any:
        """Return the divergence from another distribution of the same kind, `[B]`."""
        return torch.distributions.kl.kl_divergence(self.dist, other.dist)  # type: ignore[attr-defined]


def get_torch_categorical_class_with_temperature(t: float) -> type:
    """Return a Categorical whose logits are divided by `t`."""
    from rlcatalog_torch import Categorical

    class TorchCategoricalWithTemperature(Categorical):
        def __init__(self, inputs: Any, model: Any = None, temperature: float = t) -> None:
            super().__init__(inputs, model, temperature)

    return TorchCategoricalWithTemperature
