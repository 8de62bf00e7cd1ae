"""TensorFlow's part of the algorithms: one optimiser step, traced unless the config says otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from rlcatalog import Policy
from rlcatalog.errors import ConfigError, NotServedError
from rlcatalog.frameworks import tensor_ops
from rlcatalog_tf import HALF, TFModelV2, keras, tf
from rlcatalog_ppo.config import OnPolicyConfig
from rlcatalog_ppo.custom_loss import check_loss, loss_inputs, no_gradient
from rlcatalog_ppo.learner import Moments, not_finite
from rlcatalog_ppo.loss import PPO_OBJECTIVE, Objective
from rlcatalog_ppo.rollout import each


def seed(value: int) -> None:
    """Seed TensorFlow."""
    tf.random.set_seed(value)


def set_threads(count: int) -> None:
    """Set how many threads one operation may use; before TensorFlow's first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(count)


class Adam(keras.optimizers.Adam):  # type: ignore[misc]
    """Adam with the epsilon of Kingma and Ba's algorithm 1, as PyTorch has it, in one operation for each weight.

    Keras adds its epsilon before the bias of the second moment is corrected: 1e-5 acts as 3e-4 at the first step. Its
    dozen operations for each weight take half of the time in which a small net's step is traced.
    """

    #: The learning rate and the epsilon of the step that is being taken, the corrections of both moments in them.
    _corrected: Any = None

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Move the weights against their gradients."""
        count = tf.cast(self.iterations + 1, tf.float64)
        first, second = (1.0 - tf.constant(beta, tf.float64) ** count for beta in (self.beta_1, self.beta_2))
        rate = tf.cast(self.learning_rate, tf.float64) * tf.sqrt(second) / first
        self._corrected = rate, self.epsilon * tf.sqrt(second)
        super().apply(grads, trainable_variables)
        self._corrected = None  # tensors of a trace mean nothing outside it

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Move a weight."""
        dtype, index = variable.dtype, self._get_variable_index(variable)
        rate, epsilon = (tf.cast(number, dtype) for number in self._corrected)
        beta1, beta2, none = (tf.constant(number, dtype) for number in (self.beta_1, self.beta_2, 0.0))
        first, second = (part[index].value for part in self.moments())
        # Powers of zero: the corrections are in the rate and the epsilon.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=first.handle, v=second.handle, beta1_power=none, beta2_power=none, lr=rate,
            beta1=beta1, beta2=beta2, epsilon=epsilon, grad=tf.cast(gradient, dtype),
        )  # fmt: skip

    def moments(self) -> tuple[list[Any], list[Any]]:
        """Return the variables that hold the first and the second moments, weight by weight."""
        return self._momentums, self._velocities


def device_of(name: str) -> str:
    """Return the device that a config names, as TensorFlow names it.

    Raises:
        ConfigError: TensorFlow knows none of this name, or sees none.
    """
    if name == "cpu":
        return name
    kind, colon, index = name.partition(":")
    if kind not in ("auto", "cuda", "gpu") or (colon and not index.isdecimal()):
        raise ConfigError(f"device={name!r}: expected cpu, cuda, cuda:1, … or auto, with framework='tf'.")
    count = len(tf.config.list_logical_devices("GPU"))
    if name == "auto" and not count:
        return "cpu"
    if int(index or 0) >= count:
        raise ConfigError(
            f"device={name!r}: TensorFlow {tf.__version__} sees {count} GPUs. Use cpu, or auto for a GPU where there is"
            " one."
        )
    return f"/gpu:{index or 0}"


