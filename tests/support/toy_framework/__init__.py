"""A framework as a package of its own would bring it: NumPy as tensors, and gradients without a
tape.

`docs/howto/own_framework.md` shows its files, and explains them. It has code for the fully
connected network and the categorical distribution, and for nothing else.
"""

from __future__ import annotations

from toy_framework.arrays import GENERATOR, OPS
from toy_framework.backend import Backend
from toy_framework.distributions import Categorical
from toy_framework.kit import Kit
from toy_framework.learner import Learner
from toy_framework.models import Bookkeeping, FullyConnected, NumpyModel

__all__ = [
    "GENERATOR", "OPS", "Backend", "Bookkeeping", "Categorical", "FullyConnected", "Kit", "Learner",
    "NumpyModel",
]  # fmt: skip
