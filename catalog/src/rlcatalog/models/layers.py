"""Framework-neutral description of dense layers and of a model's last layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlcatalog.config import (
    INIT_RECIPES,
    Initializer,
    InitRecipe,
    KernelConfig,
    activation_name,
    read_config,
    read_initializers,
)
from rlcatalog.errors import ConfigError
from rlcatalog.plugins import Stage

#: Maximum number of dense layers in a row, because a short config could otherwise request a huge
#: model.
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class DenseSpec:
    """Framework-neutral description of one dense layer.

    Attributes:
        size: Number of outputs.
        activation: Neutral name or callable.
        weights: Initialiser of the weights, as a name or callable.
        weights_config: Its arguments.
        bias: Initialiser of the bias: name or callable.
        bias_config: Its arguments.
    """

    size: int
    activation: str | Callable[..., Any] = "linear"
    weights: str | Callable[..., Any] = "normc"
    weights_config: Mapping[str, Any] = field(default_factory=dict)
    bias: str | Callable[..., Any] = "zeros"
    bias_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The activation's name, for tables."""
        if isinstance(self.activation, str):
            return self.activation
        name: str = getattr(self.activation, "__name__", "custom")  # a user's callable
        return name


def dense_specs(
    sizes: Sequence[int],
    activation: str | Callable[..., Any] | None,
    config: Mapping[str, Any],
    prefix: str,
) -> list[DenseSpec]:
    """Return the layers of a dense stack, with the initialisers that the config sets for this
    prefix.

    Args:
        sizes: Widths of the layers.
        activation: Name, callable or None.
        config: The config, with the keys `<prefix>_weights_initializer`,
            `<prefix>_bias_initializer` and `..._config` for both. If missing or None, `init`
            decides.
        prefix: `"fcnet"`, `"post_fcnet"`, …

    Raises:
        ConfigError: There are more than `MOST_LAYERS` layers.
    """
    if len(sizes) > MOST_LAYERS:
        raise ConfigError(f"{prefix}_hiddens: {len(sizes)} layers; the maximum is {MOST_LAYERS}.")
    if not sizes:
        return []
    activation = activation_name(activation, f"{prefix}_activation")
    recipe = init_recipe(config)
    given = read_initializers(config.get, prefix, "weights", "bias")
    weights = given.get("weights", recipe.hidden)
    bias = given.get("bias", recipe.bias)
    return [_spec(size, weights, bias, activation) for size in sizes]


def init_recipe(config: Mapping[str, Any]) -> InitRecipe:
    """Return the initial values that a model config's key `init` names.

    Args:
        config: The flat model config; missing keys take their defaults.
    """
    return INIT_RECIPES[read_config(config, KernelConfig).init]


def hidden_spec(size: int, config: Mapping[str, Any]) -> DenseSpec:
    """Return a linear hidden layer, with the initial values that the config key `init` names.

    Args:
        size: Number of outputs.
        config: The flat model config; missing keys take their defaults.
    """
    recipe = init_recipe(config)
    return _spec(size, recipe.hidden, recipe.bias)


def output_spec(size: int, config: Mapping[str, Any] | None = None) -> DenseSpec:
    """Return a layer for logits: linear, with small weights, so that a new policy is close to
    uniform.

    Args:
        size: Number of outputs.
        config: The flat model config, whose key `init` names the initial values; missing keys take
            their defaults.
    """
    recipe = init_recipe(config or {})
    return _spec(size, recipe.logits, recipe.bias)


def value_spec(config: Mapping[str, Any] | None = None) -> DenseSpec:
    """Return a layer for the value, with one output.

    Args:
        config: See `output_spec`.
    """
    recipe = init_recipe(config or {})
    return _spec(1, recipe.value, recipe.bias)


def _spec(
    size: int, weights: Initializer, bias: Initializer, activation: Any = "linear"
) -> DenseSpec:
    """Return a dense layer with the initialisers for its weights and its bias."""
    weights_name, weights_config = weights
    bias_name, bias_config = bias
    return DenseSpec(
        size,
        activation,
        weights=weights_name,
        weights_config=weights_config,
        bias=bias_name,
        bias_config=bias_config,
    )


