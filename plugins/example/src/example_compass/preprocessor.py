"""Codec for Compass spaces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import Space

from rlcatalog import Preprocessor


class CompassPreprocessor(Preprocessor):
    """Codec for Compass: (cos, sin) of the heading, so that neighbouring headings have similar
    codes.
    """

    def _init_shape(self, obs_space: Space[Any], options: dict[str, Any]) -> tuple[int, ...]:
        return (2,)

    def writer(self, start: int) -> Any:
        """Return a function that writes a heading's code into an array, at `start`."""
        angle_of_one_point = 2 * math.pi / self.info.space.points

        def write(obs: int, out: np.ndarray) -> None:
            angle = obs * angle_of_one_point
            out[start] = math.cos(angle)
            out[start + 1] = math.sin(angle)

        return write

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full(2, -1, np.float32), np.ones(2, np.float32)
