"""The distribution of Tuple and Dict spaces in PyTorch."""

from __future__ import annotations

from rlcatalog.frameworks import tensor_ops
from rlcatalog_multi_action.composite import CompositeDistribution


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions of a Tuple's or Dict's parts, nested to any depth; see `CompositeDistribution`."""

    framework_of_class = "torch"
    ops = tensor_ops("torch")
    #: Of this very class, not of subclasses: inside another composite, its parts become parts of that one.
    taken_apart = True