@dataclass(frozen=True)
class DensePlan:
    """A model's dense layers, and the logits and value after them.

    Attributes:
        num_inputs: Input width of the dense layers.
        hidden: The dense layers, in order.
        logits: The output layer, or None for a trunk.
        free_log_std: Number of outputs that come from a trained vector instead of a layer.
        value_shares_hidden: Whether the value layer reads the policy's hidden layers.
        num_outputs: Width of the output.
        has_value: Whether there is a value layer; beside a critic, the policy's model has none.
        value: The value layer.
    """

    num_inputs: int
    hidden: list[DenseSpec]
    logits: DenseSpec | None
    free_log_std: int
    value_shares_hidden: bool
    num_outputs: int
    has_value: bool = True
    value: DenseSpec = field(default_factory=value_spec)

    @classmethod
    def of_trunk(cls, num_inputs: int, hidden: Sequence[DenseSpec]) -> DensePlan:
        """Return the plan of a trunk, which ends with its dense layers.

        Args:
            num_inputs: Input width of the first dense layer.
            hidden: The dense layers.
        """
        layers = list(hidden)
        return cls(
            num_inputs=num_inputs,
            hidden=layers,
            logits=None,
            free_log_std=0,  # a trunk has no logits, so no standard deviations
            value_shares_hidden=True,  # nor a value
            num_outputs=layers[-1].size if layers else num_inputs,
        )

    @property
    def num_features(self) -> int:
        """Input width of the logits and value layers."""
        return self.hidden[-1].size if self.hidden else self.num_inputs

    def stages(self, name: str = "hidden", before: Sequence[Stage] = ()) -> list[Stage]:
        """Return the layers as `explain` shows them: dense layers, then value and logits.

        Args:
            name: Name for the dense layers.
            before: The stages before these layers. If the value shares no layers, it has copies of
                them.
        """
        stages = list(before)
        width = self.num_inputs
        for number, spec in enumerate(self.hidden, start=1):
            weights = (width + 1) * spec.size  # one more for the bias
            stages.append(Stage(f"{name} {number} ({spec.label})", (spec.size,), weights))
            width = spec.size
        if self.logits is None:
            return stages
        if self.has_value and not self.value_shares_hidden:
            # The value has its own copy of every layer up to here.
            stages += [replace(stage, name=f"value, {stage.name}") for stage in stages]
        if self.has_value:
            stages.append(Stage("value", (), self.num_features + 1))
        stages.append(
            Stage(f"logits ({self.logits.label})", (self.num_outputs,), self.logits_weights)
        )
        return stages

    @property
    def logits_weights(self) -> int:
        """Number of weights of the output layer, including `free_log_std`."""
        if self.logits is None:
            return 0
        return (self.num_features + 1) * self.logits.size + self.free_log_std


def post_fcnet(config: Mapping[str, Any]) -> list[DenseSpec]:
    """Return the dense layers that `post_fcnet_hiddens` defines."""
    settings = read_config(config, KernelConfig)
    return dense_specs(
        settings.post_fcnet_hiddens, settings.post_fcnet_activation, config, prefix="post_fcnet"
    )


def dense_layers(prefixes: Iterable[str], config: Mapping[str, Any]) -> list[DenseSpec]:
    """Return the dense layers with which a trunk ends; see `ModelSpec.dense_layers`.

    Args:
        prefixes: The beginnings of their config keys.
        config: The flat, complete model config.
    """
    layers: list[DenseSpec] = []
    for prefix in prefixes:
        sizes = config[f"{prefix}_hiddens"]
        layers += dense_specs(sizes, config[f"{prefix}_activation"], config, prefix)
    return layers


def without_dense_layers(prefixes: Iterable[str]) -> dict[str, list[int]]:
    """Return the config keys with which a trunk ends before these dense layers."""
    return {f"{prefix}_hiddens": [] for prefix in prefixes}


def plan_dense_layers(
    config: Mapping[str, Any], num_inputs: int, hidden: Sequence[DenseSpec], num_outputs: int | None
) -> DensePlan:
    """Return a model's dense layers, logits and value, as set by `vf_share_layers`, `free_log_std`
    and `no_final_linear`.

    Args:
        config: The flat model config; missing keys take their defaults.
        num_inputs: Input width of the first dense layer.
        hidden: The dense layers.
        num_outputs: Width of the output, or None for a trunk, which ends with the dense layers.

    Raises:
        ConfigError: `free_log_std` is set, but the number of outputs is odd.
    """
    settings = read_config(config, KernelConfig)
    layers = list(hidden)
    if num_outputs is None:
        return DensePlan.of_trunk(num_inputs, layers)
    free_log_std = 0
    if settings.free_log_std:
        if num_outputs % 2:
            raise ConfigError(
                "free_log_std needs an even number of outputs (means and log standard deviations),"
                f" found {num_outputs}."
            )
        free_log_std = num_outputs // 2
    width = num_outputs - free_log_std
    if settings.no_final_linear and layers:
        # The last hidden layer is the output: with the requested width, and with its activation and
        # initialisers.
        logits = replace(layers.pop(), size=width)
    else:
        logits = output_spec(width, config)
    return DensePlan(
        num_inputs=num_inputs,
        hidden=layers,
        logits=logits,
        free_log_std=free_log_std,
        value_shares_hidden=settings.vf_share_layers,
        num_outputs=num_outputs,
        has_value=settings.critic is None,
        value=value_spec(config),
    )
