"""The models in PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

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
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Any,
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        width = read_config(self.model_config, CompassConfig).example_compass_width
        self.gated = nn.Linear(math.prod(obs_space.shape), 2 * width)
        self.glu = nn.GLU()
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = width
        else:
            self.logits, self.value = output_layer(width, num_outputs), output_layer(width, 1)

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Tensor, list[Any]]:
        self._features = self.glu(self.gated(input_dict["obs_flat"].float()))
        return self._features if self.logits is None else self.logits(self._features), state

    def value_function(self) -> Tensor:
        assert self.value is not None, "a trunk has no value"
        values: Tensor = self.value(self._features)
        return values.squeeze(1)


class NormalizedNetwork(TorchModelV2):
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
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(m) for _, m in pairs)
        self.logits = self.value = None
        if num_outputs is None:
            self.num_outputs = widths[-1]
        else:
            self.logits, self.value = (
                output_layer(widths[-1], num_outputs),
                output_layer(widths[-1], 1),
            )

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Tensor, list[Any]]:
        x = input_dict["obs_flat"].float()
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x))
            x = x if self.activation is None else self.activation(x)
        self._features = x
        return x if self.logits is None else self.logits(x), state

    def value_function(self) -> Tensor:
        assert self.value is not None, "a trunk has no value"
        values: Tensor = self.value(self._features)
        return values.squeeze(1)
