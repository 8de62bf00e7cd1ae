"""Parametric actions in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlcatalog.actions import ActionMasks
from rlcatalog.models import last_values
from rlcatalog_parametric.config import plan
from rlcatalog_parametric.mask_columns import read
from rlcatalog_tf import OutputLayers, TFModelV2, features_of, flatten_rows, sequence_mask, tf


class ParametricActionsHead(TFModelV2):
    """Logits for actions that the observation describes; the structure is the PyTorch model's, name by name.

    Inside a caller's own `tf.function` a row that allows nothing raises TensorFlow's InvalidArgumentError, unless
    `is_training`.

    Args:
        obs_space: See `TFModelV2`.
        action_space: See `TFModelV2`.
        num_outputs: See `TFModelV2`.
        model_config: See `TFModelV2`.
        name: See `TFModelV2`.
        trunk: The model it is built around; it sees what the head leaves of the observation.
        value_trunk: Another one for the value, or None.
        action_dist: What makes the action distribution; it says what a mask does to its inputs.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
        *,
        trunk: TFModelV2,
        value_trunk: TFModelV2 | None,
        action_dist: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layout, self._shown, self._masks = read(obs_space, action_space, self.model_config)
        assert trunk.num_outputs is not None
        layers = plan(self.model_config, self.layout, trunk.num_outputs, num_outputs)
        self.num_outputs = layers.outputs if self.layout.embeddings is None else self.layout.actions
        self.action_dist = action_dist
        self.trunk = trunk
        self.value_trunk = None if num_outputs is None else value_trunk
        self.outputs = None if num_outputs is None else OutputLayers(layers)
        self._features: Any = None

    def forward(self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        features, new_state = features_of(self.trunk, input_dict, state, seq_lens)
        if self.outputs is None:
            return features, new_state
        self._features = features
        if self.value_trunk is not None:
            self._features, _ = features_of(self.value_trunk, input_dict, [], seq_lens)
        output, allowed = self.outputs(features), None
        if self._shown is not None or self.layout.listed:
            allowed = self._allowed(input_dict["obs"])
        if allowed is not None and self._masks is not None and not input_dict.get("values_only"):
            self._check(self._masks, allowed, input_dict, seq_lens)
        if self.layout.embeddings is not None:
            output = self._compared(output, input_dict["obs"][self.layout.embeddings], allowed)
        return output if allowed is None else self.action_dist.masked(output, allowed), new_state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last forward pass."""
        return last_values(self, self._features)

    def get_initial_state(self) -> list[Any]:
        """Return the trunk's state at the start of an episode."""
        return self.trunk.get_initial_state()

    def _compared(self, intent: Any, shown: Any, allowed: Any) -> Any:
        """Return the dot products `[B, n]` of intents `[B, E]` with embeddings `[B, n, E]`."""
        embeddings = tf.cast(shown.values if self.layout.listed else shown, intent.dtype)
        if allowed is not None:  # what stands for no action may be no number, which gradients would spread
            embeddings = tf.where(allowed[:, :, None], embeddings, tf.zeros([], intent.dtype))
        return tf.linalg.matvec(embeddings, intent)

    def _allowed(self, obs: Any) -> Any:
        """Return which values are allowed, booleans `[B, m]`; None where the observation does not say."""
        allowed = None
        if self._shown is not None:
            leaves = self._shown.leaves(obs[self.layout.mask])
            values = tf.concat([tf.cast(flatten_rows(leaf), tf.float32) for leaf in leaves], axis=1)
            if self._shown.places is not None:
                values = tf.gather(values, self._shown.places, axis=1)
            allowed = tf.not_equal(values, tf.constant(self._shown.forbidding, tf.float32))
        if self.layout.listed:
            lengths = obs[self.layout.embeddings].lengths
            listed = tf.sequence_mask(tf.cast(lengths, tf.int32), self.layout.actions)
            allowed = listed if allowed is None else allowed & listed
        return allowed

    def _check(self, masks: ActionMasks, allowed: Any, input_dict: dict[str, Any], seq_lens: Any) -> None:
        eager = tf.executing_eagerly()
        if not eager and input_dict.get("is_training"):
            return
        if seq_lens is not None and not input_dict.get("single_steps"):  # padding allows nothing
            real = sequence_mask(seq_lens, tf.shape(allowed)[0] // tf.shape(seq_lens)[0])
            allowed |= ~tf.reshape(real, [-1, 1])
        if eager:
            masks.matrix(allowed.numpy())
            return
        for path, columns in masks.by_choice(allowed):
            some = tf.reduce_any(columns, axis=1)
            row = tf.argmin(tf.cast(some, tf.int32))
            tf.debugging.Assert(tf.reduce_all(some), ["mask: row", row, f"allows nothing for {path}"])
