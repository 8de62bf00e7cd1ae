"""Action distributions for Tuple, Dict and OneOf spaces in TensorFlow."""

from __future__ import annotations

from rlcatalog.frameworks import tensor_ops
from rlcatalog_multi_action.common import CompositeDistribution
from rlcatalog_multi_action.one_of import OneOfBase


class MultiActionDistribution(CompositeDistribution):
    """Independent distributions for a Tuple's or Dict's parts, nested to any depth; see
    `CompositeDistribution`.
    """

    framework_of_class = "tf"
    ops = tensor_ops("tf")
    #: Applies to this class only, not to subclasses: inside another composite, its parts become
    #: parts of the outer one.
    taken_apart = True


class OneOfDistribution(OneOfBase):
    """Distribution over the actions of exactly one of several spaces; see `OneOfBase`."""

    framework_of_class = "tf"
    ops = tensor_ops("tf")
