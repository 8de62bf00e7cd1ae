"""Optimiser steps in TensorFlow, traced unless `eager_tracing` is False."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Evaluation, tensor_ops
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.custom_loss import loss_inputs, loss_terms
from rlcatalog_ppo.optimizer import no_gradient_error, not_finite_error
from rlcatalog_ppo.update import (
    PPO_OBJECTIVE,
    Losses,
    Objective,
    StepMetrics,
    UpdateHyperparameters,
)
from rlcatalog_tf import HALF, TFLearner, clip_gradient, tf

if TYPE_CHECKING:
    from rlcatalog_ppo.offline import Reader


class StepTensors(NamedTuple):
    """What a step returns, as tensors that a traced function can return.

    Attributes:
        loss: The loss, including a model's `custom_loss`.
        metrics: A vector of the metrics that the objective's `metric_names` name.
        model_metrics: Those metrics of the model that are tensors.
    """

    loss: Any
    metrics: Any
    model_metrics: dict[str, Any]


class TFMinibatchOptimizer(TFLearner):
    """Optimiser steps in TensorFlow (see `rlcatalog_ppo.MinibatchOptimizer`).

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: The objective to minimise.

    Raises:
        NotServedError: The variables have half precision.
        ConfigError: `lr_parts` names a part that the model does not have.
    """

    def __init__(
        self,
        policy: Policy,
        config: OnPolicyConfig,
        objective: Objective[Any] = PPO_OBJECTIVE,
    ) -> None:
        _check_precision(policy, config.algorithm)
        super().__init__(policy, lr_parts=config.lr_parts)
        self.policy: Policy = policy
        self.config = config
        self.objective = objective
        # These are variables, because Python numbers would be constants in the trace.
        self._kl_coeff = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self._clip_param = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._traced_step: Callable[[Any], StepTensors] | None = None
        self._trace_reads_clip_param = False
        #: Shapes and dtypes of the columns of a traced step's batch.
        self._signature: Any = None

    def select_weights(self) -> None:
        """Choose the weights to train; see `rlcatalog_ppo.MinibatchOptimizer`."""
        variables = self.variables
        super().select_weights()
        if self.variables is not variables:
            self._traced_step = None  # it trains the earlier ones

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state; see `rlcatalog.frameworks.Learner`."""
        missed_steps = self.optimizer.plan.missed_steps
        super().set_state(state)
        if self.optimizer.plan.missed_steps != missed_steps:
            self._traced_step = None  # it contains these numbers

    def step(
        self,
        batch: Mapping[str, Any],
        hyperparameters: UpdateHyperparameters,
        *,
        check_rows: bool = True,
        measure: bool = True,
    ) -> StepMetrics:
        """Improve the weights on a minibatch; see `rlcatalog_ppo.MinibatchOptimizer`.

        A traced step checks only shapes and always returns metrics.
        """
        self.set_rates(hyperparameters.lr, hyperparameters.lr_parts)
        self._kl_coeff.assign(hyperparameters.kl_coeff)
        has_clip_schedule = hyperparameters.clip_param is not None
        if has_clip_schedule:
            self._clip_param.assign(hyperparameters.clip_param)
        tensors = tf.nest.map_structure(tf.convert_to_tensor, batch)

        if self.config.eager_tracing:
            traced_step = self._trace(tensors, has_clip_schedule=has_clip_schedule)
            # A checkpoint may hold a memory of another precision than the model returns.
            tensors = tf.nest.map_structure(
                lambda x, spec: tf.cast(x, spec.dtype), tensors, self._signature
            )
            result = traced_step(tensors)
            # Inside a trace, a metric that is a tensor has no value; the trace returned the value.
            model_metrics = {
                name: result.model_metrics.get(name, value)
                for name, value in self.model.metrics().items()
            }
        else:
            result = self._improve(tensors, has_clip_schedule=has_clip_schedule)
            model_metrics = self.model.metrics()

        grad_norm = result.metrics[-1]
        if not (math.isfinite(result.loss) and math.isfinite(grad_norm)):
            raise not_finite_error(
                self.config.algorithm,
                self.objective,
                loss=float(result.loss),
                metrics=result.metrics.numpy().tolist(),
            )
        return StepMetrics(objective_metrics=result.metrics, model_metrics=model_metrics)

    def _trace(self, tensors: Any, *, has_clip_schedule: bool) -> Callable[[Any], StepTensors]:
        """Return a traced step, for batches of any number of rows.

        Args:
            tensors: A batch, for its columns' shapes and dtypes.
            has_clip_schedule: Whether the trace reads the clip parameter from its variable.
        """
        if self._traced_step is None or self._trace_reads_clip_param != has_clip_schedule:

            def improve(batch: Any) -> StepTensors:
                return self._improve(batch, has_clip_schedule=has_clip_schedule)

            signature = tf.nest.map_structure(
                lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), tensors
            )
            self._signature = signature
            self._traced_step = tf.function(improve, input_signature=[signature], autograph=False)
            self._trace_reads_clip_param = has_clip_schedule
        return self._traced_step

    def _improve(self, batch: Mapping[str, Any], *, has_clip_schedule: bool) -> StepTensors:
        """Improve the weights on a minibatch, unless its loss or gradient is not finite."""

        def loss_and_losses() -> tuple[Any, Losses]:
            evaluation = self.policy.evaluate(batch)
            losses = self._losses(evaluation, batch, has_clip_schedule=has_clip_schedule)
            custom_loss = self.model.custom_loss(losses.total, loss_inputs(self.policy, batch))
            terms = loss_terms(self.policy, custom_loss, tf.is_tensor)
            return tf.add_n([tf.reduce_sum(term) for term in terms]), losses

        gradient = self.gradient(loss_and_losses)
        if gradient is None:
            raise no_gradient_error(self.policy, self.config.algorithm)
        gradients = clip_gradient(gradient, self.config.grad_clip)
        losses = gradient.results
        norm = gradient.norm

        loss = tf.cast(gradient.loss, tf.float32)
        is_norm_finite = tf.math.is_finite(tf.cast(norm, tf.float32))
        is_usable = is_norm_finite & tf.math.is_finite(loss)
        tf.cond(is_usable, lambda: self.take_step(gradients), lambda: None)

        metrics = [*self.objective.metrics(losses, tensor_ops("tf")), norm]
        return StepTensors(
            loss=loss,
            metrics=tf.stack([tf.cast(metric, tf.float32) for metric in metrics]),
            model_metrics={
                name: value for name, value in self.model.metrics().items() if tf.is_tensor(value)
            },
        )

    def _losses(
        self, evaluation: Evaluation, batch: Mapping[str, Any], *, has_clip_schedule: bool
    ) -> Losses:
        """Return the objective's losses, computed in the log density's dtype.

        A model may use float64, and TensorFlow only adds tensors of equal dtypes.
        """
        dtype = evaluation.logp.dtype
        if evaluation.value is not None:
            evaluation = replace(evaluation, value=tf.cast(evaluation.value, dtype))
        columns = {name: tf.cast(batch[name], dtype) for name in self.objective.columns}
        hyperparameters = UpdateHyperparameters(
            lr=0.0,  # the optimiser has it; no objective reads it
            kl_coeff=tf.cast(self._kl_coeff, dtype),
            clip_param=tf.cast(self._clip_param, dtype) if has_clip_schedule else None,
        )
        return self.objective.losses(
            evaluation, columns, self.config, tensor_ops("tf"), hyperparameters
        )


def _check_precision(policy: Policy, algorithm: str) -> None:
    for variable in policy.model.trainable_variables():  # type: ignore[attr-defined]
        if variable.dtype in HALF:
            raise NotServedError(
                f"{algorithm}: the model's variables are {variable.dtype.name}, too imprecise for"
                " Keras' Adam: 1 - beta_2 and squared gradients round to 0. Use"
                " keras.mixed_precision, which keeps variables in float32."
            )


def input_ops(reader: Reader) -> dict[str, Any]:
    """Return tensors that hold a new batch of a `Reader` each time a traced function runs."""
    example = reader.next()
    names = list(example)
    dtypes = [tf.as_dtype(array.dtype) for array in example.values()]

    def read_batch() -> list[Any]:
        return list(reader.next().values())

    # TensorFlow may optimise away calls of a function that is not stateful.
    tensors = tf.numpy_function(read_batch, [], dtypes, stateful=True)
    for tensor, array in zip(tensors, example.values(), strict=True):
        tensor.set_shape(array.shape)  # a numpy_function's results have unknown shapes
    return dict(zip(names, tensors, strict=True))
