"""Layers of the convolutional network, read from its config keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlcatalog.config import KernelConfig, activation_name, read_config, read_initializers
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.models import DenseSpec, OutputPlan, output_plan, post_fcnet
from rlcatalog.spaces import ImageLayout, read_layout
from rlcatalog_visionnet import convolutions
from rlcatalog_visionnet.config import Filter, Pair, VisionnetConfig, read_filters
from rlcatalog_visionnet.convolutions import ConvSpec, LayerSpec, PoolSpec, ResidualSpec, by


@dataclass(frozen=True)
class ImagePlan:
    """Plan of a network.

    Attributes:
        layout: Meaning of the image's axes.
        layers: Convolutions, pooling layers and residual blocks, in order.
        activation: The activation after the last layer; `"linear"` if the last layer includes one.
        output: The dense layers, the logits and the value, which read height x width x channels
            values in this order.
        logits: The convolution that replaces the logits layer (`no_final_linear`), or None.
    """

    layout: ImageLayout
    layers: list[LayerSpec]
    activation: Any
    output: OutputPlan
    logits: ConvSpec | None = None


def plan(
    config: Mapping[str, Any], shape: Sequence[int] | None, num_outputs: int | None
) -> ImagePlan:
    """Read the layers from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        shape: Shape of one image, or of a stack of images.
        num_outputs: Width of the output, or None for a trunk.

    Raises:
        ConfigError: The convolutions do not fit the image or do not reduce it to 1x1, or
            `no_final_linear` finds no layer to resize.
        UnsupportedSpaceError: The shape does not belong to an image.
    """
    if shape is None or len(shape) not in (3, 4) or min(shape) < 1:
        raise UnsupportedSpaceError(
            "visionnet needs images, that is, encoded observations of rank 3 (height, width,"
            " channels), or stacks of images of rank 4; found"
            f" {'no Box' if shape is None else f'shape {tuple(shape)}'}. Use fcnet, or reshape the"
            " observation in an environment wrapper."
        )
    own = read_config(config, VisionnetConfig)
    layout = read_layout(shape, read_config(config, KernelConfig).image_layout)
    height, width, channels = layout.size(shape)
    layers, activation, dense = _layers(own, (height, width), channels)
    dense += post_fcnet(config)
    last, logits = layers[-1], None
    if num_outputs is not None and not dense and read_config(config, KernelConfig).no_final_linear:
        if not isinstance(last, ConvSpec) or last.size != (1, 1):
            raise ConfigError(
                "no_final_linear makes the last layer the output, but the output of the last"
                f" convolution is {by((*last.size, last.channels))} instead of 1x1. Add"
                " post_fcnet_hiddens, or convolutions that reduce the image to 1x1."
            )
        logits, layers = last, layers[:-1]
    rows, columns, maps = (
        (*layers[-1].size, layers[-1].channels) if layers else (height, width, channels)
    )
    output = output_plan(config, rows * columns * maps, dense, num_outputs)
    if logits is not None and num_outputs is not None:
        logits = replace(logits, channels=num_outputs - output.free_log_std)
    return ImagePlan(layout, layers, activation, output, logits)


def _layers(
    own: VisionnetConfig, size: Pair, channels: int
) -> tuple[list[LayerSpec], Any, list[DenseSpec]]:
    """Return the convolutions, the activation after the last one, and the preset's dense layer, if
    any.
    """
    options, filters, padding = _options(own), read_filters(own.conv_filters), own.conv_padding
    # Its dense layer is initialised like its convolutions.
    preset = {"weights": "xavier_uniform", **options}
    if filters == "impala":
        return (
            _impala(size, channels, options),
            options["activation"],
            [DenseSpec(convolutions.IMPALA_DENSE, **preset)],
        )
    flatten, dense = own.conv_flatten, []
    if filters == "nature":
        filters, padding, flatten = convolutions.NATURE, "valid", True
        dense = [DenseSpec(convolutions.NATURE_DENSE, **preset)]
    elif filters is None:
        # RLlib's lists are for RLlib's padding; for other paddings the rule derives a list.
        by_size = convolutions.BY_SIZE.get(size) if padding is None else None
        filters, flatten = (
            by_size or convolutions.derived(size, padding),
            flatten or by_size is not None,
        )
    assert not isinstance(filters, str)
    convs = convolutions.lay_out(filters, size, channels, padding, options)
    _check(convs, filters, (*size, channels), padding, flatten, own.conv_filters)
    return list(convs), "linear", dense


def _options(own: VisionnetConfig) -> dict[str, Any]:
    """Return the activation and the initialisers as arguments of `ConvSpec`."""
    options: dict[str, Any] = {
        "activation": activation_name(own.conv_activation, "conv_activation")
    }
    for kind, (name, arguments) in read_initializers(
        partial(getattr, own), "conv", "kernel", "bias"
    ).items():
        field = "weights" if kind == "kernel" else kind
        options |= {field: name, f"{field}_config": arguments}
    return options


def _impala(size: Pair, channels: int, options: Mapping[str, Any]) -> list[LayerSpec]:
    """Return the residual net's sections, each with a convolution, a pooling layer and two residual
    blocks.
    """
    layers: list[LayerSpec] = []
    for outputs in convolutions.IMPALA:
        conv = ConvSpec(
            channels, outputs, (3, 3), (1, 1), "same", size, **{**options, "activation": "linear"}
        )
        layers += [conv, PoolSpec(outputs, size)]
        channels, size = outputs, layers[-1].size
        second = replace(conv, inputs=channels, size_in=size)
        first = replace(second, activation=options["activation"])
        layers += [ResidualSpec(options["activation"], first, second)] * convolutions.IMPALA_BLOCKS
    return layers


def _check(
    convs: list[ConvSpec],
    filters: list[Filter],
    image: tuple[int, int, int],
    padding: str | None,
    flatten: bool,
    asked: Any,
) -> None:
    """Raise an error unless each kernel fits and, if the output is not flattened, it is 1x1."""
    last = convs[-1]
    if min(last.size) >= 1 and (flatten or last.size == (1, 1)):
        return
    steps = [
        f"conv {i} ({c.label}) {by((*c.size, c.channels))}"
        for i, c in enumerate(convs, 1)
        if min(c.size) >= 1
    ]
    if min(last.size) < 1:
        what = f"kernel {by(last.kernel)} of conv {len(convs)} does not fit into {by(last.size_in)}"
    else:
        what = f"the output of the last convolution is {by(last.size)} instead of 1x1"
    name, works = "this list", convolutions.working_list(filters, image[:2], padding)
    if isinstance(asked, str):
        name, works = f"the preset {asked!r}", convolutions.derived(image[:2], None)
    advice = "" if min(last.size) < 1 else " Or set conv_flatten=True."
    raise ConfigError(
        f"config key 'conv_filters': {name} does not fit images of size {by(image)}: {what}. Layer"
        f" by layer: {' -> '.join([f'image {by(image)}', *steps])}. This list fits:"
        f" {convolutions.as_config(works)}.{advice}"
    )
