"""The update: how a rollout improves a policy, and the losses that PPO, A2C and PG minimise.

`minibatches.py` cuts the rollout into minibatches; `optimizer.py`, and `torch.py` and `tf.py` for
their frameworks, take the optimiser steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError
from rlcatalog.frameworks import Array, Evaluation, Tensor, TensorOps, TensorTree
from rlcatalog_ppo.config import A2CConfig, OnPolicyConfig, PGConfig, PPOConfig
from rlcatalog_ppo.minibatches import minibatches

ConfigT = TypeVar("ConfigT", bound=OnPolicyConfig)

# --- the update -----------------------------------------------------------------------------------


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


class StepMetrics(NamedTuple):
    """Metrics of an optimiser step.

    Attributes:
        objective_metrics: A vector of the metrics that the objective's `metric_names` name; None if
            they were not measured.
        model_metrics: What the model's `metrics` returned; empty if it was not called.
    """

    objective_metrics: Any
    model_metrics: Mapping[str, Any]


class MinibatchOptimizer(Protocol):
    """Protocol for optimiser steps on minibatches.

    It is created with the policy, the algorithm's config and the objective. Beside `step`, it has
    those methods of `rlcatalog.frameworks.Learner` that an algorithm calls.

    Attributes:
        objective: The objective to minimise.
    """

    objective: Objective[Any]

    def step(
        self,
        batch: Mapping[str, Any],
        hyperparameters: UpdateHyperparameters,
        *,
        check_rows: bool = True,
        measure: bool = True,
    ) -> StepMetrics:
        """Improve the weights on a minibatch.

        Args:
            batch: The minibatch.
            hyperparameters: Learning rate, and the others that may change between updates.
            check_rows: Whether to check the rows first; not needed if they were checked before.
            measure: Whether metrics are needed. If False, the framework may return none.

        Raises:
            NonFiniteError: The loss or its gradient is not finite; the weights do not change.
        """

    def select_weights(self) -> None:
        """Choose the weights that the next steps train; see `rlcatalog.frameworks.Learner`."""

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch on the model's device; see `rlcatalog.frameworks.Learner`."""

    def rows(self, columns: TensorTree, index: Array) -> TensorTree:
        """Return rows of a placed batch's columns; see `rlcatalog.frameworks.Learner`."""

    def means(self, figures: list[Tensor]) -> list[float]:
        """Return each metric's mean over several steps."""

    def get_state(self) -> dict[str, Any]:
        """Return Adam's state; see `rlcatalog.frameworks.Learner`."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""


class RolloutLearner:
    """Learner that improves a policy's weights on one rollout after another.

    It passes over each rollout `config.num_epochs` times, in minibatches of `config.minibatch_size`
    rows. In A2C and PG, that is once, with the complete rollout as one minibatch.

    Args:
        policy: The policy.
        config: The algorithm's config.
        rng: Random generator that shuffles the minibatches.
        minibatch_optimizer: Takes the optimiser steps.

    Attributes:
        kl_coeff: Weight of the divergence from the collecting policy; 0 for no such penalty.
    """

    def __init__(
        self,
        policy: Policy,
        config: OnPolicyConfig,
        rng: np.random.Generator,
        minibatch_optimizer: MinibatchOptimizer,
    ) -> None:
        self.policy = policy
        self.config = config
        self.rng = rng
        self.minibatch_optimizer = minibatch_optimizer
        self.kl_coeff = config.kl_coeff

    def update(
        self,
        batch: Mapping[str, Any],
        lr: float,
        clip_param: float | None = None,
        lr_parts: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Improve the weights on a rollout.

        Args:
            batch: A batch from `training_batch`, which includes `dist_inputs` if a divergence is
                needed.
            lr: Learning rate.
            clip_param: Largest deviation of the probability ratio from 1, if the config has a
                schedule for it. If None, the config's constant.
            lr_parts: Learning rates of the parts that have their own.

        Returns:
            Means of the objective's metrics over the last pass, the learning rates, and the model's
            metrics under `model`.

        Raises:
            ConfigError: The optimiser cannot train a weight that is trainable now.
            NonFiniteError: A loss or its gradient is not finite; the weights stay as they were
                after the previous step.
        """
        self.minibatch_optimizer.select_weights()
        has_update_ops = self.policy.overrides("update_ops")
        kl_coeff = self.kl_coeff
        hyperparameters = UpdateHyperparameters(
            lr=lr, kl_coeff=kl_coeff, clip_param=clip_param, lr_parts=lr_parts
        )
        batch = self.minibatch_optimizer.place_batch(batch)  # on the model's device

        last_epoch = self.config.num_epochs - 1
        for epoch in range(self.config.num_epochs):
            # Emptied in each epoch, because only the metrics of the last one are reported.
            epoch_metrics: list[StepMetrics] = []
            for minibatch in self._minibatches(batch):
                step_metrics = self.minibatch_optimizer.step(
                    minibatch,
                    hyperparameters,
                    check_rows=epoch == 0,  # later epochs read the same rows
                    measure=epoch == last_epoch,
                )
                if has_update_ops:
                    self._run_update_ops_of_model()
                epoch_metrics.append(step_metrics)

        means = self.minibatch_optimizer.means(
            [metrics.objective_metrics for metrics in epoch_metrics]
        )
        result: dict[str, Any] = dict(
            zip(self.minibatch_optimizer.objective.metric_names, means, strict=True)
        )
        if kl_coeff > 0:
            self._adapt_kl_coeff(kl=result["kl"])
            result["kl_coeff"] = kl_coeff  # the one that was used
        result["lr"] = lr
        if lr_parts:
            result["lr_parts"] = dict(lr_parts)
        result["model"] = _as_floats(epoch_metrics[-1].model_metrics)  # after the last step
        if clip_param is not None:
            result["clip_param"] = clip_param
        return result

    def get_state(self) -> dict[str, Any]:
        """Return what changes between updates, except the weights, for `trees.take_apart`."""
        return {"kl_coeff": self.kl_coeff, "optimizer": self.minibatch_optimizer.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.kl_coeff = state["kl_coeff"]
        self.minibatch_optimizer.set_state(state["optimizer"])

    def _minibatches(self, batch: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the minibatches of one pass over a rollout."""
        if self.config.minibatch_size is None:
            yield batch
        else:
            yield from minibatches(
                batch, self.config.minibatch_size, self.rng, self.minibatch_optimizer.rows
            )

    def _run_update_ops_of_model(self) -> None:
        """Run the model's `update_ops`, RLlib's hook for what follows each optimiser step."""
        for operation in self.policy.model.update_ops():
            if not callable(operation):
                raise ModelContractError(
                    "update_ops() must return callables, which run once per optimiser step; found"
                    f" {operation!r}."
                )
            operation()

    def _adapt_kl_coeff(self, *, kl: float) -> None:
        """Adapt the divergence's weight for the next update (Schulman et al. 2017, section 4)."""
        if kl > 1.5 * self.config.kl_target:
            self.kl_coeff *= 2.0
        elif kl < self.config.kl_target / 1.5:
            self.kl_coeff /= 2.0


def _as_floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return a model's metrics as Python floats."""
    floats = {}
    for name, value in metrics.items():
        if hasattr(value, "detach"):  # one of PyTorch's tensors, which may carry a gradient
            value = value.detach()
        floats[name] = float(value)
    return floats


# --- the losses -----------------------------------------------------------------------------------


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
