"""Which integers in observations a net scales: the cases of the rule, for its test and its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box


@dataclass(frozen=True)
class ScalingCase:
    """One kind of observation.

    Attributes:
        data: What such observations are, for the page.
        space: Their space.
        lowest: The number that a net reads for the lowest value.
        highest: The number that a net reads for the highest value.
        note: What `explain` says; empty if the net reads the observation as it is.
    """

    data: str
    space: Box
    lowest: float
    highest: float
    note: str = ""


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Box:
    """Return a Box."""
    return Box(low, high, shape, dtype)


ZERO_TO_ONE = "scaled to [0, 1]"
AROUND_ZERO = "scaled to [-1, 1]"

CASES = (
    ScalingCase("photograph", box(0, 255, (9, 9, 3), np.uint8), 0, 1, ZERO_TO_ONE),
    ScalingCase("depth image of 16 bits", box(0, 65_535, (9, 9, 1), np.uint16), 0, 1, ZERO_TO_ONE),
    ScalingCase("game board, one-hot", box(0, 1, (8, 8, 12), np.uint8), 0, 1),
    ScalingCase("game board, both players", box(-1, 1, (8, 8), np.int8), -1, 1),
    ScalingCase("grid of tile numbers", box(0, 10, (7, 7, 3), np.uint8), 0, 1, ZERO_TO_ONE),
    ScalingCase("memory of a console", box(0, 255, (128,), np.uint8), 0, 1, ZERO_TO_ONE),
    ScalingCase("signed readings", box(-128, 127, (5,), np.int8), -1, 1, AROUND_ZERO),
    ScalingCase("number of cards", box(2, 12, (), np.int64), 0, 1, ZERO_TO_ONE),
    ScalingCase(
        "counters",
        box(0, 100_000, (2,), np.int32),
        0,
        100_000,
        "not scaled: integers from 0 to 100,000",
    ),
    ScalingCase(
        "image of 32 bits",
        box(0, 1_000_000, (9, 9, 1), np.int32),
        0,
        1_000_000,
        "not scaled: integers from 0 to 1,000,000",
    ),
    ScalingCase("photograph as floats", box(0, 255, (9, 9, 3), np.float32), 0, 255),
    ScalingCase("measurements", box(-40, 60, (3,), np.float32), -40, 60),
)
