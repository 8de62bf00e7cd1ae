"""The models in PyTorch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from gymnasium import Space
from gymnasium.spaces import Box
from torch import Tensor, nn

from example_compass.config import CompassConfig
from rlcatalog.config import read_config
from rlcatalog_torch import TorchModelV2, activation, normc_initializer


def output_layer(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with small weights, for logits and values."""
    layer = nn.Linear(inputs, outputs)
    normc_initializer(0.01)(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class GatedNetwork(TorchModelV2):
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
        self.gated = nn.Linear(input_width, 2 * width)  # a(x) and b(x)
        self.glu = nn.GLU()
        self.logits = None
        self.value = None
        if num_outputs is None:  # a trunk, whose outputs are its features
            self.num_outputs = width
        else:
            self.logits = output_layer(width, num_outputs)
            self.value = output_layer(width, 1)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Tensor, list[Any]]:
        self._features = self.glu(self.gated(input_dict["obs_flat"].float()))
        if self.logits is None:
            return self._features, state
        return self.logits(self._features), state

    def value_function(self) -> Tensor:
        assert self.value is not None, "a trunk has no value"
        values: Tensor = self.value(self._features)
        return values.squeeze(1)


class NormalizedNetwork(TorchModelV2):
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
        self.layers = nn.ModuleList()
        self.norms = nn.ModuleList()
        for inputs, outputs in itertools.pairwise(widths):
            self.layers.append(nn.Linear(inputs, outputs))
            self.norms.append(nn.LayerNorm(outputs))
        self.logits = None
        self.value = None
        if num_outputs is None:  # a trunk, whose outputs are its features
            self.num_outputs = widths[-1]
        else:
            self.logits = output_layer(widths[-1], num_outputs)
            self.value = output_layer(widths[-1], 1)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Tensor | None
    ) -> tuple[Tensor, list[Any]]:
        x = input_dict["obs_flat"].float()
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x))
            if self.activation is not None:
                x = self.activation(x)
        self._features = x
        if self.logits is None:  # a trunk
            return x, state
        return self.logits(x), state

    def value_function(self) -> Tensor:
        assert self.value is not None, "a trunk has no value"
        values: Tensor = self.value(self._features)
        return values.squeeze(1)
