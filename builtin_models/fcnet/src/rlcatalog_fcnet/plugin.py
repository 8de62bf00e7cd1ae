"""Plugin declarations: the observations that the fully connected network supports,
and its stages.
"""

from __future__ import annotations

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl
from rlcatalog.plugins import OUTPUT_KEYS


def match(request: Request) -> Match:
    """Return how well the network fits: well for vectors, but only as a fallback for images."""
    if request.encoded_shape is None:
        return Match(
            rank=None,
            why="takes encoded observations; pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space",
        )
    items = request.embedded_items
    if items:
        return Match(
            rank=None,
            why=f"reads all items of a list at once; the ids of {items[0].path} need a net that"
            " reads them one by one",
        )
    image = _first_image(request)
    if image is not None:
        return Match(
            Rank.FALLBACK, f"flattens the image {image}; a vision net would see its neighbourhoods"
        )
    num_axes = len(request.encoded_shape)
    if num_axes > 2:
        return Match(Rank.FALLBACK, f"flattens the rank-{num_axes} observation")
    return Match(
        Rank.GENERIC, f"the encoded observation is a vector of {request.encoded_size} values"
    )


def _first_image(request: Request) -> str | None:
    """Return the path of the first image that a model sees; None if it sees none."""
    if request.sees_parts:
        paths = [node.path for node in request.images]
        return paths[0] if paths else None
    return request.obs.path if request.is_image else None


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog.observations import vector_of
    from rlcatalog_fcnet.config import embedding_stages, plan_layers

    width = request.encoded_size
    vector = None
    if request.preprocessor is not None:
        vector = vector_of(request.preprocessor, request.config["embeddings"])
    if vector is not None:
        width = vector.width
    layers = plan_layers(request.config, width, request.num_outputs)
    before = embedding_stages(vector)
    if layers.logits is None and not layers.hidden:
        before.append(Stage("features", (width,), weights=0))
    return layers.stages(before=before)


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="fcnet",
            targets={
                "torch": "rlcatalog_fcnet.torch:FullyConnectedNetwork",
                "tf": "rlcatalog_fcnet.tf:FullyConnectedNetwork",
            },
            summary="fully connected layers for vectors and flattened Dict/Tuple observations",
            match=match,
            describe=describe,
            dense_layers=("fcnet", "post_fcnet"),
            config="rlcatalog_fcnet.config:FcnetConfig",
            reads=("scale_integers", "embeddings", *OUTPUT_KEYS),
            examples="rlcatalog_fcnet.examples:examples",
        )
    ]
