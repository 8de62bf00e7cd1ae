"""Learning rates by part of the model, for RLlib's learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.learner.torch.torch_learner import TorchLearner

from rlcatalog_torch import apply_factors, part_groups

#: Key in a module's `model_config` for the learning rates by part.
LR_PARTS = "_rlcatalog_lr_parts"


class PartRatesMixin(TorchLearner):
    """Learner whose optimiser has a group of weights for each part with its own learning rate.

    RLlib sets the same rate for all groups, so each group has a factor, which its steps apply.
    """

    def configure_optimizers_for_module(
        self,
        module_id: str,
        config: AlgorithmConfig = None,  # type: ignore[assignment]
    ) -> None:
        """Register a module's optimiser; called by Ray."""
        module: Any = self.module[module_id].unwrapped()
        lr_parts = None
        # A module of another kind may have a config of any class.
        if isinstance(module.model_config, Mapping):
            lr_parts = module.model_config.get(LR_PARTS)
        if not lr_parts:
            super().configure_optimizers_for_module(module_id, config)
            return
        weights = self.get_parameters(module)
        groups = part_groups(module.model, weights, lr_parts, largest_rate(config.lr), "lr_parts")
        optimizer = torch.optim.Adam(groups)
        apply_factors(optimizer)
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=weights, lr_or_lr_schedule=config.lr
        )


def largest_rate(lr: Any) -> float:
    """Return a learning rate or, of a schedule `[[step, rate], …]`, the largest one."""
    if isinstance(lr, list | tuple):
        return max(float(rate) for _, rate in lr)
    return float(lr)


def with_part_rates(learner_class: type) -> type:
    """Return a learner class whose optimisers have the parts' learning rates."""
    if issubclass(learner_class, PartRatesMixin):
        return learner_class  # an earlier `configure` made it
    return type(f"PartRates{learner_class.__name__}", (PartRatesMixin, learner_class), {})


def check_lr_parts(lr_parts: Mapping[str, float], model: Any) -> None:
    """Raise a ConfigError if the rates do not fit a model."""
    part_groups(model, [], lr_parts, lr=1.0, what="lr_parts")
