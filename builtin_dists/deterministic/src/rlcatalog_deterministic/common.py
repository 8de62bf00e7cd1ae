"""Framework-independent code for the deterministic distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from rlcatalog.actions import ActionDistribution, shape_method
from rlcatalog.frameworks import TensorOps
from rlcatalog_deterministic.plugin import size


class DeterministicBase(ActionDistribution):
    """Point mass: the action equals the inputs `[B, d]`; the action codec maps it into the bounds.

    It has no density. By convention, the point has probability 1: the entropy is 0, and `logp` is 0
    for every action, even for one that differs from the point. If the point is NaN, so is `logp`.
    There is no `kl`, because the divergence between different points is infinite.

    Args:
        inputs: `[B, d]`: the actions.
        model: The model that computed the inputs, or None.
    """

    has_density = False
    maskable = False
    ops: ClassVar[TensorOps]

    required_model_output_shape = staticmethod(shape_method(size))

    def sample(self) -> Any:
        """Return the inputs `[B, d]`, without gradients."""
        self.last_sample = self.ops.without_gradient(self.inputs)
        return self.last_sample

    def rsample(self) -> Any:
        """Return the inputs `[B, d]`, with their gradient."""
        return self.inputs

    def deterministic_sample(self) -> Any:
        """Return the inputs `[B, d]`."""
        self.last_sample = self.inputs
        return self.last_sample
