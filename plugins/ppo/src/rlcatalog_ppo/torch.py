"""PyTorch's part of the algorithms: one optimiser step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import before_torch_optimizers, tensor_ops
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.learner import Moments, loss_inputs, not_finite
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Losses, Objective
from rlcatalog_ppo.rollout import each


def seed(value: int) -> None:
    """Seed PyTorch."""
    torch.manual_seed(value)


def set_threads(count: int) -> None:
    """Set how many threads one operation may use."""
    torch.set_num_threads(count)


class Optimizer:
    """Takes optimiser steps (see `rlcatalog_ppo.learner.Optimizer`).

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: What is minimised.

    Raises:
        NotServedError: Weights are float16.
    """

    def __init__(self, policy: Policy, config: OnPolicyConfig, objective: Objective = PPO_OBJECTIVE) -> None:
        self.policy, self.config, self.objective = policy, config, objective
        self.model: Any = policy.model
        self.parameters = list(cast(Any, policy.model).trainable_variables())
        self._check_precision()
        before_torch_optimizers()
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, eps=1e-5, fused=True)

    def step(
        self, batch: Mapping[str, Any], lr: float, kl_coeff: float = 0.0, clip_param: float | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Improve the weights on a minibatch."""
        self._check_precision()  # models are converted at any time
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        tensors = {name: part if name in ("seq_lens", "state") else each(part, torch.from_numpy)
                   for name, part in batch.items()}  # fmt: skip
        evaluation = self.policy.evaluate(tensors)
        found = self.objective.losses(evaluation, tensors, self.config, tensor_ops("torch"), kl_coeff, clip_param)
        # One element: RLlib's models go over a list of losses, others add to a scalar.
        loss = self.model.custom_loss(found.total.reshape(1), loss_inputs(tensors))
        if isinstance(loss, list | tuple):
            loss = torch.stack([term.sum() for term in loss])
        self.optimizer.zero_grad()
        loss = loss.sum()
        loss.backward()
        limit = self.config.grad_clip if self.config.grad_clip is not None else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, limit)
        if not (math.isfinite(norm.item()) and math.isfinite(loss.item())):
            self.optimizer.zero_grad()
            figures = self._figures(found, norm).tolist()
            raise not_finite(self.config.algorithm, self.objective, loss.item(), figures)
        self.optimizer.step()
        return self._figures(found, norm), self.model.metrics()

    def _check_precision(self) -> None:
        if any(parameter.dtype is torch.float16 for parameter in self.parameters):
            raise NotServedError(
                f"{self.config.algorithm}: the model's weights are float16, in which Adam's squares of gradients"
                " below 2e-4 are 0: steps would be thousands of times too large. Train in float32 (under torch.autocast"
                " if you like), bfloat16 or float64, and call model.half() for acting."
            )

    @torch.no_grad()
    def _figures(self, found: Losses, norm: torch.Tensor) -> torch.Tensor:
        """Return the objective's figures."""
        return torch.stack([*self.objective.measured(found, tensor_ops("torch")), norm])

    def get_state(self) -> Moments:
        """Return the optimiser's state."""
        named, kept = self.model.trainable_variables(as_dict=True), self.optimizer.state
        steps = [int(kept[p]["step"]) for p in named.values() if p in kept]

        def moments(key: str) -> dict[str, Any]:
            found = {name: kept[p][key] if p in kept else torch.zeros_like(p) for name, p in named.items()}
            return {name: value.detach().cpu().numpy().copy() for name, value in found.items()}

        return Moments(max(steps, default=0), moments("exp_avg"), moments("exp_avg_sq"))

    def set_state(self, state: Moments) -> None:
        """Set the optimiser's state."""
        for name, p in self.model.trainable_variables(as_dict=True).items():
            first, second = (
                torch.as_tensor(moment[name].copy(), dtype=p.dtype, device=p.device)
                for moment in (state.first, state.second)
            )
            step = torch.tensor(float(state.step), device=p.device)
            self.optimizer.state[p] = {"step": step, "exp_avg": first, "exp_avg_sq": second}

    def means(self, figures: list[torch.Tensor]) -> list[float]:
        """Return the means of the figures of several steps."""
        return torch.stack(figures).mean(dim=0).tolist()
