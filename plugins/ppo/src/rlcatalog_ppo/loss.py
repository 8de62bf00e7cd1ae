"""The algorithms' objectives, written once for all frameworks, and a model's `custom_loss`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, shown
from rlcatalog.frameworks import Array, Evaluation, Tensor, TensorOps
from rlcatalog_ppo.config import A2CConfig, OnPolicyConfig, PGConfig, PPOConfig

ConfigT = TypeVar("ConfigT", bound=OnPolicyConfig)


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


class UpdateHyperparameters(NamedTuple):
    """Hyperparameters that may change between updates.

    Attributes:
        lr: Learning rate.
        kl_coeff: Weight of the divergence from the collecting policy.
        clip_param: Largest deviation of the probability ratio from 1, if the config has a schedule
            for it. None: the config's constant.
        lr_parts: Learning rates of the parts of the model that have their own, or None.
    """

    lr: float
    kl_coeff: float | Tensor = 0.0
    clip_param: float | Tensor | None = None
    lr_parts: Mapping[str, float] | None = None


# --- the objectives -------------------------------------------------------------------------------


class Objective(ABC, Generic[ConfigT]):
    """What an algorithm minimises, and the metrics that it reports for an optimiser step.

    Attributes:
        columns: Names of the float columns that `losses` reads from the batch.
        metric_names: Names of an optimiser step's metrics: the ones that `metrics` returns, and
            then `"grad_norm"`, which the optimiser adds.
        learns_values: Whether the algorithm learns from value estimates. If so, it rejects models
            without them.
    """

    columns: ClassVar[tuple[str, ...]]
    metric_names: ClassVar[tuple[str, ...]]
    learns_values: ClassVar[bool] = True

    @abstractmethod
    def losses(
        self,
        evaluation: Evaluation,
        batch: Mapping[str, Any],
        config: ConfigT,
        ops: TensorOps,
        hyperparameters: UpdateHyperparameters,
    ) -> Losses:
        """Return the losses of a minibatch.

        Args:
            evaluation: The current policy's evaluation of the minibatch.
            batch: The minibatch's `columns`, each `[B]`.
            config: The algorithm's config.
            ops: The framework's tensor operations.
            hyperparameters: Hyperparameters that may change between updates.
        """

    @abstractmethod
    def metrics(self, losses: Losses, ops: TensorOps) -> list[Any]:
        """Return the metrics of a minibatch as scalars, in the order of `metric_names`."""


class ClippedSurrogate(Objective[PPOConfig]):
    """PPO's objective (Schulman et al. 2017, equations 7 and 9).

    If the minibatch has the parameters of the collecting policy's distributions, the penalty of
    equation 8 is added.
    """

    columns = ("logp", "advantage", "target")
    metric_names = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction", "grad_norm")

    def losses(
        self,
        evaluation: Evaluation,
        batch: Mapping[str, Any],
        config: PPOConfig,
        ops: TensorOps,
        hyperparameters: UpdateHyperparameters,
    ) -> Losses:
        """Return the losses of a minibatch."""
        clip_param = hyperparameters.clip_param
        if clip_param is None:
            clip_param = config.clip_param
        advantage = _normalize(batch["advantage"], ops)
        log_ratio = evaluation.logp - batch["logp"]
        ratio = ops.exp(log_ratio)
        clipped_ratio = ops.clip(ratio, 1.0 - clip_param, 1.0 + clip_param)
        policy_loss = -ops.mean(ops.minimum(ratio * advantage, clipped_ratio * advantage))
        vf_loss = _value_loss(evaluation, batch, ops)
        entropy = _mean_entropy(evaluation, ops)

        total = policy_loss + config.vf_loss_coeff * vf_loss
        total = _subtract_entropy_bonus(total, entropy=entropy, coeff=config.entropy_coeff)
        if evaluation.kl is not None:
            total = total + hyperparameters.kl_coeff * ops.mean(evaluation.kl)
        return Losses(
            total=total,
            policy_loss=policy_loss,
            vf_loss=vf_loss,
            entropy=entropy,
            log_ratio=log_ratio,
            clip_param=clip_param,
        )

    def metrics(self, losses: Losses, ops: TensorOps) -> list[Any]:
        """Return losses, entropy, approximate KL, E[r - 1 - log r], and share of clipped ratios."""
        ratio = ops.exp(losses.log_ratio)
        approximate_kl = ops.mean(ratio - 1 - losses.log_ratio)
        is_clipped = abs(ratio - 1) > losses.clip_param
        clip_fraction = ops.mean(ops.cast(is_clipped, ratio.dtype))
        return [losses.policy_loss, losses.vf_loss, losses.entropy, approximate_kl, clip_fraction]


class AdvantageActorCritic(Objective[A2CConfig]):
    """A2C's objective (Mnih et al. 2016, section 4 and algorithm S3)."""

    columns = ("advantage", "target")
    metric_names = ("policy_loss", "vf_loss", "entropy", "grad_norm")

    def losses(
        self,
        evaluation: Evaluation,
        batch: Mapping[str, Any],
        config: A2CConfig,
        ops: TensorOps,
        # Not used: A2C changes only the learning rate, which the optimiser applies.
        hyperparameters: UpdateHyperparameters,
    ) -> Losses:
        """Return the losses of a rollout."""
        advantage = batch["advantage"]
        if config.normalize_advantage:
            advantage = _normalize(advantage, ops)
        policy_loss = -ops.mean(evaluation.logp * advantage)
        vf_loss = _value_loss(evaluation, batch, ops)
        entropy = _mean_entropy(evaluation, ops)

        total = policy_loss + config.vf_loss_coeff * vf_loss
        total = _subtract_entropy_bonus(total, entropy=entropy, coeff=config.entropy_coeff)
        return Losses(total, policy_loss, vf_loss, entropy)

    def metrics(self, losses: Losses, ops: TensorOps) -> list[Any]:
        """Return the losses and the entropy."""
        return [losses.policy_loss, losses.vf_loss, losses.entropy]


