"""Learning rates by part of a model, for engines that set one rate for all groups of an optimiser.

Stable-Baselines3 and RLlib set the learning rate of every group to the schedule's current value. So
a group has a factor instead of a rate, and hooks apply it in each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlcatalog.errors import ConfigError
from rlcatalog.models import parts_with_own_rate

#: Key of an optimiser's group for the number by which its learning rate is multiplied in a step.
FACTOR = "factor"


def part_groups(
    model: Any, weights: Iterable[Tensor], lr_parts: Mapping[str, float], lr: float, what: str
) -> list[dict[str, Any]]:
    """Return an optimiser's groups: the weights of no listed part, then those of each part.

    Args:
        model: The model that has the parts.
        weights: All weights to train.
        lr_parts: Learning rates by part.
        lr: The learning rate of all other weights for which these are meant; 0 gives the parts the
            factor 0.
        what: Where `lr_parts` comes from, for error messages.

    Raises:
        ConfigError: The model has no such part, two of them contain the same weight, or a rate is
            negative.
    """
    part_of_name = parts_with_own_rate(model, lr_parts, what)
    part_of = {}
    for name, weight in model.named_parameters():
        if name in part_of_name:
            part_of[weight] = part_of_name[name]
    groups: dict[str, dict[str, Any]] = {"": {"params": [], FACTOR: 1.0}}
    for part, part_lr in lr_parts.items():
        if not part_lr >= 0.0:
            raise ConfigError(
                f"{what}: {part!r}: expected a learning rate of 0 or more, found {part_lr!r}."
            )
        factor = 0.0
        if lr > 0.0:
            factor = part_lr / lr
        groups[part] = {"params": [], FACTOR: factor}
    for weight in weights:
        part = part_of.get(weight, "")
        groups[part]["params"].append(weight)
    return list(groups.values())


def apply_factors(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimiser multiply the learning rate of each of its groups by the group's factor.

    Args:
        optimizer: The optimiser of groups from `part_groups`.
    """
    hooks = _Hooks()
    optimizer.register_step_pre_hook(hooks.multiply)
    optimizer.register_step_post_hook(hooks.restore)


class _Hooks:
    """Hooks that change learning rates for one step."""

    def __init__(self) -> None:
        self._rates: list[float] = []

    def multiply(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Multiply each group's learning rate by the group's factor."""
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * group[FACTOR]

    def restore(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Set the learning rates back to the engine's."""
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
