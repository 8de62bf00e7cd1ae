"""A space class that this package defines."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Compass(gymnasium.Space[np.int64]):
    """Space of headings: the integers 0 to points - 1, where the last heading is a neighbour of the
    first.

    Args:
        points: Number of headings.
    """

    def __init__(self, points: int, seed: int | None = None) -> None:
        self.points = points
        super().__init__((), np.int64, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        return self.np_random.integers(self.points)

    def contains(self, x: Any) -> bool:
        return isinstance(x, int | np.integer) and bool(0 <= x < self.points)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compass) and other.points == self.points

    def __repr__(self) -> str:
        return f"Compass({self.points})"
