"""Action distributions for Tuple, Dict and OneOf spaces in PyTorch."""

from __future__ import annotations

from torch import Tensor

from rlcatalog_multi_action.common import CompositeDistribution
from rlcatalog_multi_action.one_of import OneOfBase
from rlcatalog_torch import TorchDistribution, as_torch


class MultiActionDistribution(TorchDistribution, CompositeDistribution):
    """Independent distributions for a Tuple's or Dict's parts, nested to any depth; see
    `CompositeDistribution`.
    """

    #: Applies to this class only, not to subclasses: inside another composite, its parts become
    #: parts of the outer one.
    taken_apart = True

    def moment(self, name: str) -> Tensor:
        """Return the mean, the variance or the mode of all parts, as columns of flat actions."""
        views = map(as_torch, self.flat_child_distributions)
        # PyTorch's distributions have each moment as a property of this name.
        moments = [getattr(view, name) for view in views]
        return self.ops.columns(moments)  # type: ignore[no-any-return]


class OneOfDistribution(TorchDistribution, OneOfBase):
    """Distribution over the actions of exactly one of several spaces; see `OneOfBase`."""
