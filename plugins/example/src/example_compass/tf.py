"""The models in TensorFlow."""

from __future__ import annotations

import itertools
import math
from typing import Any

import tensorflow as tf

from example_compass.config import CompassConfig
from rlcatalog.config import read_config
from rlcatalog.models import DenseSpec, output_spec
from rlcatalog_tf import Dense, TFModelV2, activation


class GatedNetwork(TFModelV2):
    """Single gated linear unit (Dauphin et al. 2017): a(x) * sigmoid(b(x))."""

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        width = read_config(self.model_config, CompassConfig).example_compass_width
        self.gated = Dense(
            math.prod(obs_space.shape), DenseSpec(2 * width, weights="xavier_uniform")
        )
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = width
        else:
            self.logits, self.value = (
                Dense(width, output_spec(num_outputs)),
                Dense(width, output_spec(1)),
            )

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        value, gate = tf.split(self.gated(tf.cast(input_dict["obs_flat"], tf.float32)), 2, axis=-1)
        self._features = value * tf.sigmoid(gate)
        return self._features if self.logits is None else self.logits(self._features), state

    def value_function(self) -> Any:
        assert self.value is not None, "a trunk has no value"
        return self.value(self._features)[:, 0]


class NormalizedNetwork(TFModelV2):
    """The layers of fcnet, each followed by layer normalisation (Ba et al. 2016)."""

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.activation = activation(self.model_config.get("fcnet_activation", "tanh"))
        widths = [math.prod(obs_space.shape), *self.model_config.get("fcnet_hiddens", [256, 256])]
        pairs = list(itertools.pairwise(widths))
        self.layers = [Dense(n, DenseSpec(m, weights="xavier_uniform")) for n, m in pairs]
        self.norms = [tf.keras.layers.LayerNormalization(epsilon=1e-5) for _ in pairs]
        for norm, (_, width) in zip(self.norms, pairs, strict=True):
            norm.build((None, width))  # the variables exist before the first call
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = widths[-1]
        else:
            self.logits, self.value = (
                Dense(widths[-1], output_spec(num_outputs)),
                Dense(widths[-1], output_spec(1)),
            )

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        x = tf.cast(input_dict["obs_flat"], tf.float32)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x))
            x = x if self.activation is None else self.activation(x)
        self._features = x
        return x if self.logits is None else self.logits(x), state

    def value_function(self) -> Any:
        assert self.value is not None, "a trunk has no value"
        return self.value(self._features)[:, 0]
