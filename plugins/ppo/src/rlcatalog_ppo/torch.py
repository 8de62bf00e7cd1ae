"""What PPO needs of PyTorch: an optimiser step over minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlcatalog import Policy
from rlcatalog_ppo.config import PPOConfig
from rlcatalog_ppo.loss import Losses, losses


class TorchOps:
    """The operations of `rlcatalog_ppo.loss.Ops`."""

    exp = staticmethod(torch.exp)
    clip = staticmethod(torch.clamp)
    minimum = staticmethod(torch.minimum)
    mean = staticmethod(torch.mean)
    std = staticmethod(torch.std)


def seed(value: int) -> None:
    """Seed PyTorch."""
    torch.manual_seed(value)


def set_threads(count: int) -> None:
    """Set how many threads one operation may use."""
    torch.set_num_threads(count)


class TorchLearner:
    """Improves a policy's weights.

    Args:
        policy: The policy.
        config: The algorithm's config.
        rng: Shuffles the minibatches.
    """

    def __init__(self, policy: Policy, config: PPOConfig, rng: np.random.Generator) -> None:
        self.policy, self.config, self.rng = policy, config, rng
        self.model: Any = policy.model
        self.parameters = self.model.trainable_variables()
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, eps=1e-5, fused=True)

    def update(self, batch: Mapping[str, np.ndarray[Any, Any]], lr: float) -> dict[str, Any]:
        """Take `num_epochs` passes over a batch in minibatches.

        Args:
            batch: Arrays of `B` rows: obs, raw_action, logp, advantage, target, and mask where actions are masked.
            lr: Learning rate.

        Returns:
            Means of the losses over the last pass, the approximate KL and the share of clipped ratios.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        size, rows = self.config.minibatch_size, len(batch["logp"])
        stats: list[tuple[torch.Tensor, ...]] = []
        for epoch in range(self.config.num_epochs):
            order = torch.from_numpy(self.rng.permutation(rows))
            for index in order.split(size):
                if len(index) < 2:  # a single advantage has no deviation to be normalised by
                    continue
                found, norm = self._step({name: tensor[index] for name, tensor in tensors.items()})
                if epoch == self.config.num_epochs - 1:
                    stats.append((*self._figures(found), norm))
        names = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction", "grad_norm")
        means = torch.stack([torch.stack(row) for row in stats]).mean(dim=0)
        return {**dict(zip(names, means.tolist(), strict=True)), "lr": lr, "model": _scalars(self.model.metrics())}

    def _step(self, batch: dict[str, torch.Tensor]) -> tuple[Losses, torch.Tensor]:
        evaluation = self.policy.evaluate(batch)
        found = losses(evaluation, batch, self.config, TorchOps)
        loss = self.model.custom_loss(found.total, batch)
        if isinstance(loss, list | tuple):
            loss = torch.stack(list(loss)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        limit = self.config.grad_clip if self.config.grad_clip is not None else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, limit)
        self.optimizer.step()
        return found, norm

    @torch.no_grad()
    def _figures(self, found: Losses) -> tuple[torch.Tensor, ...]:
        """Return the losses, the approximate KL, E[r - 1 - log r], and the share of ratios that were clipped."""
        ratio = found.log_ratio.exp()
        kl = (ratio - 1 - found.log_ratio).mean()
        clipped = ((ratio - 1).abs() > self.config.clip_param).float().mean()
        return found.policy_loss.detach(), found.vf_loss.detach(), found.entropy.detach(), kl, clipped


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
