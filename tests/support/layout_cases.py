"""Which axes of an image a net reads as what: the cases of the rule, for its test and its page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayoutCase:
    """One kind of image.

    Attributes:
        data: What such images are, for the page.
        shape: Their shape.
        axes: The meaning of the axes.
        size: Height, width and channels that a net sees.
        is_certain: Whether the shape can be read in this way only; otherwise there is a warning.
    """

    data: str
    shape: tuple[int, ...]
    axes: str
    size: tuple[int, int, int]
    is_certain: bool = True


HWC = "height, width, channels"
CHW = "channels, height, width"

CASES = (
    LayoutCase("colour image", (210, 160, 3), HWC, (210, 160, 3)),
    LayoutCase("gray-scale frames, newest last", (84, 84, 4), HWC, (84, 84, 4)),
    LayoutCase("`FrameStackObservation` of Atari frames", (4, 84, 84), CHW, (84, 84, 4)),
    LayoutCase("colour image of PyTorch", (3, 240, 320), CHW, (240, 320, 3)),
    LayoutCase("grid world", (7, 7, 3), HWC, (7, 7, 3)),
    LayoutCase("chess board, one-hot", (8, 8, 12), HWC, (8, 8, 12)),
    LayoutCase("planes of a square board", (12, 19, 19), CHW, (19, 19, 12)),
    LayoutCase("planes of a small square board", (3, 5, 5), CHW, (5, 5, 3), is_certain=False),
    LayoutCase("small and not square", (4, 10, 12), HWC, (4, 10, 12), is_certain=False),
    LayoutCase("stack of colour frames", (4, 64, 64, 3), f"frames, {HWC}", (64, 64, 12)),
    LayoutCase("stack of frames of PyTorch", (2, 3, 64, 64), f"frames, {CHW}", (64, 64, 6)),
)
