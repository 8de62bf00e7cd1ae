"""TensorFlow module for a policy, returned by `policy.as_module()` for training loops that take
modules.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlcatalog.frameworks import PolicyParts
from rlcatalog_tf.dtypes import to_float32_at_least
from rlcatalog_tf.nn import values_of
from rlcatalog_tf.random import drawing_from


class PolicyModule(tf.Module):  # type: ignore[misc]
    """A policy's model and action distribution as a module that shares the policy's variables.

    This is a `tf.Module` rather than a Keras layer, because layers only return tensors, and this
    module returns a distribution. Pass the module's `trainable_variables` to Keras optimisers.

    Args:
        policy: The policy, without memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        super().__init__(name="policy")
        self.policy = policy

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables of the model."""
        return tuple(self.policy.model.variables())

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The variables that training changes."""
        return tuple(self.policy.model.trainable_variables())

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """All other variables, such as batch-normalisation statistics."""
        trained = {id(variable) for variable in self.trainable_variables}
        return tuple(variable for variable in self.variables if id(variable) not in trained)

    def __call__(self, obs: Any, mask: Any = None, training: bool = False) -> tuple[Any, Any]:
        """Return the distribution of raw actions, which samples from `tf.random`, and value
        estimates `[B]` or None.

        Args:
            obs: Encoded observations `[B, ...]`.
            mask: Action masks: booleans `[B, m]`.
            training: Whether layers such as dropout behave as in training.

        Raises:
            ObservationError: The observations do not have the encoded shape.
            ActionMaskError: The masks have the wrong shape, or a mask allows no action.
        """
        policy, backend = self.policy, self.policy.backend
        obs = backend.tensor(obs, backend.floats)
        mask = policy.encoder.resolve_mask(obs, mask)
        with tf.device(backend.device), drawing_from(backend.generator):
            outputs, _ = policy.model({"obs": obs, "is_training": training}, [], None)
            policy.contract.check_outputs(outputs, obs.shape[0])
            inputs = to_float32_at_least(outputs)
            if mask is not None:
                inputs = policy.dist_class.masked(inputs, tf.cast(mask, tf.bool))
            value = values_of(policy.model, obs.shape[0]) if policy.has_value else None
        return policy.dist_class(inputs, policy.model), value
