"""Config keys for the attention models, and helpers for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError
from rlcatalog.models import DensePlan, DenseSpec, memory_outputs

Size = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]

#: Maximum number of values in the memory of one episode; larger memories are assumed to be
#: mistakes.
MOST_MEMORY_NUMBERS = 1 << 26

#: Added to the variance in every layer normalisation, the same in both frameworks.
EPSILON = 1e-5


class AttentionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the gated transformer."""

    use_attention: Annotated[
        bool, Meta(description="put a gated transformer (GTrXL) after the trunk")
    ] = False
    attention_num_transformer_units: Annotated[
        Size, Meta(description="number of transformer units")
    ] = 1
    attention_dim: Annotated[Size, Meta(description="width of the units")] = 64
    attention_num_heads: Annotated[Size, Meta(description="number of attention heads")] = 1
    attention_head_dim: Annotated[Size, Meta(description="width of one head")] = 32
    attention_memory_inference: Annotated[
        Count, Meta(description="number of past steps visible when acting")
    ] = 50
    attention_memory_training: Annotated[
        Count, Meta(description="number of past steps visible in training")
    ] = 50
    attention_position_wise_mlp_dim: Annotated[
        Size, Meta(description="width of the hidden dense layer inside a unit")
    ] = 32
    attention_init_gru_gate_bias: Annotated[
        float, Meta(description="initial bias of the gates; larger means closer to the identity")
    ] = 2.0
    attention_use_n_prev_actions: Annotated[
        Count, Meta(description="number of previous actions visible to the units")
    ] = 0
    attention_use_n_prev_rewards: Annotated[
        Count, Meta(description="number of previous rewards visible to the units")
    ] = 0

    @property
    def unit_weights(self) -> int:
        """Number of weights in one unit: attention, dense layers, two gates and two layer
        normalisations.
        """
        dim = self.attention_dim
        inner = self.attention_num_heads * self.attention_head_dim  # width of all heads
        mlp = self.attention_position_wise_mlp_dim
        # Query, key, value, position and output, and the biases for content and position.
        attention = 5 * dim * inner + 2 * inner
        dense_layers = dim * mlp + mlp + mlp * dim + dim
        # Reset, update and candidate, each with a matrix for either input; one bias.
        gate = 6 * dim * dim + dim
        norm = 2 * dim  # scale and offset
        return attention + dense_layers + 2 * gate + 2 * norm

    @property
    def slots(self) -> int:
        """Number of past steps to keep in memory, enough for both acting and training."""
        return max(self.attention_memory_inference, self.attention_memory_training)

    def window(self, training: bool) -> int:
        """Return the number of past steps that are visible to each step."""
        return self.attention_memory_training if training else self.attention_memory_inference

    @property
    def input(self) -> DenseSpec:
        """The linear layer before the units."""
        return DenseSpec(self.attention_dim, weights="xavier_uniform")

    @property
    def mlp(self) -> list[DenseSpec]:
        """The dense layers inside each unit."""
        widths = (self.attention_position_wise_mlp_dim, self.attention_dim)
        return [DenseSpec(width, "relu", weights="xavier_uniform") for width in widths]


def sizes_of(options: Mapping[str, Any]) -> AttentionConfig:
    """Return the sizes of the standalone transformer from its keyword arguments; ignore other
    arguments.
    """
    sizes: dict[str, Any] = {"attention_num_heads": 2}
    for name, value in options.items():
        key = f"attention_{name.removeprefix('attention_')}"
        if key in AttentionConfig.__struct_fields__:
            sizes[key] = value
    return AttentionConfig(**sizes)


class AttentionPlan(NamedTuple):
    """The transformer's sizes, and the layers after it."""

    sizes: AttentionConfig
    last_layers: DensePlan


def _check_memory(sizes: AttentionConfig) -> None:
    """Raise an error if these sizes need far too much memory."""
    units = sizes.attention_num_transformer_units
    # A pass holds the past steps and the current one.
    numbers = units * (sizes.slots + 1) * sizes.attention_dim
    if numbers > MOST_MEMORY_NUMBERS:
        raise ConfigError(
            f"attention_num_transformer_units={units} with {sizes.slots} past steps of"
            f" attention_dim={sizes.attention_dim}: one episode's memory would hold {numbers}"
            f" numbers; the limit is {MOST_MEMORY_NUMBERS}. Use fewer units, or reduce"
            " attention_memory_inference and attention_memory_training."
        )


def plan_layers(config: Mapping[str, Any], num_outputs: int | None) -> AttentionPlan:
    """Read the sizes of the transformer around a trunk, and its last layers, from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        num_outputs: Width of the model's output, or None for a trunk.

    Raises:
        ConfigError: The config sets a key that a memory does not support; see
            `rlcatalog.models.memory_outputs`.
    """
    sizes = read_config(config, AttentionConfig)
    _check_memory(sizes)
    last_layers = memory_outputs(config, sizes.attention_dim, num_outputs, "use_attention")
    return AttentionPlan(sizes, last_layers)


def net_plan(
    config: Mapping[str, Any], num_outputs: int | None, sizes: AttentionConfig
) -> AttentionPlan:
    """Check the sizes of the standalone transformer, and read its last layers.

    Args:
        config: The flat model config, which only determines the last layers.
        num_outputs: Width of the model's output, or None for a trunk.
        sizes: The transformer's sizes, as passed by the caller.

    Raises:
        ConfigError: A size is out of range, or the model does not support a config key.
    """
    if read_config(config, KernelConfig).post_fcnet_hiddens:
        raise ConfigError(
            "GTrXLNet does not support post_fcnet_hiddens: it has no dense layers before the"
            " units. Remove post_fcnet_hiddens, or set use_attention, which places these layers"
            " between the trunk and the units."
        )
    # The caller's constructor of the struct did not check the values; `read_config` does.
    sizes = read_config(msgspec.structs.asdict(sizes), AttentionConfig)
    _check_memory(sizes)
    last_layers = memory_outputs(config, sizes.attention_dim, num_outputs, "GTrXLNet")
    return AttentionPlan(sizes, last_layers)


def distances(slots: int, width: int) -> np.ndarray[Any, Any]:
    """Return sinusoids for the distances `slots`, …, 1, 0: `[slots + 1, width]`, float32.

    Column k < width / 2 is sin(distance · 10000^(-2k / width)); the other half contains the cosines
    (Dai et al. 2019). If the width is odd, the last cosine is omitted.
    """
    steps_back = np.arange(slots, -1, -1.0)[:, None]
    angles = steps_back * 10000.0 ** (-np.arange(0, width, 2) / width)
    sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return sinusoids[:, :width].astype(np.float32)
