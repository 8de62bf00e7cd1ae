"""Codec for Compass spaces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlcatalog import Preprocessor


class CompassPreprocessor(Preprocessor):
    """Codec for Compass: (cos, sin) of the heading, so that neighbouring headings have similar
    codes.
    """

    def _init_shape(self, obs_space: Any, options: dict[str, Any]) -> tuple[int, ...]:
        return (2,)

    def writer(self, start: int) -> Any:
        turn = 2 * math.pi / self.info.space.points

        def write(obs: Any, out: np.ndarray) -> None:
            out[start], out[start + 1] = math.cos(obs * turn), math.sin(obs * turn)

        return write

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.full(2, -1, np.float32), np.ones(2, np.float32)
