"""Layers of the convolutional network, read from its config keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from rlcatalog.config import (
    InitRecipe,
    KernelConfig,
    activation_name,
    read_config,
    read_initializers,
)
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.models import DensePlan, DenseSpec, init_recipe, plan_dense_layers, post_fcnet
from rlcatalog.spaces import ImageLayout, read_layout
from rlcatalog_visionnet import convolutions
from rlcatalog_visionnet.config import Filter, Pair, VisionnetConfig, read_filters
from rlcatalog_visionnet.convolutions import (
    ConvSpec,
    LayerSpec,
    PoolSpec,
    ResidualSpec,
    format_size,
)


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
    output: DensePlan
    logits: ConvSpec | None = None


class ConvList(NamedTuple):
    """List of convolutions, and how it is applied.

    Attributes:
        filters: The list.
        padding: Padding of all layers; None means RLlib's rule, see `convolutions.lay_out`.
        flatten: Whether the output may be larger than 1x1.
    """

    filters: list[Filter]
    padding: str | None
    flatten: bool


class Body(NamedTuple):
    """Layers that the key `conv_filters` sets.

    Attributes:
        layers: Convolutions, pooling layers and residual blocks, in order.
        activation: The activation after the last of them.
        dense: The preset's dense layer, if any.
    """

    layers: list[LayerSpec]
    activation: Any
    dense: list[DenseSpec]


def plan_layers(
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
    shape = _check_shape(shape)
    settings = read_config(config, VisionnetConfig)
    shared = read_config(config, KernelConfig)
    layout = read_layout(shape, shared.image_layout)
    height, width, channels = layout.size(shape)
    body = _read_body(settings, (height, width), channels, init_recipe(config))
    layers = body.layers
    dense = [*body.dense, *post_fcnet(config)]
    logits = None
    if num_outputs is not None and shared.no_final_linear and not dense:
        # Then the last convolution makes the logits.
        logits = _output_convolution(layers[-1])
        layers = layers[:-1]
    if layers:
        height, width = layers[-1].size
        channels = layers[-1].channels
    output = plan_dense_layers(
        config, num_inputs=height * width * channels, hidden=dense, num_outputs=num_outputs
    )
    if logits is not None and num_outputs is not None:
        # With `free_log_std`, weights apart make some of the outputs.
        logits = replace(logits, channels=num_outputs - output.free_log_std)
    return ImagePlan(layout, layers, body.activation, output, logits=logits)


def _check_shape(shape: Sequence[int] | None) -> Sequence[int]:
    """Return the shape, or raise an error if it does not belong to an image."""
    if shape is not None and len(shape) in (3, 4) and min(shape) >= 1:
        return shape
    found = "no Box" if shape is None else f"shape {tuple(shape)}"
    raise UnsupportedSpaceError(
        "visionnet needs images, that is, encoded observations of rank 3 (height, width,"
        f" channels), or stacks of images of rank 4; found {found}. Use fcnet, or reshape the"
        " observation in an environment wrapper."
    )


def _output_convolution(last: LayerSpec) -> ConvSpec:
    """Return the last layer, which becomes the output, or raise an error if that is impossible."""
    if isinstance(last, ConvSpec) and last.size == (1, 1):
        return last
    raise ConfigError(
        "no_final_linear makes the last layer the output, but the output of the last convolution"
        f" is {format_size((*last.size, last.channels))} instead of 1x1. Add post_fcnet_hiddens,"
        " or convolutions that reduce the image to 1x1."
    )


def _read_body(settings: VisionnetConfig, size: Pair, channels: int, recipe: InitRecipe) -> Body:
    """Return the layers that the key `conv_filters` sets for an image."""
    # Activation and initialisers. A preset's dense layer is initialised like its convolutions.
    options = _layer_options(settings, recipe)
    preset = read_filters(settings.conv_filters)
    if preset == "impala":
        layers = _impala(size, channels, options)
        dense = [DenseSpec(convolutions.IMPALA_DENSE, **options)]
        return Body(layers, activation=options["activation"], dense=dense)
    dense = []
    if preset == "nature":
        dense = [DenseSpec(convolutions.NATURE_DENSE, **options)]
    conv_list = _choose_conv_list(settings, size)
    convs = convolutions.lay_out(conv_list.filters, size, channels, conv_list.padding, options)
    _check(convs, conv_list, image=(*size, channels), settings=settings)
    # Each convolution includes its activation.
    return Body(list(convs), activation="linear", dense=dense)


def _choose_conv_list(settings: VisionnetConfig, size: Pair) -> ConvList:
    """Return the preset "nature", the list that the config sets, or one for the image's size."""
    padding = settings.conv_padding
    filters = read_filters(settings.conv_filters)
    if filters == "nature":
        return ConvList(convolutions.NATURE, padding="valid", flatten=True)
    assert not isinstance(filters, str), "the caller handles the preset impala"
    if filters is not None:
        return ConvList(filters, padding, settings.conv_flatten)
    # RLlib's lists are for RLlib's padding; for other paddings the rule derives a list.
    if padding is None and size in convolutions.BY_SIZE:
        return ConvList(convolutions.BY_SIZE[size], padding, flatten=True)
    return ConvList(convolutions.derived(size, padding), padding, settings.conv_flatten)


