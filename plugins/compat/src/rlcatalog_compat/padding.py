"""Padding as TensorFlow computes it, framework-neutral."""

from __future__ import annotations

from typing import Any


def pair(value: Any) -> tuple[int, int]:
    """Return one number twice, and two as they are."""
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def same_padding(in_size: Any, filter_size: Any, stride_size: Any) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Return the padding that makes a convolution's output as large as the input over its stride, rounded up.

    What cannot be shared evenly goes to the right and below.

    Args:
        in_size: Size of the image.
        filter_size: Size of the kernel.
        stride_size: Stride.

    Returns:
        `(left, right, top, bottom)` and the size of the output. The first axis of the sizes counts as height.
    """
    found, sizes = [], []
    for size, kernel, stride in zip(pair(in_size), pair(filter_size), pair(stride_size), strict=True):
        out = -(-size // stride)
        total = (out - 1) * stride + kernel - size
        found.append((total // 2, total - total // 2))
        sizes.append(out)
    (top, bottom), (left, right) = found
    return (left, right, top, bottom), (sizes[0], sizes[1])


def valid_padding(in_size: Any, filter_size: Any, stride_size: Any) -> tuple[int, int]:
    """Return the size of a convolution's output without padding."""
    sizes = zip(pair(in_size), pair(filter_size), pair(stride_size), strict=True)
    height, width = (-(-(size - kernel + 1) // stride) for size, kernel, stride in sizes)
    return height, width