class Optimizer:
    """Takes optimiser steps (see `rlcatalog_ppo.learner.Optimizer`).

    Args:
        policy: The policy.
        config: The algorithm's config.
        objective: What is minimised.

    Raises:
        NotServedError: Variables are of half precision.
    """

    def __init__(self, policy: Policy, config: OnPolicyConfig, objective: Objective = PPO_OBJECTIVE) -> None:
        self.policy, self.config, self.objective = policy, config, objective
        self.model: Any = policy.model
        self.variables = cast(Any, policy.model).trainable_variables()
        half = {v.dtype.name for v in self.variables if v.dtype in HALF}
        if half:
            raise NotServedError(
                f"{config.algorithm}: the model's variables are {half.pop()}, in which Keras' Adam cannot compute:"
                " 1 - beta_2 and squares of gradients round to 0. Use keras.mixed_precision, which keeps variables in"
                " float32."
            )
        self.optimizer = Adam(learning_rate=config.lr, epsilon=1e-5)
        self.optimizer.build(self.variables)
        #: Their values change between updates; numbers would be part of the trace.
        self.kl_coeff = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self.clip_param = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._traced: Any = None

    def step(
        self,
        batch: Mapping[str, Any],
        lr: float,
        kl_coeff: float = 0.0,
        clip_param: float | None = None,
        *,
        check: bool = True,
        measure: bool = True,
    ) -> tuple[Any, dict[str, Any]]:
        """Improve the weights on a minibatch; see `rlcatalog_ppo.learner.Optimizer`.

        A trace looks at shapes alone, and it measures in any case.
        """
        self.optimizer.learning_rate.assign(lr)
        self.kl_coeff.assign(kl_coeff)
        scheduled = clip_param is not None
        if scheduled:
            self.clip_param.assign(clip_param)
        tensors = tf.nest.map_structure(tf.convert_to_tensor, batch)
        if not self.config.eager_tracing:
            loss, figures, _ = self._step(tensors, scheduled)
            return self._checked(loss, figures), self.model.metrics()
        if self._traced is None or self._traced[0] != scheduled:
            signature = tf.nest.map_structure(lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), tensors)
            step = partial(self._step, scheduled=scheduled)
            self._traced = scheduled, tf.function(step, input_signature=[signature], autograph=False)
        loss, figures, traced = self._traced[1](tensors)
        metrics = self.model.metrics()
        return self._checked(loss, figures), {name: traced.get(name, value) for name, value in metrics.items()}

    def placed(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch where the model is; see `rlcatalog_ppo.learner.Optimizer`."""
        if self.policy.device == "cpu":
            return batch
        with tf.device(self.policy.device):
            return {name: part if name == "seq_lens" else tf.nest.map_structure(tf.convert_to_tensor, part)
                    for name, part in batch.items()}  # fmt: skip

    def rows(self, columns: Any, index: Any) -> Any:
        """Return some rows of columns; see `rlcatalog_ppo.learner.Optimizer`."""
        return each(columns, lambda column: tf.gather(column, index) if tf.is_tensor(column) else column[index])

    def _checked(self, loss: Any, figures: Any) -> Any:
        if not (math.isfinite(loss) and math.isfinite(figures[-1])):
            raise not_finite(self.config.algorithm, self.objective, float(loss), figures.numpy().tolist())
        return figures

    def _step(self, batch: Mapping[str, Any], scheduled: bool) -> tuple[Any, Any, dict[str, Any]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            evaluation = self.policy.evaluate(batch)
            dtype = evaluation.logp.dtype  # float64 where the model is; TensorFlow adds like to like only
            if evaluation.value is not None:
                evaluation = replace(evaluation, value=tf.cast(evaluation.value, dtype))
            stored = {name: tf.cast(batch[name], dtype) for name in self.objective.columns}
            weights = tf.cast(self.kl_coeff, dtype), tf.cast(self.clip_param, dtype) if scheduled else None
            found = self.objective.losses(evaluation, stored, self.config, tensor_ops("tf"), *weights)
            returned = self.model.custom_loss(found.total, loss_inputs(self.policy, batch))
            loss = tf.add_n([tf.reduce_sum(term) for term in check_loss(self.policy, returned, tf.is_tensor)])
        gradients = self._gradients(tape, loss)
        norm = tf.linalg.global_norm([tf.cast(gradient, dtype) for gradient in gradients])
        if self.config.grad_clip is not None:
            scale = tf.minimum(self.config.grad_clip / (norm + 1e-6), 1.0)  # 1e-6 as PyTorch has it
            gradients = [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients]
        loss = tf.cast(loss, tf.float32)
        usable = tf.math.is_finite(tf.cast(norm, tf.float32)) & tf.math.is_finite(loss)
        tf.cond(usable, lambda: self._apply(gradients), lambda: None)
        figures = [*self.objective.measured(found, tensor_ops("tf")), norm]
        figures = tf.stack([tf.cast(figure, tf.float32) for figure in figures])
        # A metric that is a tensor of this trace has no value outside of it.
        return loss, figures, {name: value for name, value in self.model.metrics().items() if tf.is_tensor(value)}

    def _gradients(self, tape: Any, loss: Any) -> list[Any]:
        """Return the gradients of the weights, zeros where the loss does not depend on one."""
        gradients = tape.gradient(loss, self.variables)
        if all(gradient is None for gradient in gradients):
            raise no_gradient(self.policy, self.config.algorithm)
        return [
            tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)  # embeddings' are sparse
            for gradient, variable in zip(gradients, self.variables, strict=True)
        ]

    def _apply(self, gradients: list[Any]) -> None:
        self.optimizer.apply(gradients, self.variables)

    def get_state(self) -> Moments:
        """Return the optimiser's state."""
        first, second = (
            {name: part.numpy() if axes is None else part.numpy().transpose(axes) for (name, axes), part in held}
            for held in self._moments()
        )
        return Moments(int(self.optimizer.iterations.numpy()), first, second)

    def set_state(self, state: Moments) -> None:
        """Set the optimiser's state."""
        self.optimizer.iterations.assign(state.step)
        for values, held in zip((state.first, state.second), self._moments(), strict=True):
            for (name, axes), part in held:
                part.assign(values[name] if axes is None else values[name].transpose(np.argsort(axes)))

    def _moments(self) -> list[list[Any]]:
        """Return for each of the two moments pairs of (name, axes of its layout) and variable."""
        axes = TFModelV2.variable_axes(self.model)
        names = [(name, axes[name]) for name in self.model.trainable_variables(as_dict=True)]
        return [list(zip(names, part, strict=True)) for part in self.optimizer.moments()]

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of the figures of several steps."""
        return np.mean([figure.numpy() for figure in figures], axis=0).tolist()  # type: ignore[no-any-return]


def input_ops(reader: Any) -> dict[str, Any]:
    """Return a batch of a `Reader` as tensors that are drawn anew at each run of the traced function they stand in."""
    example = reader.next()
    names, types = list(example), [tf.as_dtype(array.dtype) for array in example.values()]
    tensors = tf.numpy_function(lambda: list(reader.next().values()), [], types, stateful=True)
    for tensor, array in zip(tensors, example.values(), strict=True):
        tensor.set_shape(array.shape)
    return dict(zip(names, tensors, strict=True))
