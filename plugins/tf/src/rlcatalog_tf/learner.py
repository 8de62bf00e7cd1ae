"""Learner: clipping and Adam in TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcatalog.errors import ConfigError
from rlcatalog.frameworks import PolicyParts
from rlcatalog.spaces import map_tensors
from rlcatalog_tf import TFModelV2, keras, tf


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


class TFLearner:
    """Clipping and Adam for the weights of a policy; see `rlcatalog.frameworks.Learner`.

    Args:
        policy: The policy.
        eps: Added to the root of Adam's corrected second moment.
    """

    def __init__(self, policy: PolicyParts, eps: float = 1e-5) -> None:
        self.policy = policy
        self.model: Any = policy.model
        self.variables: list[Any] = self.model.trainable_variables()
        self.optimizer = Adam(epsilon=eps)
        self.optimizer.build(self.variables)

    @staticmethod
    def seed(value: int) -> None:
        """Seed TensorFlow, and Python's generator, which Keras' initialisers take their seeds from."""
        tf.random.set_seed(value)
        random.seed(value)

    @staticmethod
    def set_threads(count: int) -> None:
        """Set how many threads one operation may use; before TensorFlow's first operation."""
        tf.config.threading.set_intra_op_parallelism_threads(count)

    @staticmethod
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
                f"device={name!r}: TensorFlow {tf.__version__} sees {count} GPUs. Use cpu, or auto for a GPU where"
                " there is one."
            )
        return f"/gpu:{index or 0}"

    def clip(self, gradients: Sequence[Any], dtype: Any, limit: float | None) -> tuple[list[Any], Any]:
        """Scale gradients to a norm, where theirs is larger; return them and their norm before.

        Args:
            gradients: The gradients, as tensors.
            dtype: The dtype that the norm is computed in.
            limit: The largest norm, or None.
        """
        norm = tf.linalg.global_norm([tf.cast(gradient, dtype) for gradient in gradients])
        if limit is None:
            return list(gradients), norm
        scale = tf.minimum(limit / (norm + 1e-6), 1.0)  # 1e-6 as PyTorch has it
        return [gradient * tf.cast(scale, gradient.dtype) for gradient in gradients], norm

    def apply(self, gradients: Sequence[Any]) -> None:
        """Move the weights against their gradients, at the optimizer's learning rate."""
        self.optimizer.apply(list(gradients), self.variables)

    def placed(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a batch where the model is; see `rlcatalog.frameworks.Learner`."""
        if self.policy.device == "cpu":
            return batch
        with tf.device(self.policy.device):
            return {name: part if name == "seq_lens" else tf.nest.map_structure(tf.convert_to_tensor, part)
                    for name, part in batch.items()}  # fmt: skip

    def rows(self, columns: Any, index: Any) -> Any:
        """Return some rows of columns; see `rlcatalog.frameworks.Learner`."""
        return map_tensors(columns, lambda column: tf.gather(column, index) if tf.is_tensor(column) else column[index])

    def get_state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        first, second = (
            {name: part.numpy() if axes is None else part.numpy().transpose(axes) for (name, axes), part in held}
            for held in self._moments()
        )
        return {"step": int(self.optimizer.iterations.numpy()), "first": first, "second": second, "behind": {}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the optimiser's state."""
        self.optimizer.iterations.assign(state["step"])
        for values, held in zip((state["first"], state["second"]), self._moments(), strict=True):
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
