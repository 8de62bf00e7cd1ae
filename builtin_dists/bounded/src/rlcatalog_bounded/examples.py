"""Examples for the conformance kit: simplexes, which its standard action spaces do not include."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from rlcatalog.spaces import Simplex
from rlcatalog_testing import Example


def simplexes() -> list[Example]:
    """Return examples with one simplex, and with an action made of two simplexes."""
    vector = Box(-1, 1, (4,), np.float32)
    return [Example(vector, Simplex(shape)) for shape in ((3,), (2, 3))]
