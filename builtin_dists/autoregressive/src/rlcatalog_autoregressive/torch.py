"""The autoregressive head and its distribution in PyTorch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rlcatalog.errors import ActionMaskError
from rlcatalog_autoregressive.head import AutoregressiveHead
from rlcatalog_autoregressive.joint import JointDistribution
from rlcatalog_autoregressive.made.torch import Conditionals
from rlcatalog_autoregressive.part_columns import ActionPart
from rlcatalog_autoregressive.refusals import nothing_left
from rlcatalog_torch import OPS, OutputLayers, TorchModelV2, dense, features_of


class AutoregressiveDistribution(JointDistribution):
    """P(a₁) P(a₂ | a₁) … P(aₙ | a₁ … aₙ₋₁); see `JointDistribution`."""

    framework_of_class = "torch"
    ops = OPS

    @staticmethod
    def no_gradient() -> AbstractContextManager[Any]:
        """Return the context in which actions are drawn."""
        return torch.no_grad()

    @staticmethod
    def differentiable() -> bool:
        """Whether what is computed now can be differentiated later."""
        return torch.is_grad_enabled()

    @staticmethod
    def check_allowed(mask: Tensor, params: Tensor, part: ActionPart) -> None:
        """Raise where a row leaves nothing of a part; what is forbidden in its parameters already counts.

        Raises:
            ActionMaskError: It names the row.
        """
        largest = torch.finfo(params.dtype).max / 2
        free = params > -largest
        if part.bits:
            free = torch.stack([params < largest, free], dim=2).flatten(1)
        if part.bits or part.masks.single:  # else parameters stand for combinations, and have no such columns
            mask = mask & free
        left = torch.stack([choice.any(dim=1) for _, choice in part.masks.by_choice(mask)], dim=1).all(dim=1)
        if not bool(left.all()):
            raise ActionMaskError(nothing_left(int(left.long().argmin()), part.path))


class AutoregressiveModel(AutoregressiveHead, TorchModelV2):
    """The head for actions whose parts depend on one another; see `AutoregressiveHead`."""

    ops, conditionals_class, features_of = OPS, Conditionals, staticmethod(features_of)
    dense_class, outputs_class = staticmethod(dense), OutputLayers
