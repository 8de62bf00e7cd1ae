"""A dense layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import tape
from tape import Array, Numbers

from rlcatalog.errors import NotServedError
from rlcatalog.models import DenseSpec
from rlcatalog_tape.random import GENERATOR


def linear(x: Array) -> Array:
    """Return x."""
    return x


ACTIVATIONS: dict[Any, Any] = {"linear": linear, "tanh": tape.tanh, "relu": tape.relu}


class Dense:
    """A layer `activation(x @ weight.T + bias)`, `[B, inputs]` to `[B, size]`.

    Args:
        num_inputs: The number of inputs.
        spec: What the config says about the layer.

    Raises:
        NotServedError: The framework does not have the activation or an initialiser.
    """

    def __init__(self, num_inputs: int, spec: DenseSpec) -> None:
        if spec.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise NotServedError(
                f"framework 'tape' has no activation {spec.label!r}, only {known}."
            )
        if (spec.weights, spec.bias) != ("normc", "zeros"):
            raise NotServedError(
                "framework 'tape' has the initialisers 'normc' for weights and 'zeros' for biases;"
                f" found {spec.weights!r} and {spec.bias!r}."
            )
        std = spec.weights_config.get("std", 1.0)
        self.activation = ACTIVATIONS[spec.activation]
        self.weight = Array(normc(spec.size, num_inputs, std), learns=True)
        self.bias = Array(np.zeros(spec.size, np.float32), learns=True)

    def __call__(self, x: Array) -> Array:
        y: Array = self.activation(x @ self.weight.T + self.bias)
        return y


def normc(size: int, num_inputs: int, std: float) -> Numbers:
    """Return weights `[size, num_inputs]` in random directions, each row of the length `std`."""
    rows = GENERATOR.normal(size=(size, num_inputs))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    weight: Numbers = (std * rows / lengths).astype(np.float32)
    return weight
