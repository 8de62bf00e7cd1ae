"""Plugin declarations: the observations that the complex-input network supports, and the nets for
their parts.
"""

from __future__ import annotations

from typing import Any

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl
from rlcatalog.plugins import OUTPUT_KEYS


def match(request: Request) -> Match:
    """Match Dict and Tuple observations that contain an image, and lists whose items contain ids to
    embed.
    """
    if request.encoded_shape is None:
        return Match(
            rank=None,
            why="takes encoded observations; pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space",
        )
    items = request.embedded_items
    if items:
        return Match(Rank.SPECIFIC, f"embeds the ids of {items[0].path} in one item after another")
    objection = _why_others_are_better(request)
    if objection is None:
        images = request.images
        return Match(
            Rank.GENERIC, f"gives the image {images[0].path} and each other part a separate net"
        )
    if request.is_named:
        return Match(Rank.FALLBACK, "works for any encoded observation")
    return Match(rank=None, why=objection)


def _why_others_are_better(request: Request) -> str | None:
    """Return why another model should read an encoded observation, although this one can; None if
    this one is made for it.
    """
    if not request.obs.is_composite:
        return f"takes Dict and Tuple observations; this is a {request.obs.kind}"
    if not request.sees_parts:
        return (
            "takes the parts of an observation; the preprocessor makes one array of"
            f" {request.obs.path}"
        )
    if not request.images:
        return "no part of the observation is an image, so one net for all parts is enough"
    return None


def describe(request: Request) -> list[Stage]:
    """Return each part with its net's stages, followed by the stages that all parts share."""
    from rlcatalog_complex_input.description import stages

    return stages(request)


def pinned_keys(request: Request) -> dict[str, dict[str, Any]]:
    """Return the nets, keyed by the paths of their parts."""
    from rlcatalog_complex_input.description import plan_of

    plan = plan_of(request)
    nets = () if plan is None else plan.nets
    return {"input_nets": {net.part.path: net.pin for net in nets}}


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="complex_input",
            targets={
                "torch": "rlcatalog_complex_input.torch:ComplexInputNetwork",
                "tf": "rlcatalog_complex_input.tf:ComplexInputNetwork",
            },
            summary="one net for each part of a Dict or Tuple observation with images, and"
            " concatenated features",
            match=match,
            describe=describe,
            dense_layers=("post_fcnet",),
            pinned_keys=pinned_keys,
            config="rlcatalog_complex_input.config:ComplexInputConfig",
            examples="rlcatalog_complex_input.examples:examples",
            reads=("scale_integers", "embeddings", *OUTPUT_KEYS),
        )
    ]
