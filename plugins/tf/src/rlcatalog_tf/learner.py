"""Learner in TensorFlow, with gradient clipping and Adam."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.frameworks import Array, Gradient, PolicyParts, Tensor, TensorTree
from rlcatalog.models import parts_with_own_rate
from rlcatalog.spaces import map_tensors
from rlcatalog_tf import HALF, TFModelV2, keras, tf
from rlcatalog_tf.variables import raw_variable


class _CorrectedRate(NamedTuple):
    """Learning rate and epsilon of a step, including the corrections of both moments."""

    rate: Tensor
    epsilon: Tensor


@dataclass
class StepPlan:
    """What differs between the weights of `Adam`, each by its index.

    Attributes:
        missed_steps: Number of steps that a weight did not take, because its part was frozen.
        rates: The learning rate of a weight whose part has its own, as a variable.
    """

    missed_steps: dict[int, int] = field(default_factory=dict)
    rates: dict[int, tf.Variable] = field(default_factory=dict)


class _StepRates:
    """The corrected rates of one step, by the weights' indices."""

    def __init__(self, rates: Mapping[int, _CorrectedRate]) -> None:
        self.rates = rates


class Adam(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adam optimiser (Kingma and Ba 2015, algorithm 1) with one operation per weight and PyTorch's
    epsilon.

    Keras adds epsilon before it corrects the second moment's bias, so 1e-5 acts like 3e-4 in the
    first step. Its dozen operations per weight account for half of the time that tracing a small
    network's step takes.

    Args:
        learning_rate: Learning rate.
        beta_1: Decay rate of the first moments.
        beta_2: Decay rate of the second moments.
        epsilon: Number added to the square root of the corrected second moment.

    Attributes:
        weights: The weights that `build` was called with, as tf.Variables.
        plan: What differs between the weights.
        moments: The variables for the first and for the second moments, in the order of the
            weights.
    """

    #: What the current step uses. Keras would wrap a dict in an attribute.
    _step_rates: _StepRates | None = None

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
    ) -> None:
        super().__init__(learning_rate)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.plan = StepPlan()

    def build(self, variables: Sequence[Any]) -> None:
        """Create the moments, which are zero."""
        super().build(variables)
        self.weights = [raw_variable(variable) for variable in variables]
        first = [self.add_variable_from_reference(weight, "momentum") for weight in variables]
        second = [self.add_variable_from_reference(weight, "velocity") for weight in variables]
        self.moments = (first, second)

    def apply(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[Any] | None = None
    ) -> None:
        """Update the weights with their gradients."""
        weights = self.weights if trainable_variables is None else trainable_variables
        rates_by_kind: dict[Any, _CorrectedRate] = {}
        step_rates = {}
        for weight in weights:
            index = self._index_of(raw_variable(weight))
            missed_steps = self.plan.missed_steps.get(index, 0)
            rate = self.plan.rates.get(index, self.learning_rate)
            kind = (missed_steps, id(rate))
            if kind not in rates_by_kind:
                rates_by_kind[kind] = self._correct(missed_steps, rate)
            step_rates[index] = rates_by_kind[kind]
        # An attribute, because `super().apply` calls `update_step` with Keras' arguments only.
        self._step_rates = _StepRates(step_rates)
        super().apply(grads, trainable_variables)
        # If this is a trace, its tensors cannot be used outside it.
        self._step_rates = None

    def _correct(self, missed_steps: int, learning_rate: Any) -> _CorrectedRate:
        """Return the rate and epsilon of a weight that has missed some of the steps."""
        step = tf.cast(self.iterations + 1 - missed_steps, tf.float64)
        first_correction = 1.0 - tf.constant(self.beta_1, tf.float64) ** step
        second_correction = 1.0 - tf.constant(self.beta_2, tf.float64) ** step
        rate = tf.cast(learning_rate, tf.float64)
        return _CorrectedRate(
            rate=rate * tf.sqrt(second_correction) / first_correction,
            epsilon=self.epsilon * tf.sqrt(second_correction),
        )

    def _index_of(self, variable: Any) -> int:
        """Return the index of one of the weights."""
        return next(i for i, weight in enumerate(self.weights) if weight is variable)

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
        """Update a weight, with the corrected rate from `apply` instead of `learning_rate`."""
        assert self._step_rates is not None, "apply sets it"
        dtype = variable.dtype
        index = self._index_of(variable)
        corrected = self._step_rates.rates[index]
        first_moments, second_moments = self.moments
        # With powers of 0, TensorFlow's operator corrects no bias. The rate and epsilon already
        # include the corrections.
        no_power = tf.constant(0.0, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first_moments[index].value.handle,
            v=second_moments[index].value.handle,
            beta1_power=no_power,
            beta2_power=no_power,
            lr=tf.cast(corrected.rate, dtype),
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.cast(corrected.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


class TFLearner:
    """Gradient clipping and Adam for a policy's weights; see `rlcatalog.frameworks.Learner`.

    Args:
        policy: The policy.
        eps: Number added to the square root of Adam's corrected second moment.
        lr_parts: Names of the model's parts that have their own learning rate.

    Attributes:
        variables: The variables that the next steps train.
        part_rates: The learning rates of parts that have their own, as variables.

    Raises:
        ConfigError: The model has no such part.
    """

    def __init__(
        self, policy: PolicyParts, eps: float = 1e-5, lr_parts: Collection[str] = ()
    ) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self._eps = eps
        self._part_of = parts_with_own_rate(self.model, lr_parts, "lr_parts")
        self.part_rates: dict[str, tf.Variable] = {}
        for part in lr_parts:
            self.part_rates[part] = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        trained = self.model.trainable_variables(as_dict=True)
        self._trained_names: list[str] = list(trained)
        self.variables: list[Any] = list(trained.values())
        #: Name → number of steps when the training of a weight ended.
        self._frozen_since: dict[str, int] = {}
        self._build_optimizer(self._learnable_weights())

    def _build_optimizer(self, weights: Mapping[str, Any]) -> None:
        """Create an optimiser whose moments are zero."""
        self._names = list(weights)
        self.optimizer = Adam(epsilon=self._eps)
        self.optimizer.build(list(weights.values()))
        for index, name in enumerate(self._names):
            if name in self._part_of:
                self.optimizer.plan.rates[index] = self.part_rates[self._part_of[name]]
            if name not in self._trained_names:
                self._frozen_since[name] = 0

    def select_weights(self) -> None:
        """Train the weights that are trainable now; the moments of all others wait."""
        trained = self.model.trainable_variables(as_dict=True)
        if list(trained) == self._trained_names:
            return
        state = self.get_state()
        weights = self._learnable_weights()
        new_names = weights.keys() - set(self._names)
        if new_names:
            # The user unfroze layers that were frozen when the optimiser was created.
            self._build_optimizer(weights)
            zeros = self.get_state()
            for moment in ("first", "second"):
                state[moment] = zeros[moment] | state[moment]
            state["behind"] |= dict.fromkeys(new_names, 0)
        self._trained_names = list(trained)
        self.variables = list(trained.values())
        self.set_state(state)

    def _learnable_weights(self) -> dict[str, Any]:
        """Return the variables that learn now or, if their part is frozen, may learn later."""
        trained = self.model.trainable_variables(as_dict=True)
        frozen_weights = self.model._rlcatalog_bookkeeping.frozen_weights
        weights = {}
        for name, variable in self.model.variables(as_dict=True).items():
            if name in trained or name in frozen_weights:
                weights[name] = variable
        return weights

    @staticmethod
    def seed(value: int) -> None:
        """Seed TensorFlow, and Python's generator, from which Keras initialisers draw
        their seeds.
        """
        tf.random.set_seed(value)
        random.seed(value)

    @staticmethod
    def set_threads(count: int) -> None:
        """Set the number of threads per operation; call this function before TensorFlow's first
        operation.
        """
        tf.config.threading.set_intra_op_parallelism_threads(count)

    def gradient(
        self, loss: Callable[..., tuple[Tensor, Any]], *inputs: TensorTree | float | None
    ) -> Gradient | None:
        """Return the gradient of a loss, with zeros for weights that it does not depend on; see
        `rlcatalog.frameworks.Learner`.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.variables)
            total, results = loss(*inputs)
        gradients = tape.gradient(total, self.variables)
        if all(gradient is None for gradient in gradients):
            return None
        dense_gradients = []
        for gradient, variable in zip(gradients, self.variables, strict=True):
            if gradient is None:
                dense_gradients.append(tf.zeros_like(variable))
            else:
                # The gradient of an embedding is sparse.
                dense_gradients.append(tf.convert_to_tensor(gradient))
        # Squares overflow in half precision.
        dtype = tf.float32 if total.dtype in HALF else total.dtype
        norm = tf.linalg.global_norm([tf.cast(gradient, dtype) for gradient in dense_gradients])
        return Gradient(total, results, norm, dense_gradients)

    def apply(
        self,
        gradient: Gradient,
        lr: float,
        limit: float | None,
        part_rates: Mapping[str, float] | None = None,
    ) -> None:
        """Update the weights; see `rlcatalog.frameworks.Learner`."""
        self.set_rates(lr, part_rates)
        self.take_step(clip_gradient(gradient, limit))

    def set_rates(self, lr: float, part_rates: Mapping[str, float] | None = None) -> None:
        """Set the learning rates of `take_step`; call this outside of traced functions."""
        self.optimizer.learning_rate.assign(lr)
        for part, part_rate in self.part_rates.items():
            part_rate.assign((part_rates or {})[part])

    def take_step(self, gradients: Sequence[Tensor]) -> None:
        """Update the weights with their gradients and the rates of `set_rates`."""
        self.optimizer.apply(list(gradients), self.variables)

    def place_batch(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch on the model's device; see `rlcatalog.frameworks.Learner`."""
        if self.policy.device == "cpu":
            return batch
        tensors = {}
        with tf.device(self.policy.device):
            for name, part in batch.items():
                # The lengths of sequences stay arrays, because Python reads them.
                if name != "seq_lens":
                    part = tf.nest.map_structure(tf.convert_to_tensor, part)
                tensors[name] = part
        return tensors

    def rows(self, columns: TensorTree, index: Array) -> Any:
        """Return the columns' rows at an index; see `rlcatalog.frameworks.Learner`."""

        def take(column: Array | Tensor) -> Any:
            if tf.is_tensor(column):
                return tf.gather(column, index)
            return column[index]

        return map_tensors(columns, take)

    def get_state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        layouts = self._layouts()
        first_moments, second_moments = self.optimizer.moments
        return {
            "step": int(self.optimizer.iterations.numpy()),
            "first": _to_arrays(first_moments, layouts),
            "second": _to_arrays(second_moments, layouts),
            "behind": self._steps_behind(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state."""
        layouts = self._layouts()
        first_moments, second_moments = self.optimizer.moments
        self.optimizer.iterations.assign(state["step"])
        _set_arrays(first_moments, layouts, state["first"])
        _set_arrays(second_moments, layouts, state["second"])
        self._frozen_since = {}
        missed_steps = {}
        for index, name in enumerate(self._names):
            if name in state["behind"]:
                missed_steps[index] = state["step"] - state["behind"][name]
            if name not in self._trained_names:
                self._frozen_since[name] = state["step"]
        self.optimizer.plan.missed_steps = missed_steps

    def _steps_behind(self) -> dict[str, int]:
        """Return the number of steps that each weight has taken, if it took fewer than others."""
        num_steps = int(self.optimizer.iterations.numpy())
        behind = {}
        for index, name in enumerate(self._names):
            missed_steps = self.optimizer.plan.missed_steps.get(index, 0)
            if name in self._frozen_since:
                missed_steps += num_steps - self._frozen_since[name]
            if missed_steps:
                behind[name] = num_steps - missed_steps
        return behind

    def _layouts(self) -> dict[str, tuple[int, ...] | None]:
        """Return the axes of the canonical layout of each trained weight, in the order of the
        optimiser's moments.
        """
        axes = TFModelV2.variable_axes(self.model)
        return {name: axes[name] for name in self._names}

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of metrics over several steps."""
        return np.mean([figure.numpy() for figure in figures], axis=0).tolist()  # type: ignore[no-any-return]


def clip_gradient(gradient: Gradient, limit: float | None) -> list[Any]:
    """Return the gradients of the weights, scaled down to a maximum norm.

    Args:
        gradient: The gradient.
        limit: Maximum norm, or None.
    """
    gradients: list[Any] = gradient.of_weights
    if limit is None:
        return gradients
    # 1e-6 is PyTorch's number.
    scale = tf.minimum(limit / (gradient.norm + 1e-6), 1.0)
    return [of_weight * tf.cast(scale, of_weight.dtype) for of_weight in gradients]


def _to_arrays(
    moments: Sequence[Any], layouts: Mapping[str, tuple[int, ...] | None]
) -> dict[str, Array]:
    """Return moments as arrays in canonical layouts, by the names of their weights."""
    arrays = {}
    for (name, axes), moment in zip(layouts.items(), moments, strict=True):
        array = moment.numpy()
        arrays[name] = array if axes is None else array.transpose(axes)
    return arrays


def _set_arrays(
    moments: Sequence[Any],
    layouts: Mapping[str, tuple[int, ...] | None],
    arrays: Mapping[str, Array],
) -> None:
    """Set moments from arrays in canonical layouts, by the names of their weights."""
    for (name, axes), moment in zip(layouts.items(), moments, strict=True):
        array = arrays[name]
        moment.assign(array if axes is None else array.transpose(np.argsort(axes)))
