"""TensorFlow module for a policy, returned by `policy.as_module()` for training loops that take
modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rlcatalog.actions import NOT_GIVEN
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array, PolicyParts, Tensor, lengths_of, memory_of
from rlcatalog_tf.dtypes import to_float32_at_least
from rlcatalog_tf.nn import values_of
from rlcatalog_tf.ops import OPS
from rlcatalog_tf.random import drawing_from
from rlcatalog_tf.sequences import Padding


class PolicyModule(tf.Module):  # type: ignore[misc]
    """A policy's model and action distribution as a module that shares the policy's variables.

    This is a `tf.Module` rather than a Keras layer, because layers only return tensors, and this
    module returns a distribution. Pass the module's `trainable_variables` to Keras optimisers.

    Args:
        policy: The policy, whose model sees no past steps except through its memory.
    """

    def __init__(self, policy: PolicyParts) -> None:
        super().__init__(name="policy")
        self.policy = policy
        self.has_memory = bool(policy.memory)

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

    def __call__(
        self,
        obs: Array | Tensor,
        mask: Any = NOT_GIVEN,
        training: bool = False,
        *,
        state: Sequence[Array | Tensor] | None = None,
        seq_lens: Tensor | Sequence[int] | None = None,
    ) -> tuple[Any, ...]:
        """Return the distribution of raw actions and the value estimates, and for a model with a
        memory also its new state.

        Args:
            obs: Encoded observations `[B, ...]`. For a memory, either one step of B episodes, or
                the steps of S sequences one after the other.
            mask: Action masks, booleans `[B, m]`, which observations with a mask need; None allows
                every action.
            training: Whether layers such as dropout behave as in training.
            state: The memory before the first step, tensors `[S, ...]`; None at the start of
                episodes.
            seq_lens: Lengths `[S]` of the sequences, which add up to B; None if each row is one
                step.

        Returns:
            `(distribution, values)`, or `(distribution, values, new_state)` for a memory. The
            distribution samples from `tf.random`. The values have the shape `[B]`, or are None if
            the model estimates none. The new state is the memory after each sequence, a tuple of
            tensors `[S, ...]`.

        Raises:
            ObservationError: The observations do not have the encoded shape.
            ActionMaskError: The masks have the wrong shape, a mask allows no action, or the
                observation space has a mask and none is given.
            ModelContractError: The state or the lengths do not fit the observations.
            NotServedError: The model has no memory, and a state or lengths are given.
        """
        policy = self.policy
        backend = policy.backend
        obs = backend.tensor(obs, backend.floats)
        mask = policy.encoder.resolve_mask(obs, mask)
        with tf.device(backend.device), drawing_from(backend.generator):
            if self.has_memory:
                outputs, value, new_state = self._remember(obs, state, seq_lens, training)
            elif state is not None or seq_lens is not None:
                raise NotServedError(
                    f"{policy.model_name} has no memory, so its module takes neither state nor"
                    " seq_lens."
                )
            else:
                outputs, value, _ = self._pass(obs, memory=[], seq_lens=None, is_training=training)
                new_state = ()
            inputs = to_float32_at_least(outputs)
            if mask is not None:
                inputs = policy.dist_class.masked(inputs, tf.cast(mask, tf.bool))
        dist = policy.dist_class(inputs, policy.model)
        if self.has_memory:
            return dist, value, new_state
        return dist, value

    def initial_state(self, sequences: int | Tensor) -> tuple[Any, ...]:
        """Return the memory at the start of episodes, tensors `[sequences, ...]`; empty for a model
        without memory.
        """
        parts = map(tf.convert_to_tensor, self.policy.model.get_initial_state())
        return tuple(tf.repeat(part[None], sequences, axis=0) for part in parts)

    def _remember(
        self,
        obs: Tensor,
        state: Sequence[Array | Tensor] | None,
        seq_lens: Tensor | Sequence[int] | None,
        training: bool,
    ) -> tuple[Any, ...]:
        """Run a model with a memory on single steps or on sequences without padding."""
        policy = self.policy
        padding: Padding | None = None
        if seq_lens is None:
            lengths = tf.ones([tf.shape(obs)[0]], tf.int32)
        else:
            lengths = _checked_lengths(seq_lens, obs.shape[0])
            padding = Padding(lengths)
            obs = padding.fill(obs)
        if state is None:
            state = self.initial_state(tf.shape(lengths)[0])
        elif lengths.shape[0] is not None:
            state = memory_of(policy, {"state": state}, lengths.shape[0])
        memory = [tf.convert_to_tensor(part) for part in state]
        outputs, value, returned = self._pass(
            obs, memory, lengths, is_training=training, single_steps=padding is None
        )
        if padding is not None:
            outputs, value = padding.take((outputs, value))
        if not tf.executing_eagerly():
            # A trace may lose the static number of rows in the returned states.
            pairs = zip(returned, memory, strict=True)
            returned = [tf.ensure_shape(new, old.shape) for new, old in pairs]
        # Only a model that reads past states needs the past, and no module has such a model.
        past = ()
        new_state, _ = policy.memory.after(memory, returned, past, OPS)
        return outputs, value, new_state

    def _pass(
        self, obs: Tensor, memory: list[Any], seq_lens: Tensor | None, **flags: bool
    ) -> tuple[Any, ...]:
        """Return the model's outputs, its value estimates and the state that it returned."""
        policy = self.policy
        rows = obs.shape[0]
        outputs, returned = policy.model({"obs": obs, **flags}, memory, seq_lens)
        policy.output_checker.check_outputs(outputs, rows)
        value = values_of(policy.model, rows) if policy.has_value else None
        return outputs, value, returned


def _checked_lengths(seq_lens: Tensor | Sequence[int], rows: int) -> Any:
    """Return the lengths of sequences as a tensor; in a trace, they cannot be checked.

    Raises:
        ModelContractError: They do not add up to the number of rows.
    """
    if not tf.is_tensor(seq_lens) or tf.executing_eagerly():
        seq_lens = lengths_of({"seq_lens": seq_lens}, rows)
    return tf.cast(seq_lens, tf.int32)
