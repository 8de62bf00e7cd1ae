"""The deterministic distribution without a framework."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import ActionDistribution, sized_by
from rlcatalog.frameworks import TensorOps
from rlcatalog_deterministic.plugin import size


class DeterministicContract(ActionDistribution):
    """A point mass: the action is the inputs `[B, d]`; the action codec brings it into its bounds.

    It has no density. By convention, the measure is that of the point itself, which has probability 1: the entropy is
    0, and `logp` is 0 for every action, without comparison to the point. If the point is NaN, so is `logp`. There is no
    `kl`: it is infinite between any two different points.

    Args:
        inputs: `[B, d]`: the actions.
        model: The model that made them, or None.
    """

    has_density = False
    maskable = False
    ops: TensorOps

    required_model_output_shape = staticmethod(sized_by(size))

    def sample(self) -> Any:
        """Return the inputs `[B, d]`, without gradient."""
        self.last_sample = self.ops.without_gradient(self.inputs)
        return self.last_sample

    def rsample(self) -> Any:
        """Return the inputs `[B, d]`, with their gradient."""
        return self.inputs

    def deterministic_sample(self) -> Any:
        """Return the inputs `[B, d]`."""
        self.last_sample = self.inputs
        return self.last_sample
