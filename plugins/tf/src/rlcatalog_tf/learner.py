"""Learner in TensorFlow, with gradient clipping and Adam."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog.frameworks import PolicyParts
from rlcatalog.spaces import map_tensors
from rlcatalog_tf import TFModelV2, keras, tf
from rlcatalog_tf.variables import raw_variable


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

    #: Learning rate and epsilon of the current step, including the corrections of both moments.
    _corrected: Any = None

    def __init__(
        self,
        learning_rate: float = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
    ) -> None:
        super().__init__(learning_rate)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: Sequence[Any]) -> None:
        """Create the moments, which are zero."""
        super().build(variables)
        self.weights = [raw_variable(variable) for variable in variables]
        first = [self.add_variable_from_reference(v, "momentum") for v in variables]
        second = [self.add_variable_from_reference(v, "velocity") for v in variables]
        self.moments = first, second

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Update the weights with their gradients."""
        count = tf.cast(self.iterations + 1, tf.float64)
        first, second = (
            1.0 - tf.constant(beta, tf.float64) ** count for beta in (self.beta_1, self.beta_2)
        )
        rate = tf.cast(self.learning_rate, tf.float64) * tf.sqrt(second) / first
        self._corrected = rate, self.epsilon * tf.sqrt(second)
        super().apply(grads, trainable_variables)
        self._corrected = None  # tensors of a trace mean nothing outside it

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a weight."""
        dtype = variable.dtype
        index = next(i for i, weight in enumerate(self.weights) if weight is variable)
        rate, epsilon = (tf.cast(number, dtype) for number in self._corrected)
        beta1, beta2, none = (
            tf.constant(number, dtype) for number in (self.beta_1, self.beta_2, 0.0)
        )
        first, second = (part[index].value for part in self.moments)
        # Powers of zero: the corrections are in the rate and the epsilon.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=none,
            beta2_power=none,
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
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
        self, gradients: Sequence[Any], dtype: Any, limit: float | None
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
        scale = tf.minimum(limit / (norm + 1e-6), 1.0)  # 1e-6 as in PyTorch
        return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm

    def apply(self, gradients: Sequence[Any]) -> None:
        """Update the weights with their gradients and the optimiser's learning rate."""
        self.optimizer.apply(list(gradients), self.variables)

    def placed(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch on the model's device; see `rlcatalog.frameworks.Learner`."""
        if self.policy.device == "cpu":
            return batch
        with tf.device(self.policy.device):
            return {
                name: part
                if name == "seq_lens"
                else tf.nest.map_structure(tf.convert_to_tensor, part)
                for name, part in batch.items()
            }

    def rows(self, columns: Any, index: Any) -> Any:
        """Return the columns' rows at an index; see `rlcatalog.frameworks.Learner`."""
        return map_tensors(
            columns,
            lambda column: tf.gather(column, index) if tf.is_tensor(column) else column[index],
        )

    def get_state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        first, second = (
            {
                name: part.numpy() if axes is None else part.numpy().transpose(axes)
                for (name, axes), part in held
            }
            for held in self._moments()
        )
        return {
            "step": int(self.optimizer.iterations.numpy()),
            "first": first,
            "second": second,
            "behind": {},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state."""
        self.optimizer.iterations.assign(state["step"])
        for values, held in zip((state["first"], state["second"]), self._moments(), strict=True):
            for (name, axes), part in held:
                part.assign(
                    values[name] if axes is None else values[name].transpose(np.argsort(axes))
                )

    def _moments(self) -> list[list[Any]]:
        """Return one list per moment; each entry contains (name, axes of its layout) and the
        variable of a weight.
        """
        axes = TFModelV2.variable_axes(self.model)
        names = [(name, axes[name]) for name in self.model.trainable_variables(as_dict=True)]
        return [list(zip(names, part, strict=True)) for part in self.optimizer.moments]

    def means(self, figures: list[Any]) -> list[float]:
        """Return the means of metrics over several steps."""
        return np.mean([figure.numpy() for figure in figures], axis=0).tolist()  # type: ignore[no-any-return]
