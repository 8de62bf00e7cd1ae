"""Plugin declarations: when a transformer follows the trunk, and its stages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlcatalog import ModelSpec, Request, Stage, hookimpl

if TYPE_CHECKING:
    from rlcatalog_attention.config import AttentionConfig


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog.models import PastInputs
    from rlcatalog_attention.config import plan_layers

    layers = plan_layers(request.config, request.num_outputs)
    sizes = layers.sizes
    past = PastInputs.of(
        request.action, sizes.attention_use_n_prev_actions, sizes.attention_use_n_prev_rewards
    )
    # The width of a custom trunk is known only once it is built.
    is_width_known = request.trunk_width is not None
    inputs = (request.trunk_width or 0) + past.width
    stages = []
    if past.width:
        name = f"features, {past.actions} past actions, {past.rewards} past rewards"
        shape = (inputs,) if is_width_known else None
        stages.append(Stage(name, shape, weights=0))
    input_layer, *units = _units(inputs, sizes)
    # Without the trunk's width, its count of weights is only a lower bound.
    stages.append(replace(input_layer, whole=is_width_known))
    return [*stages, *units, *layers.last_layers.stages()]


def describe_net(request: Request) -> list[Stage]:
    """Return the stages of the standalone transformer, whose sizes are keyword arguments."""
    from rlcatalog_attention.config import net_plan, sizes_of

    sizes = sizes_of(request.config["custom_model_config"])
    layers = net_plan(request.config, request.num_outputs, sizes)
    return [*_units(request.encoded_size, layers.sizes), *layers.last_layers.stages()]


def _units(inputs: int, sizes: AttentionConfig) -> list[Stage]:
    """Return the stages of the linear layer for inputs of this width, and of the units after it."""
    dim = sizes.attention_dim
    stages = [Stage("input (linear)", (dim,), (inputs + 1) * dim)]
    heads = f"({sizes.attention_num_heads} x {sizes.attention_head_dim})"
    for i in range(1, sizes.attention_num_transformer_units + 1):
        stages.append(Stage(f"unit {i} {heads}", (dim,), sizes.unit_weights))
    return stages


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="attention",
            targets={
                "torch": "rlcatalog_attention.torch:AttentionWrapper",
                "tf": "rlcatalog_attention.tf:AttentionWrapper",
            },
            summary="gated transformer (GTrXL) over the last steps, after any trunk",
            slot="memory",
            switch="use_attention",
            describe=describe,
            config="rlcatalog_attention.config:AttentionConfig",
            reads=("init", "free_log_std", "max_seq_len"),
            examples="rlcatalog_attention.examples:examples",
        ),
        # Its sizes are keyword arguments: {"custom_model": "gtrxl", "custom_model_config":
        # {"num_heads": 4}}.
        ModelSpec(
            name="gtrxl",
            targets={
                "torch": "rlcatalog_attention.torch:GTrXLNet",
                "tf": "rlcatalog_attention.tf:GTrXLNet",
            },
            summary="the standalone gated transformer, on encoded observations",
            describe=describe_net,
            reads=("init", "free_log_std", "max_seq_len"),
            examples="rlcatalog_attention.examples:net_examples",
        ),
    ]
