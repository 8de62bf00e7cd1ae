"""Additional examples for the conformance kit: small images, and lists of convolutions."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example


def examples() -> list[Example]:
    """Return examples with images, a board and lists of convolutions, one of which does not reduce
    its image to 1x1.
    """
    small = spaces.Box(0, 255, (10, 10, 2), np.uint8)
    return [
        Example(
            small, spaces.Discrete(3, start=1), {"conv_filters": [[4, [4, 4], 2], [8, [5, 5], 1]]}
        ),
        Example(
            small, spaces.Box(-1, 1, (2,)), {"conv_filters": [[4, [4, 4], 4]], "conv_flatten": True}
        ),
        # A board: `scale_integers` scales it by its bounds.
        Example(
            spaces.Box(0, 9, (10, 10, 2), np.uint8),
            spaces.Discrete(3),
            {"conv_filters": [[4, [4, 4], 2], [8, [5, 5], 1]]},
        ),
    ]
