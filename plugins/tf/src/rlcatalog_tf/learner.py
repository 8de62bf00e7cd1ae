"""Learner in TensorFlow, with gradient clipping and Adam."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcatalog.frameworks import Array, PolicyParts, Tensor, TensorTree
from rlcatalog.spaces import map_tensors
from rlcatalog_tf import TFModelV2, keras, tf
from rlcatalog_tf.variables import raw_variable


class _CorrectedRate(NamedTuple):
    """Learning rate and epsilon of a step, including the corrections of both moments."""

    rate: Tensor
    epsilon: Tensor


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
        moments: The variables for the first and for the second moments, in the order of the
            weights.
    """

    #: What the current step uses.
    _corrected: _CorrectedRate | None = None

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
        step = tf.cast(self.iterations + 1, tf.float64)
        first_correction = 1.0 - tf.constant(self.beta_1, tf.float64) ** step
        second_correction = 1.0 - tf.constant(self.beta_2, tf.float64) ** step
        rate = tf.cast(self.learning_rate, tf.float64)
        # An attribute, because `super().apply` calls `update_step` with Keras' arguments only.
        self._corrected = _CorrectedRate(
            rate=rate * tf.sqrt(second_correction) / first_correction,
            epsilon=self.epsilon * tf.sqrt(second_correction),
        )
        super().apply(grads, trainable_variables)
        # If this is a trace, its tensors cannot be used outside it.
        self._corrected = None

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
        """Update a weight, with the corrected rate from `apply` instead of `learning_rate`."""
        assert self._corrected is not None, "apply sets it"
        dtype = variable.dtype
        index = next(i for i, weight in enumerate(self.weights) if weight is variable)
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
            lr=tf.cast(self._corrected.rate, dtype),
            beta1=tf.constant(self.beta_1, dtype),
            beta2=tf.constant(self.beta_2, dtype),
            epsilon=tf.cast(self._corrected.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


class TFLearner:
    """Gradient clipping and Adam for a policy's weights; see `rlcatalog.frameworks.Learner`.

    Args:
        policy: The policy.
        eps: Number added to the square root of Adam's corrected second moment.
    """

    def __init__(self, policy: PolicyParts, eps: float = 1e-5) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self.variables: list[Any] = self.model.trainable_variables()
        self.optimizer = Adam(epsilon=eps)
        self.optimizer.build(self.variables)

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

    def clip(
        self, gradients: Sequence[Tensor], dtype: tf.DType, limit: float | None
    ) -> tuple[list[Any], Any]:
        """Scale gradients down to a maximum norm; return them and their original norm.

        Args:
            gradients: The gradients, as tensors.
            dtype: The dtype for computing the norm.
            limit: Maximum norm, or None.
        """
        norm = tf.linalg.global_norm([tf.cast(gradient, dtype) for gradient in gradients])
        if limit is None:
            return list(gradients), norm
        # 1e-6 is PyTorch's number.
        scale = tf.minimum(limit / (norm + 1e-6), 1.0)
        return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm

    def apply(self, gradients: Sequence[Tensor]) -> None:
        """Update the weights with their gradients and the optimiser's learning rate."""
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
            "behind": {},  # weights that took fewer steps: none, as Keras counts for all
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state."""
        layouts = self._layouts()
        first_moments, second_moments = self.optimizer.moments
        self.optimizer.iterations.assign(state["step"])
        _set_arrays(first_moments, layouts, state["first"])
        _set_arrays(second_moments, layouts, state["second"])

    def _layouts(self) -> dict[str, tuple[int, ...] | None]:
        """Return the axes of the canonical layout of each trained weight, in the order of the
        optimiser's moments.
        """
        axes = TFModelV2.variable_axes(self.model)
        return {name: axes[name] for name in self.model.trainable_variables(as_dict=True)}

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of metrics over several steps."""
        return np.mean([figure.numpy() for figure in figures], axis=0).tolist()  # type: ignore[no-any-return]


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
