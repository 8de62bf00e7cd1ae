"""One optimiser step in TensorFlow, traced unless `eager_tracing` is False."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlcatalog import Policy
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import tensor_ops
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.learner import not_finite
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Objective, Rates, check_loss, loss_inputs, no_gradient
from rlcatalog_tf import HALF, TFLearner, tf


class Optimizer(TFLearner):
    """Optimiser steps in TensorFlow (see `rlcatalog_ppo.learner.Optimizer`).

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: The objective to minimise.

    Raises:
        NotServedError: The variables have half precision.
    """

    def __init__(
        self, policy: Policy, config: OnPolicyConfig, objective: Objective = PPO_OBJECTIVE
    ) -> None:
        half = {v.dtype.name for v in policy.model.trainable_variables() if v.dtype in HALF}  # type: ignore[attr-defined]
        if half:
            raise NotServedError(
                f"{config.algorithm}: the model's variables are {half.pop()}, too imprecise for"
                " Keras' Adam: 1 - beta_2 and squared gradients round to 0. Use"
                " keras.mixed_precision, which keeps variables in float32."
            )
        super().__init__(policy)
        self.policy: Policy = policy
        self.config, self.objective = config, objective
        #: These are variables, because Python numbers would be constants in the trace.
        self.kl_coeff = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self.clip_param = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._traced: Any = None

    def step(
        self, batch: Mapping[str, Any], rates: Rates, *, check: bool = True, measure: bool = True
    ) -> tuple[Any, dict[str, Any]]:
        """Improve the weights on a minibatch; see `rlcatalog_ppo.learner.Optimizer`.

        A traced step checks only shapes and always returns metrics.
        """
        self.optimizer.learning_rate.assign(rates.lr)
        self.kl_coeff.assign(rates.kl_coeff)
        if scheduled := rates.clip_param is not None:
            self.clip_param.assign(rates.clip_param)
        tensors = tf.nest.map_structure(tf.convert_to_tensor, batch)
        if not self.config.eager_tracing:
            loss, figures, _ = self._step(tensors, scheduled)
            return self._checked(loss, figures), self.model.metrics()
        if self._traced is None or self._traced[0] != scheduled:
            signature = tf.nest.map_structure(
                lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), tensors
            )
            step = partial(self._step, scheduled=scheduled)
            traced_step = tf.function(step, input_signature=[signature], autograph=False)
            self._traced = (scheduled, traced_step, signature)
        _, traced_step, signature = self._traced
        # A checkpoint may hold a memory of another precision than the model returns.
        tensors = tf.nest.map_structure(lambda x, spec: tf.cast(x, spec.dtype), tensors, signature)
        loss, figures, traced = traced_step(tensors)
        metrics = self.model.metrics()
        return self._checked(loss, figures), {
            name: traced.get(name, value) for name, value in metrics.items()
        }

    def _checked(self, loss: Any, figures: Any) -> Any:
        if not (math.isfinite(loss) and math.isfinite(figures[-1])):
            raise not_finite(
                self.config.algorithm, self.objective, float(loss), figures.numpy().tolist()
            )
        return figures

    def _step(self, batch: Mapping[str, Any], scheduled: bool) -> tuple[Any, Any, dict[str, Any]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            evaluation = self.policy.evaluate(batch)
            # float64 if the model uses it; TensorFlow only adds equal dtypes.
            dtype = evaluation.logp.dtype
            if evaluation.value is not None:
                evaluation = replace(evaluation, value=tf.cast(evaluation.value, dtype))
            stored = {name: tf.cast(batch[name], dtype) for name in self.objective.columns}
            clip_param = tf.cast(self.clip_param, dtype) if scheduled else None
            rates = Rates(0.0, tf.cast(self.kl_coeff, dtype), clip_param)
            found = self.objective.losses(evaluation, stored, self.config, tensor_ops("tf"), rates)
            returned = self.model.custom_loss(found.total, loss_inputs(self.policy, batch))
            loss = tf.add_n(
                [tf.reduce_sum(term) for term in check_loss(self.policy, returned, tf.is_tensor)]
            )
        gradients, norm = self.clip(self._gradients(tape, loss), dtype, self.config.grad_clip)
        loss = tf.cast(loss, tf.float32)
        usable = tf.math.is_finite(tf.cast(norm, tf.float32)) & tf.math.is_finite(loss)
        tf.cond(usable, lambda: self.apply(gradients), lambda: None)
        figures = [*self.objective.measured(found, tensor_ops("tf")), norm]
        figures = tf.stack([tf.cast(figure, tf.float32) for figure in figures])
        # A metric that is a symbolic tensor has no value outside the trace.
        return (
            loss,
            figures,
            {name: value for name, value in self.model.metrics().items() if tf.is_tensor(value)},
        )

    def _gradients(self, tape: Any, loss: Any) -> list[Any]:
        """Return the gradients of the weights, with zeros for weights that the loss does not depend
        on.
        """
        gradients = tape.gradient(loss, self.variables)
        if all(gradient is None for gradient in gradients):
            raise no_gradient(self.policy, self.config.algorithm)
        return [
            # Sparse for embeddings.
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, self.variables, strict=True)
        ]


def input_ops(reader: Any) -> dict[str, Any]:
    """Return tensors that contain a new batch from a `Reader` each time the traced
    function runs.
    """
    example = reader.next()
    names, types = list(example), [tf.as_dtype(array.dtype) for array in example.values()]
    tensors = tf.numpy_function(lambda: list(reader.next().values()), [], types, stateful=True)
    for tensor, array in zip(tensors, example.values(), strict=True):
        tensor.set_shape(array.shape)
    return dict(zip(names, tensors, strict=True))
