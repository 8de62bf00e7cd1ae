"""Optimiser steps of the algorithms, in any framework that has a learner.

A framework can have steps of its own, as PyTorch and TensorFlow have in `torch.py` and `tf.py`; its
target `"ppo"` names their class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import ModelContractError, NonFiniteError
from rlcatalog.frameworks import (
    Array,
    Gradient,
    Learner,
    Tensor,
    TensorTree,
    default_framework,
    framework_name,
    frameworks,
    tensor_ops,
)
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.custom_loss import loss_inputs, loss_terms
from rlcatalog_ppo.update import (
    PPO_OBJECTIVE,
    MinibatchOptimizer,
    Objective,
    StepMetrics,
    UpdateHyperparameters,
)

# --- what a framework provides --------------------------------------------------------------------


def learner_of(framework: str) -> type[Learner]:
    """Return the class of a framework's learner.

    Raises:
        NotServedError: The framework has no learner.
    """
    spec = frameworks()[framework]
    learner: type[Learner] = spec.load("learner", "rlcatalog-ppo")
    return learner


def set_threads(framework: str | None, count: int) -> None:
    """Set a framework's number of threads per operation; call this before the first operation.

    Args:
        framework: The framework's name. If None, the default framework.
        count: Number of threads.
    """
    if framework is None:
        framework = default_framework()
    name = framework_name(framework)  # it may be an alias, such as tf2
    learner_of(name).set_threads(count)


def minibatch_optimizer_of(framework: str) -> Callable[..., MinibatchOptimizer]:
    """Return the class for optimiser steps on minibatches in a framework.

    It is called with the policy, the algorithm's config, and the objective.

    Raises:
        NotServedError: The framework has neither a learner nor steps of its own.
    """
    spec = frameworks()[framework]
    has_own_steps = spec.target("ppo") is not None
    if has_own_steps or spec.unusable_provider("ppo") is not None:
        optimizer_class: Callable[..., MinibatchOptimizer] = spec.load("ppo", "rlcatalog-ppo")
        return optimizer_class
    learner_of(framework)  # raises the error that there is none
    return LearnerOptimizer


# --- steps in any framework -----------------------------------------------------------------------


class LearnerOptimizer:
    """Optimiser steps by a framework's learner; see `MinibatchOptimizer`.

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: The objective to minimise.

    Raises:
        NotServedError: The framework has no learner.
        ConfigError: `lr_parts` names a part that the model does not have.
    """

    def __init__(
        self,
        policy: Policy,
        config: OnPolicyConfig,
        objective: Objective[Any] = PPO_OBJECTIVE,
    ) -> None:
        self.policy = policy
        self.config = config
        self.objective = objective
        self._ops = tensor_ops(policy.framework)
        create_learner: Callable[..., Learner] = learner_of(policy.framework)
        self.learner = create_learner(policy, lr_parts=config.lr_parts)

    def step(
        self,
        batch: Mapping[str, Any],
        hyperparameters: UpdateHyperparameters,
        *,
        check_rows: bool = True,
        measure: bool = True,
    ) -> StepMetrics:
        """Improve the weights on a minibatch; see `MinibatchOptimizer`."""
        tensors = self.learner.place_batch(batch)
        if check_rows:
            # The check reads numbers, which are unknown while a framework compiles the loss.
            self.policy.evaluate(tensors, entropy=False)
        gradient = self.learner.gradient(
            self._loss_and_metrics,
            tensors,
            hyperparameters.kl_coeff,
            hyperparameters.clip_param,
        )
        if gradient is None:
            raise no_gradient_error(self.policy, self.config.algorithm)
        self._check_finite(gradient)
        self.learner.apply(
            gradient, hyperparameters.lr, self.config.grad_clip, hyperparameters.lr_parts
        )
        if not measure:
            return StepMetrics(objective_metrics=None, model_metrics={})
        return StepMetrics(self._metrics(gradient), self.policy.model.metrics())

    def _loss_and_metrics(
        self,
        batch: Mapping[str, Any],
        kl_coeff: float | Tensor,
        clip_param: float | Tensor | None,
    ) -> tuple[Any, list[Any]]:
        """Return the loss of a minibatch, a scalar, and the objective's metrics."""
        ops = self._ops
        # The optimiser has the learning rates; no objective reads them.
        hyperparameters = UpdateHyperparameters(lr=0.0, kl_coeff=kl_coeff, clip_param=clip_param)
        evaluation = self.policy.evaluate(batch, check=False)
        losses = self.objective.losses(evaluation, batch, self.config, ops, hyperparameters)
        # RLlib's models iterate over a list of losses; others add to a single loss. A tensor with
        # one element supports both.
        policy_loss = losses.total[None]
        custom_loss = self.policy.model.custom_loss(policy_loss, loss_inputs(self.policy, batch))
        terms = loss_terms(self.policy, custom_loss, ops.is_array)
        loss = ops.sum(terms[0])
        for term in terms[1:]:
            loss = loss + ops.sum(term)
        return loss, self.objective.metrics(losses, ops)

    def _metrics(self, gradient: Gradient) -> Any:
        """Return the metrics that the objective's `metric_names` name, as a vector."""
        metrics = [*gradient.results, gradient.norm]
        return self._ops.concat([metric[None] for metric in metrics])

    def _check_finite(self, gradient: Gradient) -> None:
        loss = self._number(gradient.loss)
        if not (math.isfinite(loss) and math.isfinite(self._number(gradient.norm))):
            metrics = [self._number(metric) for metric in [*gradient.results, gradient.norm]]
            raise not_finite_error(
                self.config.algorithm, self.objective, loss=loss, metrics=metrics
            )

    def _number(self, scalar: Any) -> float:
        """Return a scalar tensor as a number."""
        return float(self._ops.array(scalar))

    # --- what the learner does --------------------------------------------------------------------

    def select_weights(self) -> None:
        self.learner.select_weights()

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.learner.place_batch(batch)

    def rows(self, columns: TensorTree, index: Array) -> TensorTree:
        return self.learner.rows(columns, index)

    def means(self, figures: list[Tensor]) -> list[float]:
        return self.learner.means(figures)

    def get_state(self) -> dict[str, Any]:
        return self.learner.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.learner.set_state(state)


def not_finite_error(
    algorithm: str, objective: Objective[Any], *, loss: float, metrics: list[float]
) -> NonFiniteError:
    """Return the error for a minibatch whose loss or gradient norm is not finite.

    Args:
        algorithm: The algorithm's name.
        objective: The objective.
        loss: The loss.
        metrics: The minibatch's metrics, in the order of the objective's `metric_names`.
    """
    named = dict(zip(objective.metric_names, metrics, strict=True))
    this_minibatch = ", ".join(f"{name} {value:.6g}" for name, value in named.items())
    return NonFiniteError(
        f"{algorithm}: a minibatch has the loss {loss:.6g} and the gradient norm"
        f" {named['grad_norm']:.6g}; no step was taken, and the weights are the last good ones."
        f" This minibatch: {this_minibatch}. Scale large rewards, lower lr, or set grad_clip."
    )


def no_gradient_error(policy: Policy, algorithm: str) -> ModelContractError:
    """Return the error for a loss that does not depend on any weight."""
    return ModelContractError(
        f"{algorithm}: the loss does not depend on any weight of {policy.model_name}, so it cannot"
        " be trained. Look for detach(), stop_gradient() or NumPy in its forward pass,"
        " value_function() and custom_loss(), and in the distribution's logp()."
    )
