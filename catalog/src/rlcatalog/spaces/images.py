"""The rule for which Boxes are images, and which of their axes are height, width and channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcatalog.spaces.attributes import read_attribute
from rlcatalog.spaces.info import SpaceInfo

if TYPE_CHECKING:
    import gymnasium

#: Largest number of channels that an image is expected to have.
MOST_CHANNELS = 16


@dataclass(frozen=True)
class ImageLayout:
    """Meaning of an image's axes.

    Attributes:
        has_frames: Whether the first of four axes counts stacked frames, whose channels a net reads
            as those of one image.
        channels_first: Whether the channels come before height and width.
        is_certain: Whether the shape can be read in this way only.
    """

    has_frames: bool
    channels_first: bool
    is_certain: bool = True

    def size(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Return height, width and number of channels of an image, of all its frames together."""
        *frames, first, second, third = shape
        count = frames[0] if frames else 1
        if self.channels_first:
            return second, third, count * first
        return first, second, count * third

    def __str__(self) -> str:
        axes = "channels, height, width" if self.channels_first else "height, width, channels"
        return f"frames, {axes}" if self.has_frames else axes


def read_layout(shape: Sequence[int], given: str | None = None) -> ImageLayout:
    """Return the meaning of an image's axes.

    A first axis of at most 16 before two larger ones is the channels if those two are equal or both
    over 16, as in a stack of square or large gray-scale frames. Otherwise, the channels are last.

    Args:
        shape: The image's shape, with three axes, or with four if the first counts frames.
        given: The config's `image_layout`: `"hwc"` or `"chw"`; None applies the rule.
    """
    *frames, first, second, third = shape
    has_frames = bool(frames)
    if given is not None:
        return ImageLayout(has_frames, channels_first=given == "chw")
    may_be_first = first <= MOST_CHANNELS and first < min(second, third)
    if not may_be_first:
        return ImageLayout(has_frames, channels_first=False)
    channels_first = second == third or min(second, third) > MOST_CHANNELS
    may_be_last = third <= MOST_CHANNELS
    is_certain = channels_first and not may_be_last
    return ImageLayout(has_frames, channels_first, is_certain)


def is_image(info: SpaceInfo, given: str | None = None) -> bool:
    """Return whether a space is an image: a Box of rank 3, as in RLlib, or a stack of images.

    A Box of rank 4 is a stack of images if it holds bytes, or if its layout is given.

    Args:
        info: The space.
        given: The config's `image_layout`.
    """
    if info.kind != "box":
        return False
    if info.rank == 4:
        return info.dtype == "uint8" or given is not None
    return info.rank == 3


def lacks_channel_axis(info: SpaceInfo) -> bool:
    """Return whether a space looks like a gray-scale image without an axis for its channel: bytes
    in two long axes.
    """
    if info.kind != "box" or info.dtype != "uint8" or info.rank != 2:
        return False
    return min(info.shape or (0,)) > MOST_CHANNELS


def env_layout(env: gymnasium.Env[Any, Any] | None) -> str | None:
    """Return the layout of the images that known wrappers of an environment produce, or None.

    Args:
        env: A Gymnasium environment; None has no images.

    Returns:
        `"hwc"` or `"chw"`, as for the config key `image_layout`.
    """
    outer: Any = env
    while (inner := read_attribute(outer, "env")) is not None:
        if read_attribute(inner, "observation_space") is None:
            return None  # not a wrapper, but an environment that keeps something else there
        wrapper = f"{type(outer).__module__}.{type(outer).__qualname__}"
        is_single_image = len(outer.observation_space.shape or ()) == 3
        if is_single_image and wrapper in _GRAY_SCALE:
            return "hwc"  # the last axis has one channel
        if is_single_image and wrapper in _FRAME_STACKS:
            return "chw"  # each frame is one channel
        keeps_axes = wrapper in _FRAME_STACKS or wrapper in _KEEPS_AXES
        if not keeps_axes and outer.observation_space != inner.observation_space:
            return None
        outer = inner
    return None


#: Wrappers of Gymnasium that turn colours into one channel.
_GRAY_SCALE = (
    "gymnasium.wrappers.transform_observation.GrayscaleObservation",
    "gymnasium.wrappers.atari_preprocessing.AtariPreprocessing",
)
#: Wrappers of Gymnasium that put the last observations in front of each other.
_FRAME_STACKS = ("gymnasium.wrappers.stateful_observation.FrameStackObservation",)
#: Wrappers of Gymnasium that change images, but not the meaning of their axes.
_KEEPS_AXES = (
    "gymnasium.wrappers.transform_observation.ResizeObservation",
    "gymnasium.wrappers.transform_observation.RescaleObservation",
    "gymnasium.wrappers.transform_observation.DtypeObservation",
)
