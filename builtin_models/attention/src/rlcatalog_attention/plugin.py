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
    from rlcatalog_attention.config import plan

    own, outputs = plan(request.config, request.num_outputs)
    past = PastInputs.of(
        request.action, own.attention_use_n_prev_actions, own.attention_use_n_prev_rewards
    )
    stages = []
    if past.width:
        width = None if request.trunk_width is None else (request.trunk_width + past.width,)
        stages.append(
            Stage(f"features, {past.actions} past actions, {past.rewards} past rewards", width, 0)
        )
    first, *units = _units((request.trunk_width or 0) + past.width, own)
    return [
        *stages,
        replace(first, whole=request.trunk_width is not None),
        *units,
        *outputs.stages(),
    ]


def describe_net(request: Request) -> list[Stage]:
    """Return the stages of the standalone transformer, whose sizes are keyword arguments."""
    from rlcatalog_attention.config import net_plan, sizes_of

    own, outputs = net_plan(
        request.config, request.num_outputs, sizes_of(request.config["custom_model_config"])
    )
    return [*_units(request.encoded_size, own), *outputs.stages()]


def _units(inputs: int, own: AttentionConfig) -> list[Stage]:
    dim = own.attention_dim
    name = f"({own.attention_num_heads} x {own.attention_head_dim})"
    units = range(1, own.attention_num_transformer_units + 1)
    return [
        Stage("input (linear)", (dim,), (inputs + 1) * dim),
        *(Stage(f"unit {i} {name}", (dim,), own.unit_weights) for i in units),
    ]


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
            reads=("free_log_std", "max_seq_len"),
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
            reads=("free_log_std", "max_seq_len"),
            examples="rlcatalog_attention.examples:net_examples",
        ),
    ]
