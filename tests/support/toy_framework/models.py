"""The base class of models, what rlcatalog knows of them, and the fully connected network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space

from rlcatalog import ModelV2
from rlcatalog.errors import NotServedError, StaleOutputError
from rlcatalog.frameworks import Array
from rlcatalog.models import (
    DenseSpec,
    ModelBookkeeping,
    check_weights,
    dense_specs,
    output_spec,
    plan_dense_layers,
    post_fcnet,
)
from rlcatalog.observations import scaling_of
from toy_framework.arrays import GENERATOR, slope


class NumpyModel(ModelV2):
    """Base class of models.

    Attributes:
        weights: The weights, by the names that they have in PyTorch.
    """

    framework_of_class = "toy"

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

    def variables(self, as_dict: bool = False) -> list[Array] | dict[str, Array]:
        """Return all weights, as a list or by name."""
        return dict(self.weights) if as_dict else list(self.weights.values())

    trainable_variables = variables

    def gradients(self, loss: Callable[[], float]) -> dict[str, Array]:
        """Return the gradients of a loss that runs this model, by the weights' names."""
        return {name: slope(loss, array) for name, array in self.weights.items()}


class Bookkeeping(ModelBookkeeping):
    """How rlcatalog reads and sets the weights of a model."""

    def weights(self, model: Any) -> dict[str, Array]:
        """Return copies of all weights, by name."""
        return {name: array.copy() for name, array in model.weights.items()}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all weights, by name."""
        shapes = {name: array.shape for name, array in model.weights.items()}
        check_weights(model, shapes, weights)
        for name, array in model.weights.items():
            model.weights[name] = np.array(weights[name], array.dtype)


# --- the fully connected network ------------------------------------------------------------------


def _one_minus_square(y: Array) -> Array:
    return 1 - y**2


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _is_positive(y: Array) -> Array:
    return (y > 0).astype(np.float64)


#: Activation → the function, and its derivative as a function of its result.
ACTIVATIONS: dict[Any, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "linear": (np.positive, np.ones_like),
    "tanh": (np.tanh, _one_minus_square),
    "relu": (_relu, _is_positive),
}


class FullyConnected(NumpyModel):
    """Dense layers, then logits and a value, with the names and layouts of PyTorch's.

    `gradients` knows the network's derivative, because differences for each of its weights would
    take too long. Only the derivative of the loss with respect to the outputs and values comes from
    differences: they are nudged by arrays that are added to them.
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
        if num_outputs is None or config["free_log_std"]:
            raise NotServedError("framework 'toy' has no trunks, and no free_log_std.")
        num_inputs = math.prod(obs_space.shape or ())
        hidden = dense_specs(config["fcnet_hiddens"], config["fcnet_activation"], config, "fcnet")
        hidden += post_fcnet(config)
        self.plan = plan_dense_layers(config, num_inputs, hidden, num_outputs)
        self.scaling = scaling_of(obs_space, config)
        self.stacks = ["hidden"] if self.plan.value_shares_hidden else ["hidden", "value_hidden"]
        #: The results of the last pass: of each stack, its inputs and the results of its layers.
        self.layer_results: dict[str, list[Array]] = {}
        self.outputs: Array | None = None
        self.values: Array | None = None
        self.output_nudge: Array | float = 0.0
        self.value_nudge: Array | float = 0.0

        for stack in self.stacks:
            width = num_inputs
            for index, spec in enumerate(self.plan.hidden):
                self._add_layer(f"{stack}.layers.{index}", width, spec)
                width = spec.size
        assert self.plan.logits is not None  # only a trunk has none
        self.logits = self.plan.logits
        self._add_layer("outputs.logits", self.plan.num_features, self.logits)
        self._add_layer("outputs.value", self.plan.num_features, output_spec(1))

    def _add_layer(self, name: str, num_inputs: int, spec: DenseSpec) -> None:
        if spec.activation not in ACTIVATIONS or (spec.weights, spec.bias) != ("normc", "zeros"):
            raise NotServedError(
                f"framework 'toy' has the activations {', '.join(ACTIVATIONS)} and the initialisers"
                f" normc and zeros; found {spec}."
            )
        weight = GENERATOR.normal(size=(spec.size, num_inputs))
        norm = np.linalg.norm(weight, axis=1, keepdims=True)
        weight *= spec.weights_config.get("std", 1.0) / norm
        # In the dtype of PyTorch's weights; the network computes in float64.
        self.weights[f"{name}.weight"] = weight.astype(np.float32)
        self.weights[f"{name}.bias"] = np.zeros(spec.size, np.float32)

    # --- a pass -----------------------------------------------------------------------------------

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Array | None
    ) -> tuple[Array, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = input_dict["obs_flat"].astype(np.float64)
        if self.scaling is not None:
            scaling = self.scaling.flat()
            x = (x - scaling.offset) * scaling.factor
        for stack in self.stacks:
            results = [x]
            for index, spec in enumerate(self.plan.hidden):
                results.append(self._run_layer(f"{stack}.layers.{index}", spec, results[-1]))
            self.layer_results[stack] = results
        features = self.layer_results["hidden"][-1]
        value_features = self.layer_results[self.stacks[-1]][-1]
        self.outputs = self._run_layer("outputs.logits", self.logits, features)
        self.values = self._run_layer("outputs.value", output_spec(1), value_features)[:, 0]
        return self.outputs + self.output_nudge, state

    def _run_layer(self, name: str, spec: DenseSpec, x: Array) -> Array:
        activate, _ = ACTIVATIONS[spec.activation]
        sums = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return activate(sums)

    def value_function(self) -> Array:
        """Return the value estimates `[B]` of the last pass."""
        if self.values is None:
            raise StaleOutputError("FullyConnected has no value estimate: call the model first.")
        values: Array = self.values + self.value_nudge
        return values

    # --- its derivative ---------------------------------------------------------------------------

    def gradients(self, loss: Callable[[], float]) -> dict[str, Array]:
        """Return the gradients of a loss that runs this model, by the weights' names."""
        loss()  # a pass, whose results the derivatives need
        assert self.outputs is not None
        outputs = self.outputs
        self.output_nudge = np.zeros(outputs.shape)
        self.value_nudge = np.zeros(len(outputs))
        try:
            of_outputs = slope(loss, self.output_nudge)
            of_values = slope(loss, self.value_nudge)
        finally:
            self.output_nudge = 0.0
            self.value_nudge = 0.0

        gradients: dict[str, Array] = {}
        features = self.layer_results["hidden"][-1]
        value_features = self.layer_results[self.stacks[-1]][-1]
        of_features = self._pull_back(
            "outputs.logits", self.logits, features, outputs, of_outputs, gradients
        )
        of_value_features = self._pull_back(
            "outputs.value",
            output_spec(1),
            value_features,
            outputs[:, :1],  # not read: the layer is linear
            of_values[:, None],
            gradients,
        )
        if self.plan.value_shares_hidden:
            of_results = {"hidden": of_features + of_value_features}
        else:
            of_results = {"hidden": of_features, "value_hidden": of_value_features}
        for stack, of_result in of_results.items():
            self._pull_back_stack(stack, of_result, gradients)
        return gradients

    def _pull_back_stack(self, stack: str, of_result: Array, gradients: dict[str, Array]) -> None:
        results = self.layer_results[stack]
        for index in reversed(range(len(self.plan.hidden))):
            of_result = self._pull_back(
                f"{stack}.layers.{index}",
                self.plan.hidden[index],
                results[index],
                results[index + 1],
                of_result,
                gradients,
            )

    def _pull_back(
        self,
        name: str,
        spec: DenseSpec,
        x: Array,
        y: Array,
        of_y: Array,
        gradients: dict[str, Array],
    ) -> Array:
        """Add the gradients of a layer's weights, and return the gradient of its input.

        Args:
            name: The layer's name.
            spec: The layer.
            x: Its input in the last pass.
            y: Its result.
            of_y: The gradient of its result.
            gradients: The gradients by the weights' names.
        """
        _, derivative = ACTIVATIONS[spec.activation]
        of_sum = of_y * derivative(y)  # of what the activation gets
        gradients[f"{name}.weight"] = of_sum.T @ x
        gradients[f"{name}.bias"] = of_sum.sum(axis=0)
        of_x: Array = of_sum @ self.weights[f"{name}.weight"]
        return of_x
