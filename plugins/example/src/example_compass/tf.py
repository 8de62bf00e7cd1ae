"""The models in TensorFlow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from gymnasium import Space
from gymnasium.spaces import Box

from example_compass.config import CompassConfig
from rlcatalog.config import read_config
from rlcatalog.models import DenseSpec, output_spec, value_spec
from rlcatalog_tf import Dense, TFModelV2, activation


class GatedNetwork(TFModelV2):
    """Single gated linear unit (Dauphin et al. 2017): a(x) * sigmoid(b(x))."""

    def __init__(
        self,
        obs_space: Box,
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        width = read_config(self.model_config, CompassConfig).example_compass_width
        input_width = math.prod(obs_space.shape)
        # The outputs are a(x) and b(x).
        self.gated = Dense(input_width, DenseSpec(2 * width, weights="xavier_uniform"))
        self.logits = None
        self.value = None
        if num_outputs is None:  # a trunk, whose outputs are its features
            self.num_outputs = width
        else:
            self.logits = Dense(width, output_spec(num_outputs, self.model_config))
            self.value = Dense(width, value_spec(self.model_config))

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: tf.Tensor | None
    ) -> tuple[Any, list[Any]]:
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        value, gate = tf.split(self.gated(x), 2, axis=-1)
        self._features = value * tf.sigmoid(gate)
        if self.logits is None:
            return self._features, state
        return self.logits(self._features), state

    def value_function(self) -> Any:
        assert self.value is not None, "a trunk has no value"
        return self.value(self._features)[:, 0]


class NormalizedNetwork(TFModelV2):
    """The layers of fcnet, each followed by layer normalisation (Ba et al. 2016)."""

    def __init__(
        self,
        obs_space: Box,
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.activation = activation(self.model_config.get("fcnet_activation", "tanh"))
        input_width = math.prod(obs_space.shape)
        widths = [input_width, *self.model_config.get("fcnet_hiddens", [256, 256])]
        self.layers = []
        self.norms = []
        for inputs, outputs in itertools.pairwise(widths):
            self.layers.append(Dense(inputs, DenseSpec(outputs, weights="xavier_uniform")))
            norm = tf.keras.layers.LayerNormalization(epsilon=1e-5)  # PyTorch's epsilon
            norm.build((None, outputs))  # the variables exist before the first call
            self.norms.append(norm)
        self.logits = None
        self.value = None
        if num_outputs is None:  # a trunk, whose outputs are its features
            self.num_outputs = widths[-1]
        else:
            self.logits = Dense(widths[-1], output_spec(num_outputs, self.model_config))
            self.value = Dense(widths[-1], value_spec(self.model_config))

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: tf.Tensor | None
    ) -> tuple[Any, list[Any]]:
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x))
            if self.activation is not None:
                x = self.activation(x)
        self._features = x
        if self.logits is None:  # a trunk
            return x, state
        return self.logits(x), state

    def value_function(self) -> Any:
        assert self.value is not None, "a trunk has no value"
        return self.value(self._features)[:, 0]
