"""The losses of PPO, written once for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlcatalog.frameworks import TensorOps
from rlcatalog.policy import Evaluation
from rlcatalog_ppo.config import PPOConfig


class Losses(NamedTuple):
    """Scalars of one minibatch; `total` is what is minimised."""

    total: Any
    policy_loss: Any
    vf_loss: Any
    entropy: Any
    log_ratio: Any


def losses(
    evaluation: Evaluation, batch: Mapping[str, Any], config: PPOConfig, ops: TensorOps, kl_coeff: Any = None
) -> Losses:
    """Return the clipped-surrogate losses (Schulman et al. 2017, equations 7 and 9), with equation 8's penalty if any.

    Args:
        evaluation: The current policy's view of the minibatch.
        batch: `"logp"`, `"advantage"` and `"target"` of the minibatch, `[B]` each.
        config: Coefficients.
        ops: The framework's tensor operations.
        kl_coeff: Weight of the divergence, where the evaluation has one.
    """
    advantage = batch["advantage"]
    advantage = (advantage - ops.mean(advantage)) / (ops.std(advantage) + 1e-8)
    log_ratio = evaluation.logp - batch["logp"]
    ratio = ops.exp(log_ratio)
    clipped = ops.clip(ratio, 1.0 - config.clip_param, 1.0 + config.clip_param)
    policy_loss = -ops.mean(ops.minimum(ratio * advantage, clipped * advantage))
    error = evaluation.value - batch["target"]
    vf_loss = 0.5 * ops.mean(error * error)
    entropy = ops.mean(evaluation.entropy)
    total = policy_loss + config.vf_loss_coeff * vf_loss
    if config.entropy_coeff:  # without a weight, its gradient would be computed for nothing
        total = total - config.entropy_coeff * entropy
    if evaluation.kl is not None and kl_coeff is not None:
        total = total + kl_coeff * ops.mean(evaluation.kl)
    return Losses(total, policy_loss, vf_loss, entropy, log_ratio)