class Reinforce(Objective[PGConfig]):
    """REINFORCE's objective (Williams 1992); its advantages are discounted returns to go."""

    columns = ("advantage",)
    metric_names = ("policy_loss", "entropy", "grad_norm")
    learns_values = False

    def losses(
        self,
        evaluation: Evaluation,
        batch: Mapping[str, Any],
        config: PGConfig,
        ops: TensorOps,
        # Not used: REINFORCE only has the learning rate, which the optimiser reads.
        hyperparameters: UpdateHyperparameters,
    ) -> Losses:
        """Return the losses of a rollout."""
        advantage = batch["advantage"]
        if config.normalize_advantage:
            advantage = _normalize(advantage, ops)
        policy_loss = -ops.mean(evaluation.logp * advantage)
        entropy = _mean_entropy(evaluation, ops)
        total = _subtract_entropy_bonus(policy_loss, entropy=entropy, coeff=config.entropy_coeff)
        return Losses(total, policy_loss, vf_loss=None, entropy=entropy)

    def metrics(self, losses: Losses, ops: TensorOps) -> list[Any]:
        """Return the loss and the entropy."""
        return [losses.policy_loss, losses.entropy]


PPO_OBJECTIVE = ClippedSurrogate()
A2C_OBJECTIVE = AdvantageActorCritic()
PG_OBJECTIVE = Reinforce()


def _normalize(advantage: Tensor, ops: TensorOps) -> Any:
    # 1e-8, because all advantages may be equal.
    return (advantage - ops.mean(advantage)) / (ops.std(advantage) + 1e-8)


def _value_loss(evaluation: Evaluation, batch: Mapping[str, Any], ops: TensorOps) -> Any:
    error = evaluation.value - batch["target"]
    return 0.5 * ops.mean(error * error)


def _mean_entropy(evaluation: Evaluation, ops: TensorOps) -> Any:
    """Return the mean entropy; None if it was not computed."""
    return None if evaluation.entropy is None else ops.mean(evaluation.entropy)


def _subtract_entropy_bonus(total: Tensor, *, entropy: Tensor | None, coeff: float) -> Any:
    if coeff == 0:
        return total  # computing a gradient with a weight of 0 would be wasted work
    assert entropy is not None  # with this weight, the optimiser asks for it
    return total - coeff * entropy


# --- a model's own loss ---------------------------------------------------------------------------

#: RLlib's names → our names, for columns in every minibatch.
_OUR_NAMES = {
    "rewards": "reward",
    "advantages": "advantage",
    "action_logp": "logp",
    "value_targets": "target",
}
#: Columns that every minibatch provides under RLlib's names.
_IN_EVERY_MINIBATCH = frozenset({"obs", "actions", *_OUR_NAMES})


def rllib_actions(policy: Policy, raw_action: Tensor) -> Any:
    """Return raw actions `[..., width]` in the shape of RLlib's batches: `[...]` for a Discrete."""
    is_discrete = policy.action_codec.scalar
    return raw_action[..., 0] if is_discrete else raw_action


def columns_for_custom_loss(trajectory: Mapping[str, Array], *, done: Array) -> dict[str, Array]:
    """Return a rollout's columns that only `custom_loss` reads, under RLlib's names.

    Args:
        trajectory: All columns of the rollout under RLlib's names, each `[T, N, ...]`.
        done: Whether the episode ended at each step, `[T, N]`.
    """
    columns = {
        name: column for name, column in trajectory.items() if name not in _IN_EVERY_MINIBATCH
    }
    columns["dones"] = done
    return columns


def loss_inputs(policy: Policy, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `custom_loss`'s argument: the minibatch under both RLlib's and rlcatalog's names."""
    own_columns = dict(batch)
    columns_for_loss = own_columns.pop("columns", {})  # already under RLlib's names
    renamed = {theirs: batch[ours] for theirs, ours in _OUR_NAMES.items()}
    return {
        **columns_for_loss,
        **own_columns,
        **renamed,
        "actions": rllib_actions(policy, batch["raw_action"]),
    }


def loss_terms(
    policy: Policy, loss: Tensor | Sequence[Tensor], is_tensor: Callable[[Any], bool]
) -> list[Any]:
    """Return the result of `custom_loss` as a list of loss terms.

    Args:
        policy: The policy.
        loss: What `custom_loss` returned, which should be a tensor, or a list of tensors.
        is_tensor: The framework's test for tensors.

    Raises:
        ModelContractError: The result is neither a tensor nor a list of tensors.
    """
    terms = list(loss) if isinstance(loss, list | tuple) else [loss]
    if not terms or not all(is_tensor(term) for term in terms):
        raise ModelContractError(
            f"{policy.model_name}: custom_loss() must return a tensor of {policy.framework}, or a"
            f" list of them; found {shown(loss, length=80)}. Return policy_loss with your terms"
            " added to it."
        )
    return terms


def no_gradient_error(policy: Policy, algorithm: str) -> ModelContractError:
    """Return the error for a loss that does not depend on any weight."""
    return ModelContractError(
        f"{algorithm}: the loss does not depend on any weight of {policy.model_name}, so it cannot"
        " be trained. Look for detach(), stop_gradient() or NumPy in its forward pass,"
        " value_function() and custom_loss(), and in the distribution's logp()."
    )
