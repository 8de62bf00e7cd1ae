"""Plugin declarations: the observations that the convolutional network supports, and its stages."""

from __future__ import annotations

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl
from rlcatalog.plugins import OUTPUT_KEYS
from rlcatalog.spaces import read_layout


def match(request: Request) -> Match:
    """Match images only."""
    if (shape := request.encoded_shape) is None:
        why = (
            "takes encoded images; pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space"
        )
        return Match(None, why)
    if not request.is_image:
        if request.images and not request.obs.is_composite:
            why = f"takes images; the preprocessor encodes {request.obs.path} with shape {shape}"
            return Match(None, why)
        return Match(
            None,
            "takes images, Boxes of rank 3, and stacks of images, uint8 Boxes of rank 4;"
            f" {request.obs.path} is {request.obs.describe()}",
        )
    layout = read_layout(shape, request.config.get("image_layout"))
    return Match(Rank.GENERIC, f"the encoded observation is an image {shape}, read as {layout}")


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog_visionnet.convolutions import ConvSpec, PoolSpec
    from rlcatalog_visionnet.plan import plan

    layers = plan(request.config, request.encoded_shape, request.num_outputs)
    stages: list[Stage] = []
    convs = 0
    for layer in layers.layers:
        if isinstance(layer, ConvSpec):
            convs += 1
            name = f"conv {convs} ({layer.label})"
        elif isinstance(layer, PoolSpec):
            name = "max pool (3x3/2 same)"
        else:
            convs += 2
            name = f"residual: conv {convs - 1}, conv {convs} ({layer.second.label})"
        shape = (
            (layer.channels, *layer.size)
            if layers.layout.channels_first
            else (*layer.size, layer.channels)
        )
        stages.append(Stage(name, shape, layer.weight_count))
    found = layers.output.stages(before=[*stages, Stage("features", (layers.output.inputs,), 0)])
    if layers.logits is not None:
        weights = layers.logits.weight_count + layers.output.free_log_std
        found[-1] = Stage(f"logits ({layers.logits.label})", found[-1].shape, weights)
    return found


def ignores(request: Request) -> dict[str, str]:
    """Return the keys without effect: a given factor replaces the scaling by bounds."""
    if request.config["image_scale"] is None:
        return {}
    return {"scale_integers": "image_scale=None"}


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="visionnet",
            targets={
                "torch": "rlcatalog_visionnet.torch:VisionNetwork",
                "tf": "rlcatalog_visionnet.tf:VisionNetwork",
            },
            summary="convolutions for images and stacks of images: nature, impala, RLlib's lists,"
            " or a derived list for other sizes",
            match=match,
            describe=describe,
            ignores=ignores,
            config="rlcatalog_visionnet.config:VisionnetConfig",
            examples="rlcatalog_visionnet.examples:examples",
            reads=("image_layout", "scale_integers", *OUTPUT_KEYS),
        )
    ]
