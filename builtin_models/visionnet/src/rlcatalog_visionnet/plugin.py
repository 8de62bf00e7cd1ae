"""Plugin declarations: the observations that the convolutional network supports, and its stages."""

from __future__ import annotations

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl
from rlcatalog.plugins import OUTPUT_KEYS
from rlcatalog.spaces import read_layout


def match(request: Request) -> Match:
    """Match images only."""
    shape = request.encoded_shape
    if shape is None:
        why = (
            "takes encoded images; pass"
            " ModelCatalog.get_preprocessor_for_space(space).observation_space"
        )
        return Match(rank=None, why=why)
    if not request.is_image:
        return Match(rank=None, why=_why_no_image(request))
    layout = read_layout(shape, request.config.get("image_layout"))
    return Match(Rank.GENERIC, f"the encoded observation is an image {shape}, read as {layout}")


def _why_no_image(request: Request) -> str:
    """Return why a model does not see the observation as an image or a stack of images."""
    was_image = bool(request.images) and not request.obs.is_composite
    if was_image:
        return (
            f"takes images; the preprocessor encodes {request.obs.path} with shape"
            f" {request.encoded_shape}"
        )
    return (
        "takes images, Boxes of rank 3, and stacks of images, uint8 Boxes of rank 4;"
        f" {request.obs.path} is {request.obs.describe()}"
    )


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog_visionnet.convolutions import ConvSpec, PoolSpec
    from rlcatalog_visionnet.plan import plan_layers

    network = plan_layers(request.config, request.encoded_shape, request.num_outputs)
    stages: list[Stage] = []
    convs = 0
    for layer in network.layers:
        if isinstance(layer, ConvSpec):
            convs += 1
            name = f"conv {convs} ({layer.label})"
        elif isinstance(layer, PoolSpec):
            name = "max pool (3x3/2 same)"
        else:
            convs += 2  # a residual block has two
            name = f"residual: conv {convs - 1}, conv {convs} ({layer.second.label})"
        height, width = layer.size
        shape = (height, width, layer.channels)
        if network.layout.channels_first:
            shape = (layer.channels, height, width)
        stages.append(Stage(name, shape, layer.weight_count))
    stages.append(Stage("features", (network.output.num_inputs,), weights=0))
    stages = network.output.stages(before=stages)
    if network.logits is not None:
        # The last stage is the logits; here a convolution takes the place of its linear layer.
        weights = network.logits.weight_count + network.output.free_log_std
        stages[-1] = Stage(f"logits ({network.logits.label})", stages[-1].shape, weights)
    return stages


def keys_without_effect(request: Request) -> dict[str, str]:
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
            dense_layers=("post_fcnet",),
            ignores=keys_without_effect,
            config="rlcatalog_visionnet.config:VisionnetConfig",
            examples="rlcatalog_visionnet.examples:examples",
            reads=("image_layout", "scale_integers", *OUTPUT_KEYS),
        )
    ]
