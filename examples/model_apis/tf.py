"""Model APIs in TensorFlow: methods that an algorithm needs, mixed into the model that
the catalog chooses.

The classes, layers and weight names are the same as in the PyTorch file next to this
one, so weights can be copied between the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from rlcatalog_tf import FullyConnectedNetwork, TFModelV2, tf


class QModel(TFModelV2):
    """`get_q_values` for a model that puts out one value per action itself."""

    def get_q_values(self, underlying_output: Any) -> Any:
        """Return the Q-values `[B, n]`: the model's output `[B, n]`, unchanged."""
        return underlying_output


class DuelingQModel(TFModelV2):
    """A dueling head (Wang et al. 2016) on a trunk: one value per state, one advantage
    per action.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ):
        # With None, the model ends with its features, and sets their number in
        # self.num_outputs.
        super().__init__(obs_space, action_space, None, model_config, name)
        self.A = dense(self.num_outputs, int(action_space.n))
        self.V = dense(self.num_outputs, 1)

    def get_q_values(self, underlying_output: Any) -> Any:
        """Map features `[B, width]` to Q-values `[B, n]`."""
        advantages = self.A(underlying_output)
        value = self.V(underlying_output)
        # A constant could move between V and A; taking the mean out of A pins it down.
        return value + advantages - tf.reduce_mean(advantages, axis=1, keepdims=True)


class ContActionQModel(TFModelV2):
    """The value of one continuous action, as SAC needs it: the action joins the trunk's
    features in a second net.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ):
        super().__init__(obs_space, action_space, None, model_config, name)
        width = self.num_outputs + math.prod(action_space.shape)
        # A trunk and one linear layer. A whole model would add a value layer that is
        # never trained.
        combined = Box(-np.inf, np.inf, (width,), np.float32)
        self.q_hidden = FullyConnectedNetwork(
            combined,
            action_space,
            num_outputs=None,
            model_config=model_config,
            name=f"{name}_q",
        )
        self.q_value = dense(self.q_hidden.num_outputs, 1)

    def get_single_q_value(self, underlying_output: Any, action: Any) -> Any:
        """Map features `[B, width]` and actions `[B, ...]` to Q-values `[B, 1]`."""
        flat = tf.reshape(action, [tf.shape(action)[0], math.prod(action.shape[1:])])
        hidden, _ = self.q_hidden({"obs": tf.concat([underlying_output, flat], axis=1)})
        return self.q_value(hidden)


def dense(inputs: int, outputs: int) -> Any:
    """Return a linear layer that already has variables, because a target network is
    copied before the first call.
    """
    layer = tf.keras.layers.Dense(outputs)
    layer.build((None, inputs))
    return layer