def _layer_options(settings: VisionnetConfig, recipe: InitRecipe) -> dict[str, Any]:
    """Return the activation and the initialisers as arguments of `ConvSpec` and `DenseSpec`."""
    # The keys `conv_kernel_initializer` and `conv_bias_initializer`, with their `_config`.
    given = read_initializers(partial(getattr, settings), "conv", "kernel", "bias")
    weights, weights_config = given.get("kernel", recipe.convolution)
    bias, bias_config = given.get("bias", recipe.bias)
    return {
        "activation": activation_name(settings.conv_activation, "conv_activation"),
        "weights": weights,
        "weights_config": weights_config,
        "bias": bias,
        "bias_config": bias_config,
    }


def _impala(size: Pair, channels: int, options: Mapping[str, Any]) -> list[LayerSpec]:
    """Return the residual net's sections, each with a convolution, a pooling layer and two residual
    blocks.
    """
    layers: list[LayerSpec] = []
    linear = {**options, "activation": "linear"}
    for outputs in convolutions.IMPALA:  # the numbers of channels
        conv = ConvSpec(
            channels,
            outputs,
            kernel=(3, 3),
            stride=(1, 1),
            padding="same",
            size_in=size,
            **linear,
        )
        pool = PoolSpec(outputs, size)
        second = replace(conv, inputs=outputs, size_in=pool.size)
        first = replace(second, activation=options["activation"])
        block = ResidualSpec(options["activation"], first, second)
        layers += [conv, pool, *[block] * convolutions.IMPALA_BLOCKS]
        channels = outputs
        size = pool.size
    return layers


def _check(
    convs: list[ConvSpec],
    conv_list: ConvList,
    image: tuple[int, int, int],
    settings: VisionnetConfig,
) -> None:
    """Raise an error unless each kernel fits and, if the output is not flattened, it is 1x1.

    Args:
        convs: The convolutions of the list, up to the first one that does not fit.
        conv_list: The list.
        image: Height, width and channels of the image.
        settings: The package's config keys.
    """
    last = convs[-1]
    each_kernel_fits = min(last.size) >= 1
    if each_kernel_fits and (conv_list.flatten or last.size == (1, 1)):
        return
    if each_kernel_fits:
        problem = f"the output of the last convolution is {format_size(last.size)} instead of 1x1"
        advice = " Or set conv_flatten=True."
    else:
        problem = (
            f"kernel {format_size(last.kernel)} of conv {len(convs)} does not fit into"
            f" {format_size(last.size_in)}"
        )
        advice = ""
    image_size = image[:2]  # height and width
    if isinstance(settings.conv_filters, str):
        name = f"the preset {settings.conv_filters!r}"
        example = convolutions.derived(image_size, padding=None)
    else:
        name = "this list"
        example = convolutions.working_list(conv_list.filters, image_size, conv_list.padding)
    steps = [f"image {format_size(image)}"]
    for i, conv in enumerate(convs, 1):
        if min(conv.size) >= 1:
            output = format_size((*conv.size, conv.channels))
            steps.append(f"conv {i} ({conv.label}) {output}")
    raise ConfigError(
        f"config key 'conv_filters': {name} does not fit images of size {format_size(image)}:"
        f" {problem}. Layer by layer: {' -> '.join(steps)}. This list fits:"
        f" {convolutions.as_config(example)}.{advice}"
    )
