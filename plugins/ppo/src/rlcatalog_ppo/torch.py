"""One optimiser step in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import tensor_ops
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.learner import not_finite
from rlcatalog_ppo.loss import (
    PPO_OBJECTIVE,
    Losses,
    Objective,
    Rates,
    check_loss,
    loss_inputs,
    no_gradient,
)
from rlcatalog_torch import TorchLearner


class Optimizer(TorchLearner):
    """Optimiser steps in PyTorch (see `rlcatalog_ppo.learner.Optimizer`).

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: The objective to minimise.

    Raises:
        NotServedError: The weights are float16.
    """

    def __init__(
        self, policy: Policy, config: OnPolicyConfig, objective: Objective = PPO_OBJECTIVE
    ) -> None:
        super().__init__(policy)
        self.policy: Policy = policy
        self.config, self.objective = config, objective
        self._check_precision()

    def step(
        self, batch: Mapping[str, Any], rates: Rates, *, check: bool = True, measure: bool = True
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """Improve the weights on a minibatch; see `rlcatalog_ppo.learner.Optimizer`."""
        self._check_precision()  # the model may be converted at any time
        entropy = check or measure or bool(self.config.entropy_coeff)
        loss, found, norm = self._descend(batch, rates, check, entropy)
        if not (math.isfinite(norm.item()) and math.isfinite(loss.item())):
            if not entropy:  # the error message shows it
                _, found, _ = self._descend(batch, rates, False, True)
            self.optimizer.zero_grad()
            figures = self._figures(found, norm).tolist()
            raise not_finite(self.config.algorithm, self.objective, loss.item(), figures)
        self.apply(rates.lr, norm, self.config.grad_clip)
        return (self._figures(found, norm), self.model.metrics()) if measure else (None, {})

    def _descend(
        self, batch: Mapping[str, Any], rates: Rates, check: bool, entropy: bool
    ) -> tuple[Tensor, Losses, Tensor]:
        """Compute the gradient; return the loss, its terms and the gradient norm."""
        tensors = self.placed(batch)
        evaluation = self.policy.evaluate(tensors, check=check, entropy=entropy)
        found = self.objective.losses(evaluation, tensors, self.config, tensor_ops("torch"), rates)
        # One element, because RLlib's models iterate over a list of losses, and others add to a
        # scalar.
        returned = self.model.custom_loss(found.total.reshape(1), loss_inputs(self.policy, tensors))
        terms = [term.sum() for term in check_loss(self.policy, returned, torch.is_tensor)]
        loss = terms[0] if len(terms) == 1 else torch.stack(terms).sum()
        if not loss.requires_grad:
            raise no_gradient(self.policy, self.config.algorithm)
        return loss, found, self.descend(loss)

    def _check_precision(self) -> None:
        if any(parameter.dtype is torch.float16 for parameter in self.parameters):
            raise NotServedError(
                f"{self.config.algorithm}: the model's weights are float16, in which Adam's"
                " squared gradients below 2e-4 are 0: steps would be thousands of times too"
                " large. Train in float32 (under torch.autocast if you like), bfloat16 or float64,"
                " and call model.half() for acting."
            )

    @torch.no_grad()
    def _figures(self, found: Losses, norm: Tensor) -> Tensor:
        """Return the objective's metrics."""
        return torch.stack([*self.objective.measured(found, tensor_ops("torch")), norm])
