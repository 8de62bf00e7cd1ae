"""The keys this package owns, and the layers they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.config import KernelConfig, NameOrCallable, part
from rlcatalog.errors import ConfigError
from rlcatalog.neutral import DenseSpec, activation_name, dense_specs, initializer_name, output_spec


class FcnetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of the fully connected network."""

    fcnet_hiddens: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(description="widths of the hidden layers")] = (
        msgspec.field(default_factory=lambda: [256, 256])
    )
    fcnet_activation: Annotated[NameOrCallable, Meta(description="activation of the hidden layers")] = "tanh"
    fcnet_weights_initializer: Annotated[NameOrCallable, Meta(description="initialiser of their weights")] = None
    fcnet_weights_initializer_config: Annotated[
        dict[str, Any] | None, Meta(description="arguments of that initialiser")
    ] = None
    fcnet_bias_initializer: Annotated[NameOrCallable, Meta(description="initialiser of their biases")] = None
    fcnet_bias_initializer_config: Annotated[
        dict[str, Any] | None, Meta(description="arguments of that initialiser")
    ] = None

    def __post_init__(self) -> None:
        activation_name(self.fcnet_activation, "fcnet_activation")
        for values in ("weights", "bias"):
            key = f"fcnet_{values}_initializer"
            initializer_name(getattr(self, key), getattr(self, f"{key}_config"), key)


@dataclass(frozen=True)
class Plan:
    """The layers of one network, framework-neutral.

    Attributes:
        inputs: Width of the input.
        hidden: The hidden layers.
        logits: The output layer, or None for a trunk.
        free_log_std: Number of outputs that are a trained vector, 0 for none.
        share: Whether the value layer reads the hidden layers of the policy.
        outputs: Width of the network's output.
    """

    inputs: int
    hidden: list[DenseSpec]
    logits: DenseSpec | None
    free_log_std: int
    share: bool
    outputs: int


def plan(config: Mapping[str, Any], inputs: int, num_outputs: int | None) -> Plan:
    """Read the layers from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        inputs: Width of the flattened observation.
        num_outputs: Width of the output, or None for a trunk.

    Raises:
        ConfigError: `free_log_std` with an odd number of outputs.
    """
    own, shared = part(config, FcnetConfig), part(config, KernelConfig)
    hidden = [
        *dense_specs(own.fcnet_hiddens, own.fcnet_activation, config, "fcnet"),
        *dense_specs(shared.post_fcnet_hiddens, shared.post_fcnet_activation, config, "post_fcnet"),
    ]
    if num_outputs is None:
        return Plan(inputs, hidden, None, 0, shared.vf_share_layers, hidden[-1].size if hidden else inputs)
    trained = num_outputs // 2 if shared.free_log_std else 0
    if shared.free_log_std and num_outputs % 2:
        raise ConfigError(
            f"free_log_std needs an even number of outputs (means and log standard deviations), found {num_outputs}."
        )
    computed = num_outputs - trained
    if shared.no_final_linear and hidden:
        # The last hidden layer is the output: as wide as asked for, with its activation and initialisers.
        last = hidden.pop()
        logits = DenseSpec(computed, last.activation, last.weights, last.weights_config, last.bias, last.bias_config)
    else:
        logits = output_spec(computed)
    return Plan(inputs, hidden, logits, trained, shared.vf_share_layers, num_outputs)
