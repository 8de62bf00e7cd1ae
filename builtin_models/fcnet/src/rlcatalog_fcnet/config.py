"""Config keys for the fully connected network, and the layers that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog import Stage
from rlcatalog.config import (
    InitConfig,
    NameOrCallable,
    activation_name,
    read_config,
    read_initializers,
)
from rlcatalog.models import DensePlan, dense_specs, plan_dense_layers, post_fcnet
from rlcatalog.observations import EmbeddedVector


def _two_layers() -> list[int]:
    """Return the default widths, as in RLlib."""
    return [256, 256]


class FcnetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the fully connected network."""

    fcnet_hiddens: Annotated[
        list[Annotated[int, Meta(ge=1)]], Meta(description="widths of the hidden layers")
    ] = msgspec.field(default_factory=_two_layers)
    fcnet_activation: Annotated[
        NameOrCallable, Meta(description="activation of the hidden layers")
    ] = "tanh"
    fcnet_weights_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the hidden layers' weights")
    ] = None
    fcnet_weights_initializer_config: InitConfig = None
    fcnet_bias_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the hidden layers' biases")
    ] = None
    fcnet_bias_initializer_config: InitConfig = None

    def __post_init__(self) -> None:
        activation_name(self.fcnet_activation, "fcnet_activation")
        read_initializers(partial(getattr, self), "fcnet", "weights", "bias")


def plan_layers(config: Mapping[str, Any], num_inputs: int, num_outputs: int | None) -> DensePlan:
    """Read the layers from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        num_inputs: Width of the flattened observation.
        num_outputs: Width of the output, or None for a trunk.

    Raises:
        ConfigError: `free_log_std` is set although the number of outputs is odd.
    """
    own = read_config(config, FcnetConfig)
    hidden = dense_specs(own.fcnet_hiddens, own.fcnet_activation, config, "fcnet")
    return plan_dense_layers(config, num_inputs, hidden + post_fcnet(config), num_outputs)


def embedding_stages(vector: EmbeddedVector | None) -> list[Stage]:
    """Return a stage for each leaf whose ids are looked up in a table.

    Args:
        vector: How the observations are embedded, or None.
    """
    if vector is None:
        return []
    stages = []
    for leaf in vector.leaves:
        name = f"embedding of {leaf.path} (table of {leaf.rows:,} x {leaf.size})"
        stages.append(Stage(name, (leaf.width,), weights=leaf.rows * leaf.size))
    return stages
