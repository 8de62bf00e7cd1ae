"""The fully connected network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from tape import Array

from rlcatalog.errors import NotServedError, StaleOutputError
from rlcatalog.models import dense_specs, plan_dense_layers, post_fcnet
from rlcatalog.observations import scaling_of
from rlcatalog_tape.layers import Dense
from rlcatalog_tape.models import TapeModel


class FullyConnected(TapeModel):
    """Dense layers, then logits and a value; the twin of fcnet in PyTorch.

    The value reads the same hidden layers or, with `vf_share_layers=False`, hidden layers of its
    own.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        config = self.model_config
        if num_outputs is None:
            raise NotServedError("framework 'tape' has no code for memories and heads.")
        if config["free_log_std"]:
            raise NotServedError("framework 'tape' has no free_log_std.")

        self.scaling = scaling_of(obs_space, config)
        num_inputs = math.prod(obs_space.shape or ())
        hidden = dense_specs(config["fcnet_hiddens"], config["fcnet_activation"], config, "fcnet")
        hidden += post_fcnet(config)
        self.plan = plan_dense_layers(config, num_inputs, hidden, num_outputs)
        assert self.plan.logits is not None  # only a trunk has none

        self.hidden = self._stack("hidden")
        self.value_hidden = self.hidden
        if not self.plan.value_shares_hidden:
            self.value_hidden = self._stack("value_hidden")
        width = self.plan.num_features
        self.logits = self.add("outputs.logits", Dense(width, self.plan.logits))
        self.value = self.add("outputs.value", Dense(width, self.plan.value))
        self.value_features: Array | None = None

    def _stack(self, name: str) -> list[Dense]:
        """Add hidden layers, and return them."""
        layers = []
        width = self.plan.num_inputs
        for index, spec in enumerate(self.plan.hidden):
            layers.append(self.add(f"{name}.layers.{index}", Dense(width, spec)))
            width = spec.size
        return layers

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Array, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"].astype(np.float32)
        if self.scaling is not None:
            scaling = self.scaling.flat()
            x = (x - scaling.offset) * scaling.factor
        features = _run(self.hidden, x)
        self.value_features = features
        if self.value_hidden is not self.hidden:
            self.value_features = _run(self.value_hidden, x)
        return self.logits(features), state

    def value_function(self) -> Array:
        """Return the value estimates `[B]` of the last pass."""
        if self.value_features is None:
            raise StaleOutputError("FullyConnected has no value estimate: call the model first.")
        return self.value(self.value_features)[:, 0]


def _run(layers: list[Dense], x: Array) -> Array:
    """Run layers, one after the other."""
    for layer in layers:
        x = layer(x)
    return x
