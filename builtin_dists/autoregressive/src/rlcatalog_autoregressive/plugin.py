"""Plugin declarations for the distribution and its head, which one key enables together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rlcatalog import ActionDistSpec, Match, ModelSpec, Rank, Request, SpaceInfo, Stage, hookimpl

_CONFIG = "rlcatalog_autoregressive.config:AutoregressiveConfig"


def match(request: Request) -> Match:
    """Match if the config makes an action's parts depend on one another."""
    if request.config["use_autoregressive"]:
        return Match(Rank.SPECIFIC, "use_autoregressive is set")
    if _is_named_in(request.config["custom_action_dist"]):
        return Match(Rank.SPECIFIC, "custom_action_dist names it")
    return Match(rank=None, why="use_autoregressive is not set")


def _is_named_in(custom_action_dist: Any) -> bool:
    """Return whether the value of `custom_action_dist` names the distribution for whole actions."""
    name = custom_action_dist
    if isinstance(custom_action_dist, Mapping):
        name = custom_action_dist.get("action")
    return name in ("autoregressive", "rlcatalog-autoregressive/autoregressive")


def match_dist(request: Request) -> Match:
    """Match the whole action space; each of its parts gets a separate distribution."""
    if request.action is None or request.action.path != "action":
        return Match(rank=None, why="takes whole actions")
    return match(request)


def size(action: SpaceInfo, config: Mapping[str, Any], independent: int = 0) -> int:
    """Return the number of model outputs: those for independent parts, plus one per unit of the
    first hidden layer.

    Args:
        action: The action space.
        config: The model config.
        independent: Number of inputs of the underlying distribution.
    """
    from rlcatalog_autoregressive.config import hidden_widths

    return independent + hidden_widths(action, config)[0]


def describe(request: Request) -> list[Stage]:
    """Return the head's stages and their shapes."""
    from rlcatalog.actions import action_codec
    from rlcatalog_autoregressive.config import check_last_layers, hidden_widths

    check_last_layers(request.config)
    trunk_width = request.trunk_width
    if request.num_outputs is None or request.action is None:
        shape = None if trunk_width is None else (trunk_width,)
        return [Stage("features", shape, weights=0)]
    # The width of a custom trunk is known only once it is built.
    is_width_known = trunk_width is not None
    features = trunk_width or 0
    # One weight for each feature, and a bias.
    stages = [Stage("value", (), features + 1, whole=is_width_known)]
    widths = hidden_widths(request.action, request.config)
    codec = action_codec(request.action)
    # The first layer has no bias, because the context is added to it.
    weights = [widths[0] * codec.input_width]
    for inputs, outputs in pairwise(widths):
        weights.append((inputs + 1) * outputs)
    for i, (width, count) in enumerate(zip(widths, weights, strict=True), 1):
        stages.append(Stage(f"hidden {i} of the conditionals, masked", (width,), count))
    # The outputs are the independent parts' logits and the context, which is as wide as the first
    # layer. Another distribution may have fewer outputs; building the head then fails.
    independent = max(request.num_outputs - widths[0], 0)
    stages.append(Stage("changes of the logits, masked", (independent,), independent * widths[-1]))
    logits = Stage(
        f"logits of {len(codec.paths)} parts, and context",
        (request.num_outputs,),
        (features + 1) * request.num_outputs,
        whole=is_width_known,
    )
    return [*stages, logits]


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="autoregressive",
            targets={
                "torch": "rlcatalog_autoregressive.torch:AutoregressiveDistribution",
                "tf": "rlcatalog_autoregressive.tf:AutoregressiveDistribution",
            },
            summary="actions whose parts depend on earlier parts, built on the parts' own"
            " distributions",
            match=match_dist,
            size=size,
            wraps_default=True,
            config=_CONFIG,
            examples="rlcatalog_autoregressive.examples:examples",
        )
    ]


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="autoregressive",
            targets={
                "torch": "rlcatalog_autoregressive.torch:AutoregressiveModel",
                "tf": "rlcatalog_autoregressive.tf:AutoregressiveModel",
            },
            summary="a head with masked weights (MADE) around any trunk or memory, for actions"
            " with several parts",
            slot="head",
            switch="use_autoregressive",
            match=match,
            describe=describe,
            config=_CONFIG,
            reads=("init", "vf_share_layers"),
            examples="rlcatalog_autoregressive.examples:examples",
        )
    ]
