"""The base class of models, what rlcatalog knows of them, and the fully connected network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space

from acme_jax.random import KEYS
from rlcatalog import ModelV2
from rlcatalog.errors import NotServedError, StaleOutputError
from rlcatalog.frameworks import Array
from rlcatalog.models import (
    DenseSpec,
    ModelBookkeeping,
    check_weights,
    dense_specs,
    plan_dense_layers,
    post_fcnet,
)
from rlcatalog.observations import scaling_of


class JaxModelV2(ModelV2):
    """Base class of models.

    Attributes:
        params: The weights, by the names that they have in PyTorch.
    """

    framework_of_class = "jax"

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name, "jax")
        self.params: dict[str, Any] = {}

    def variables(self, as_dict: bool = False) -> Any:
        """Return all weights, as a list or by name."""
        return dict(self.params) if as_dict else list(self.params.values())

    trainable_variables = variables

    @contextmanager
    def using(self, params: dict[str, Any]) -> Iterator[None]:
        """Compute with other weights, such as those that are being differentiated."""
        before = self.params
        self.params = params
        try:
            yield
        finally:
            self.params = before


class Bookkeeping(ModelBookkeeping):
    """How rlcatalog reads and sets the weights of a model."""

    def weights(self, model: Any) -> dict[str, Array]:
        """Return all weights as arrays, by name."""
        return {name: np.asarray(value) for name, value in model.params.items()}

    def set_weights(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Set all weights from arrays, by name."""
        shapes = {name: value.shape for name, value in model.params.items()}
        check_weights(model, shapes, weights)
        params = {}
        for name, value in model.params.items():
            params[name] = jnp.asarray(np.array(weights[name]), value.dtype)
        model.params = params

    def as_tensors(self, model: Any, obs: Any) -> Any:
        """Convert the arrays of observations to tensors."""
        return jax.tree_util.tree_map(jnp.asarray, obs)


def _linear(x: jax.Array) -> jax.Array:
    return x


ACTIVATIONS: dict[Any, Callable[[jax.Array], jax.Array]] = {
    "linear": _linear,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


class FullyConnected(JaxModelV2):
    """Dense layers, then logits and a value, with the names and layouts of PyTorch's."""

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
        num_inputs = math.prod(obs_space.shape or ())
        hidden = dense_specs(config["fcnet_hiddens"], config["fcnet_activation"], config, "fcnet")
        hidden += post_fcnet(config)
        self.plan = plan_dense_layers(config, num_inputs, hidden, num_outputs)
        self.num_outputs = self.plan.num_outputs
        self.scaling = scaling_of(obs_space, config)
        #: The values of the last pass.
        self.values: jax.Array | None = None

        is_trunk = self.plan.logits is None
        self.stacks = ["hidden"]
        if not self.plan.value_shares_hidden and not is_trunk:
            self.stacks.append("value_hidden")
        for stack in self.stacks:
            width = num_inputs
            for index, spec in enumerate(self.plan.hidden):
                self._add_layer(f"{stack}.layers.{index}", width, spec)
                width = spec.size
        if self.plan.logits is not None:
            self._add_layer("outputs.logits", self.plan.num_features, self.plan.logits)
            self._add_layer("outputs.value", self.plan.num_features, self.plan.value)
            if self.plan.free_log_std:
                self.params["outputs.free_log_std.log_std"] = jnp.zeros(self.plan.free_log_std)

    def _add_layer(self, name: str, num_inputs: int, spec: DenseSpec) -> None:
        if spec.activation not in ACTIVATIONS or (spec.weights, spec.bias) != ("normc", "zeros"):
            raise NotServedError(
                f"framework 'jax' has the activations {', '.join(ACTIVATIONS)} and the initialisers"
                f" normc and zeros; found {spec}."
            )
        weight = jax.random.normal(KEYS.next(), (spec.size, num_inputs))
        norm = jnp.linalg.norm(weight, axis=1, keepdims=True)
        self.params[f"{name}.weight"] = weight * spec.weights_config.get("std", 1.0) / norm
        self.params[f"{name}.bias"] = jnp.zeros(spec.size)

    def _run_layer(self, name: str, spec: DenseSpec, x: jax.Array) -> jax.Array:
        sums = x @ self.params[f"{name}.weight"].T + self.params[f"{name}.bias"]
        return ACTIVATIONS[spec.activation](sums)

    def _run_stack(self, stack: str, x: jax.Array) -> jax.Array:
        for index, spec in enumerate(self.plan.hidden):
            x = self._run_layer(f"{stack}.layers.{index}", spec, x)
        return x

    def forward(
        self, input_dict: dict[str, Any], state: list[Any], seq_lens: Any
    ) -> tuple[Any, list[Any]]:
        """Compute the logits; see `ModelV2.forward`."""
        x = jnp.asarray(input_dict["obs_flat"], jnp.float32)
        if self.scaling is not None:
            scaling = self.scaling.flat()
            x = (x - scaling.offset) * scaling.factor
        features = self._run_stack("hidden", x)
        if self.plan.logits is None:
            return features, state
        value_features = features
        if not self.plan.value_shares_hidden:
            value_features = self._run_stack("value_hidden", x)
        self.values = self._run_layer("outputs.value", self.plan.value, value_features)[:, 0]
        outputs = self._run_layer("outputs.logits", self.plan.logits, features)
        if self.plan.free_log_std:
            log_std = self.params["outputs.free_log_std.log_std"]
            rows = jnp.broadcast_to(log_std, (len(outputs), len(log_std)))
            outputs = jnp.concatenate([outputs, rows], axis=1)
        return outputs, state

    def value_function(self) -> Any:
        """Return the value estimates `[B]` of the last pass."""
        if self.values is None:
            raise StaleOutputError(f"{type(self).__name__}: call the model first.")
        return self.values

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "values": None}
