"""Additional examples for the conformance kit, in which the net looks ids up in tables."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example

_PAIR = spaces.Box(-1, 1, (2,), np.float32)


def examples() -> list[Example]:
    """Return examples with embedded leaves: a single one, and one of each kind beside numbers."""
    leaves = spaces.Dict(
        {
            "item": spaces.Discrete(6, start=-2),
            "speed": _PAIR,
            "tools": spaces.MultiDiscrete([2, 3]),
            "word": spaces.Text(4, min_length=0, charset="abc"),
        }
    )
    embeddings = {"item": 3, "tools": 2, "word": 4}
    two = spaces.Discrete(2)
    return [
        Example(spaces.Discrete(5, start=2), two, {"embeddings": 4}),
        Example(leaves, two, {"embeddings": embeddings}),
        Example(leaves, two, {"embeddings": embeddings, "vf_share_layers": False}),
    ]
