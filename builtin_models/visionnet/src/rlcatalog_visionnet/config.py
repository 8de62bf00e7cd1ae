"""Config keys of this package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog.config import (
    InitConfig,
    KernelConfig,
    NameOrCallable,
    activation_name,
    read_config,
    read_initializers,
)
from rlcatalog.errors import ConfigError, nearest, shown
from rlcatalog.observations import Scaling, scaling_of

if TYPE_CHECKING:
    from gymnasium import Space

Pair = tuple[int, int]
#: One entry of `conv_filters`: channels, kernel, stride; the last two as (height, width).
Filter = tuple[int, Pair, Pair]

PRESETS = ("nature", "impala")


class VisionnetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the convolutional network."""

    conv_filters: Annotated[
        list[Any] | str | None,
        Meta(
            description='convolutions, each [channels, kernel, stride], or "nature" or "impala";'
            " None: by image size"
        ),
    ] = None
    conv_activation: Annotated[
        NameOrCallable, Meta(description="activation of the convolutions")
    ] = "relu"
    conv_padding: Annotated[
        Literal["same", "valid"] | None,
        Meta(
            description='padding of the convolutions; None: "valid" for the last one, "same" for'
            " the others"
        ),
    ] = None
    conv_flatten: Annotated[
        bool, Meta(description="flatten the output of the convolutions, instead of requiring 1x1")
    ] = False
    image_scale: Annotated[
        float | bool | None,
        Meta(
            description="factor for the pixels of every image; None: by their bounds, see"
            " scale_integers; False: no scaling"
        ),
    ] = None
    conv_kernel_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the kernels")
    ] = None
    conv_kernel_initializer_config: InitConfig = None
    conv_bias_initializer: Annotated[
        NameOrCallable, Meta(description="initialiser of the convolutions' biases")
    ] = None
    conv_bias_initializer_config: InitConfig = None

    def __post_init__(self) -> None:
        filters = read_filters(self.conv_filters)
        if isinstance(filters, str) and self.conv_padding is not None:
            raise ConfigError(
                f"config key 'conv_padding': the preset {filters!r} defines its own padding, but"
                f" found conv_padding={self.conv_padding!r}. Remove conv_padding, or write the"
                " layers as a list."
            )
        activation_name(self.conv_activation, "conv_activation")  # only for its error
        # It checks the keys `conv_kernel_initializer` and `conv_bias_initializer`.
        read_initializers(partial(getattr, self), "conv", "kernel", "bias")
        if not _is_scale(self.image_scale):
            raise ConfigError(
                "config key 'image_scale': expected a positive factor, False for no scaling, or"
                f" None to scale integers by their bounds; found {self.image_scale!r}."
            )


def _is_scale(value: float | bool | None) -> bool:
    if value is None or value is False:
        return True
    return value is not True and 0 < value < math.inf


def read_filters(value: list[Any] | str | None) -> list[Filter] | str | None:
    """Read the config key `conv_filters`: a preset's name, a list of `[channels, kernel, stride]`,
    or None.

    An empty list counts as None, as in RLlib.

    Raises:
        ConfigError: The value is invalid; the message shows the invalid entry.
    """
    if value is None or value == []:
        return None
    key = "config key 'conv_filters'"
    if isinstance(value, str):
        if value not in PRESETS:
            raise ConfigError(
                f"{key}: unknown preset {shown(value)}.{nearest(value, PRESETS)} Use"
                f" {', '.join(PRESETS)}, or a list of [channels, kernel, stride]."
            )
        return value
    filters: list[Filter] = []
    for i, entry in enumerate(value):
        convolution = _read_entry(entry)
        if convolution is None:
            raise ConfigError(
                f"{key}: entry {i} must be [channels, kernel, stride] with integers >= 1, where"
                f" kernel and stride may also be [height, width]; found {shown(entry)}."
            )
        filters.append(convolution)
    return filters


def _read_entry(entry: Any) -> Filter | None:
    """Return one entry of `conv_filters`; None if it is invalid."""
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return None
    channels = entry[0]
    kernel = _read_pair(entry[1])
    stride = _read_pair(entry[2])
    if kernel is None or stride is None or not _is_positive(channels):
        return None
    return channels, kernel, stride


def _read_pair(value: Any) -> Pair | None:
    """Return a number for both axes, or a list of two, as a pair; None if the value is invalid."""
    numbers = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(numbers) != 2 or not all(map(_is_positive, numbers)):
        return None
    return numbers[0], numbers[1]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def pixel_scaling(config: Mapping[str, Any], space: Space[Any]) -> Scaling | None:
    """Return how pixels are scaled, or None.

    Bytes are divided by 255 even with `scale_integers=False`.

    Args:
        config: The flat model config.
        space: The space of the images.
    """
    factor = read_config(config, VisionnetConfig).image_scale
    if factor is False or factor == 1:
        return None  # not scaled
    if factor is not None:
        return Scaling(offset=0.0, factor=float(factor))
    scales_by_bounds = read_config(config, KernelConfig).scale_integers
    if not scales_by_bounds and space.dtype == "uint8":
        return Scaling(offset=0.0, factor=1 / 255)
    return scaling_of(space, config)
