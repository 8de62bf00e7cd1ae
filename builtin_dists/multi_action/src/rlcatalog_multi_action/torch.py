"""Action distribution for Tuple and Dict spaces in PyTorch."""

from __future__ import annotations

from torch import Tensor

from rlcatalog_multi_action.common import CompositeDistribution
from rlcatalog_torch import TorchDistribution, as_torch


class MultiActionDistribution(TorchDistribution, CompositeDistribution):
    """Independent distributions for a Tuple's or Dict's parts, nested to any depth; see
    `CompositeDistribution`.
    """

    #: Applies to this class only, not to subclasses: inside another composite, its parts become
    #: parts of the outer one.
    taken_apart = True

    def moment(self, name: str) -> Tensor:
        parts = [getattr(as_torch(part), name) for part in self.flat_child_distributions]
        return self.ops.columns(parts)  # type: ignore[no-any-return]
