"""Framework-neutral description of dense layers and of a model's last layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlcatalog.config import KernelConfig, activation_name, read_config, read_initializers
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
    activation: Any = "linear"
    weights: Any = "normc"
    weights_config: Mapping[str, Any] = field(default_factory=dict)
    bias: Any = "zeros"
    bias_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The activation's name, for tables."""
        return (
            self.activation
            if isinstance(self.activation, str)
            else getattr(self.activation, "__name__", "custom")
        )


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
            `<prefix>_bias_initializer` and `..._config` for both. If missing or None, weights use
            `normc` with std 1, and biases are zero.
        prefix: `"fcnet"`, `"post_fcnet"`, …

    Raises:
        ConfigError: There are more than `MOST_LAYERS` layers.
    """
    if len(sizes) > MOST_LAYERS:
        raise ConfigError(f"{prefix}_hiddens: {len(sizes)} layers; the maximum is {MOST_LAYERS}.")
    if not sizes:
        return []
    options: dict[str, Any] = {"activation": activation_name(activation, f"{prefix}_activation")}
    for kind, (name, arguments) in read_initializers(config.get, prefix, "weights", "bias").items():
        options |= {kind: name, f"{kind}_config": arguments}
    return [DenseSpec(size, **options) for size in sizes]


def output_spec(size: int) -> DenseSpec:
    """Return a logits or value layer: linear, `normc` with std 0.01, so that a new policy is close
    to uniform.
    """
    return DenseSpec(size, weights_config={"std": 0.01})


@dataclass(frozen=True)
class OutputPlan:
    """A model's last layers: dense layers, then logits and value.

    Attributes:
        inputs: Input width of the dense layers.
        hidden: The dense layers, in order.
        logits: The output layer, or None for a trunk.
        free_log_std: Number of outputs that come from a trained vector instead of a layer.
        share: Whether the value layer reads the policy's hidden layers.
        outputs: Width of the output.
    """

    inputs: int
    hidden: list[DenseSpec]
    logits: DenseSpec | None
    free_log_std: int
    share: bool
    outputs: int

    @property
    def features(self) -> int:
        """Input width of the logits and value layers."""
        return self.hidden[-1].size if self.hidden else self.inputs

    def stages(self, name: str = "hidden", before: Sequence[Stage] = ()) -> list[Stage]:
        """Return the layers as `explain` shows them: dense layers, then value and logits.

        Args:
            name: Name for the dense layers.
            before: The stages before these layers. If the value shares no layers, it has copies of
                them.
        """
        widths = [self.inputs, *(spec.size for spec in self.hidden)]
        dense = list(before)
        for i, (n, spec) in enumerate(zip(widths, self.hidden, strict=False), 1):
            dense.append(Stage(f"{name} {i} ({spec.label})", (spec.size,), (n + 1) * spec.size))
        if self.logits is None:
            return dense
        own = [] if self.share else [replace(stage, name=f"value, {stage.name}") for stage in dense]
        return [
            *dense,
            *own,
            Stage("value", (), self.features + 1),
            Stage(f"logits ({self.logits.label})", (self.outputs,), self.logits_weights),
        ]

    @property
    def logits_weights(self) -> int:
        """Number of weights of the output layer, including `free_log_std`."""
        return (
            0 if self.logits is None else (self.features + 1) * self.logits.size + self.free_log_std
        )


def post_fcnet(config: Mapping[str, Any]) -> list[DenseSpec]:
    """Return the dense layers that `post_fcnet_hiddens` defines."""
    shared = read_config(config, KernelConfig)
    return dense_specs(
        shared.post_fcnet_hiddens, shared.post_fcnet_activation, config, "post_fcnet"
    )


def output_plan(
    config: Mapping[str, Any], inputs: int, hidden: Sequence[DenseSpec], num_outputs: int | None
) -> OutputPlan:
    """Return a model's last layers, as set by `vf_share_layers`, `free_log_std` and
    `no_final_linear`.

    Args:
        config: The flat model config; missing keys take their defaults.
        inputs: Input width of the first dense layer.
        hidden: The dense layers.
        num_outputs: Width of the output, or None for a trunk, which ends with the dense layers.

    Raises:
        ConfigError: `free_log_std` is set, but the number of outputs is odd.
    """
    shared, hidden = read_config(config, KernelConfig), list(hidden)
    if num_outputs is None:
        return OutputPlan(
            inputs, hidden, None, 0, shared.vf_share_layers, hidden[-1].size if hidden else inputs
        )
    trained = num_outputs // 2 if shared.free_log_std else 0
    if shared.free_log_std and num_outputs % 2:
        raise ConfigError(
            "free_log_std needs an even number of outputs (means and log standard deviations),"
            f" found {num_outputs}."
        )
    logits = output_spec(num_outputs - trained)
    if shared.no_final_linear and hidden:
        # The last hidden layer is the output: with the requested width, and with its activation and
        # initialisers.
        logits = replace(hidden.pop(), size=num_outputs - trained)
    return OutputPlan(inputs, hidden, logits, trained, shared.vf_share_layers, num_outputs)
