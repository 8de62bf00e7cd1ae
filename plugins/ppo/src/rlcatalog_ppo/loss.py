"""Losses for the algorithms, written once for both frameworks, and support for a model's
`custom_loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import Evaluation, TensorOps
from rlcatalog_ppo.config import A2CConfig, PGConfig, PPOConfig


class Losses(NamedTuple):
    """Scalars for one minibatch.

    Attributes:
        total: The scalar to minimise.
        policy_loss: The policy's contribution to `total`.
        vf_loss: The unweighted value loss, or None if no value is learned.
        entropy: The mean entropy, or None if the evaluation has no entropy.
        log_ratio: Log of the probability ratio between the current and the collecting policy,
            `[B]`, or None if not used.
        clip_param: The limit at which the ratio was clipped, or None.
    """

    total: Any
    policy_loss: Any
    vf_loss: Any
    entropy: Any
    log_ratio: Any = None
    clip_param: Any = None


class Rates(NamedTuple):
    """Coefficients that change between updates.

    Attributes:
        lr: Learning rate.
        kl_coeff: Weight of the divergence from the collecting policy.
        clip_param: Largest deviation of the probability ratio from 1. If None, the config's.
    """

    lr: float
    kl_coeff: Any = 0.0
    clip_param: Any = None


class Objective(NamedTuple):
    """An algorithm's objective, and the metrics that it reports for a step.

    Attributes:
        losses: `losses(evaluation, batch, config, ops, rates)` returns `Losses`.
        columns: Names of the float columns that `losses` reads from the batch.
        figures: Names of the metrics of one optimiser step; the last is `"grad_norm"`.
        measured: `measured(losses, ops)` returns all metrics but the last as scalars.
    """

    losses: Callable[..., Losses]
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    measured: Callable[[Losses, TensorOps], list[Any]]


def losses(
    evaluation: Evaluation,
    batch: Mapping[str, Any],
    config: PPOConfig,
    ops: TensorOps,
    rates: Rates | None = None,
) -> Losses:
    """Return the clipped-surrogate losses (Schulman et al. 2017, equations 7 and 9; penalty:
    equation 8).

    Args:
        evaluation: The current policy's evaluation of the minibatch.
        batch: `"logp"`, `"advantage"` and `"target"` of the minibatch, each `[B]`.
        config: Coefficients.
        ops: The framework's tensor operations.
        rates: The weight of the divergence, if the evaluation has one, and the limit for the ratio.
    """
    advantage = _normalised(batch["advantage"], ops)
    limit = config.clip_param if rates is None or rates.clip_param is None else rates.clip_param
    log_ratio = evaluation.logp - batch["logp"]
    ratio = ops.exp(log_ratio)
    clipped = ops.clip(ratio, 1.0 - limit, 1.0 + limit)
    policy_loss = -ops.mean(ops.minimum(ratio * advantage, clipped * advantage))
    found = _with_value_and_entropy(policy_loss, evaluation, batch, config, ops)
    total = found.total
    if evaluation.kl is not None and rates is not None:
        total = total + rates.kl_coeff * ops.mean(evaluation.kl)
    return found._replace(total=total, log_ratio=log_ratio, clip_param=limit)


def policy_gradient_losses(
    evaluation: Evaluation,
    batch: Mapping[str, Any],
    config: A2CConfig | PGConfig,
    ops: TensorOps,
    rates: Rates | None = None,
) -> Losses:
    """Return the losses of an advantage actor-critic (Mnih et al. 2016, section 4 and algorithm
    S3), or of REINFORCE.

    REINFORCE (Williams 1992) does not use values; its advantages are the discounted returns to go.

    Args:
        evaluation: The current policy's evaluation of the rollout.
        batch: `"advantage"` and, if a value is learned, `"target"`, each `[B]`.
        config: Coefficients.
        ops: The framework's tensor operations.
        rates: Unused.
    """
    advantage = batch["advantage"]
    if config.normalize_advantage:
        advantage = _normalised(advantage, ops)
    return _with_value_and_entropy(
        -ops.mean(evaluation.logp * advantage), evaluation, batch, config, ops
    )


def _with_value_and_entropy(
    policy_loss: Any, evaluation: Evaluation, batch: Mapping[str, Any], config: Any, ops: TensorOps
) -> Losses:
    """Return the losses, with the value loss if the algorithm learns values, and with the entropy
    bonus.
    """
    total, vf_loss = policy_loss, None
    if not isinstance(config, PGConfig):
        error = evaluation.value - batch["target"]
        vf_loss = 0.5 * ops.mean(error * error)
        total = total + config.vf_loss_coeff * vf_loss
    entropy = None if evaluation.entropy is None else ops.mean(evaluation.entropy)
    if config.entropy_coeff:  # with a weight of 0, its gradient would be wasted work
        total = total - config.entropy_coeff * entropy
    return Losses(total, policy_loss, vf_loss, entropy)


def _normalised(advantage: Any, ops: TensorOps) -> Any:
    return (advantage - ops.mean(advantage)) / (ops.std(advantage) + 1e-8)


def _ratio_figures(found: Losses, ops: TensorOps) -> list[Any]:
    """Return the losses, the approximate KL, E[r - 1 - log r], and the fraction of
    clipped ratios.
    """
    ratio = ops.exp(found.log_ratio)
    kl = ops.mean(ratio - 1 - found.log_ratio)
    clipped = ops.mean(ops.cast(abs(ratio - 1) > found.clip_param, ratio.dtype))
    return [found.policy_loss, found.vf_loss, found.entropy, kl, clipped]


PPO_OBJECTIVE = Objective(
    losses,
    columns=("logp", "advantage", "target"),
    figures=("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction", "grad_norm"),
    measured=_ratio_figures,
)
A2C_OBJECTIVE = Objective(
    policy_gradient_losses,
    columns=("advantage", "target"),
    figures=("policy_loss", "vf_loss", "entropy", "grad_norm"),
    measured=lambda found, ops: [found.policy_loss, found.vf_loss, found.entropy],
)
PG_OBJECTIVE = Objective(
    policy_gradient_losses,
    columns=("advantage",),
    figures=("policy_loss", "entropy", "grad_norm"),
    measured=lambda found, ops: [found.policy_loss, found.entropy],
)


# --- a model's own loss ---------------------------------------------------------------------------

#: RLlib's names → our names, for columns in every minibatch.
_RENAMED = {
    "rewards": "reward",
    "advantages": "advantage",
    "action_logp": "logp",
    "value_targets": "target",
}
#: Columns that every minibatch provides under RLlib's names.
IN_EVERY_BATCH = frozenset({"obs", "actions", *_RENAMED})


def as_drawn(policy: Policy, raw: Any) -> Any:
    """Return raw actions `[..., width]` in the shape that RLlib's batches use: `[...]` for a
    Discrete.
    """
    return raw[..., 0] if policy.action_codec.scalar else raw


def loss_inputs(policy: Policy, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument of `custom_loss`: the minibatch, under both RLlib's and rlcatalog's
    names.
    """
    theirs = {name: batch[ours] for name, ours in _RENAMED.items()}
    own = {name: part for name, part in batch.items() if name != "columns"}
    return {
        **batch.get("columns", {}),
        **own,
        **theirs,
        "actions": as_drawn(policy, batch["raw_action"]),
    }


def check_loss(policy: Policy, loss: Any, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the result of `custom_loss` as a list of loss terms.

    Args:
        policy: The policy.
        loss: A tensor, or a list of tensors.
        is_tensor: Function that returns whether an object is one of the framework's tensors.

    Raises:
        ModelContractError: The result is neither a tensor nor a list of tensors.
    """
    terms = list(loss) if isinstance(loss, list | tuple) else [loss]
    if not terms or not all(map(is_tensor, terms)):
        raise ModelContractError(
            f"{policy.model_name}: custom_loss() must return a tensor of {policy.framework}, or a"
            f" list of them; found {shown(loss, 80)}. Return policy_loss with your terms added to"
            " it."
        )
    return terms


def no_gradient(policy: Policy, algorithm: str) -> ModelContractError:
    """Return the error for a loss that does not depend on any weight."""
    return ModelContractError(
        f"{algorithm}: the loss does not depend on any weight of {policy.model_name}, so it cannot"
        " be trained. Look for detach(), stop_gradient() or NumPy in its forward pass,"
        " value_function() and custom_loss(), and in the distribution's logp()."
    )
