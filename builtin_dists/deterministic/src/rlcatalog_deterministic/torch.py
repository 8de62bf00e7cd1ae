"""The deterministic distribution in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionDistribution
from rlcatalog.errors import NotServedError
from rlcatalog_deterministic.plugin import size


class Deterministic(ActionDistribution):
    """A point mass: the action is the inputs `[B, d]`; the adapter brings it into its bounds.

    It has no density. By convention its measure is that of the point itself, where the probability is 1: `logp` is 0
    for every action, which is not compared with the point, and the entropy is 0; `logp` is NaN where the point is.
    There is no `kl`: it is infinite between any two different points.

    Args:
        inputs: `[B, d]`: the actions.
        model: The model that made them, or None.
    """

    framework_of_class = "torch"

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs), model)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        """Return d."""
        return size(SpaceInfo.read(action_space, "action"), model_config or {})

    @classmethod
    def masked(cls, inputs: Any, mask: Any, **options: Any) -> Any:
        """Return the inputs as they are: a Box has no part that could be forbidden, its mask is `[B, 0]`."""
        if mask.shape[-1]:
            raise NotServedError(f"{cls.__name__} takes no action mask, found one of {mask.shape[-1]} columns.")
        return inputs

    def sample(self) -> Tensor:
        """Return the inputs `[B, d]`, without gradient."""
        drawn: Tensor = self.inputs.detach()
        self.last_sample = drawn
        return drawn

    def rsample(self) -> Tensor:
        """Return the inputs `[B, d]`, with their gradient."""
        result: Tensor = self.inputs
        return result

    def deterministic_sample(self) -> Tensor:
        """Return the inputs `[B, d]`."""
        drawn: Tensor = self.inputs
        self.last_sample = drawn
        return drawn

    def logp(self, actions: Any) -> Tensor:
        """Return 0, `[B]`, whatever the actions are; NaN where the inputs hold one."""
        return torch.where(self.inputs.isnan().any(dim=-1), torch.nan, self.inputs.new_zeros(self.inputs.shape[0]))

    def entropy(self) -> Tensor:
        """Return 0, `[B]`: nothing is left to chance."""
        result: Tensor = self.inputs.new_zeros(self.inputs.shape[0])
        return result
