"""The base class of models, and what rlcatalog knows of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from tape import Array

from rlcatalog import ModelV2
from rlcatalog.models import ModelBookkeeping, check_weights
from rlcatalog.spaces import map_tensors
from rlcatalog_tape.layers import Dense


class TapeModel(ModelV2):
    """Base class of models.

    Attributes:
        weights: The weights, by the names that they have in PyTorch.
    """

    framework_of_class = "tape"

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(
            obs_space, action_space, num_outputs, model_config, name, self.framework_of_class
        )
        self.weights: dict[str, Array] = {}

    def add(self, name: str, layer: Dense) -> Dense:
        """Add a layer's weights to those of the model, and return the layer."""
        self.weights[f"{name}.weight"] = layer.weight
        self.weights[f"{name}.bias"] = layer.bias
        return layer

    def variables(self, as_dict: bool = False) -> list[Array] | dict[str, Array]:
        """Return all weights, as a list or by name."""
        return dict(self.weights) if as_dict else list(self.weights.values())

    trainable_variables = variables


class Bookkeeping(ModelBookkeeping):
    """How rlcatalog reads and sets the weights of a model, and what it passes to one."""

    def weights(self, model: Any) -> dict[str, Any]:
        """Return copies of all weights, by name."""
        return {name: weight.data.copy() for name, weight in model.weights.items()}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all weights, by name."""
        shapes = {name: weight.shape for name, weight in model.weights.items()}
        check_weights(model, shapes, weights)
        for name, weight in model.weights.items():
            weight.data = np.array(weights[name], weight.dtype)

    def as_tensors(self, model: Any, obs: Any) -> Any:
        """Convert the arrays in observations."""
        return map_tensors(obs, _as_tensor)


def _as_tensor(value: Any) -> Any:
    return Array(value) if isinstance(value, np.ndarray) else value
