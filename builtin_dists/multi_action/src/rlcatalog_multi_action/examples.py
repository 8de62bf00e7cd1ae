"""Examples for the conformance kit: OneOf spaces whose parts have choices, numbers or both."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example

_VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def of_one_of() -> list[Example]:
    """Return examples; a part of the last one is a OneOf."""
    three: spaces.Space[Any] = spaces.Discrete(3, start=2)
    bits: spaces.Space[Any] = spaces.MultiBinary(2)
    move: spaces.Space[Any] = spaces.Box(-2, 5, (2,), np.float32)
    tool = spaces.Dict({"tool": spaces.Discrete(2), "force": spaces.Box(0, 1, (1,), np.float32)})
    choices = spaces.OneOf([three, bits])
    return [
        Example(_VECTOR, choices),
        Example(_VECTOR, spaces.OneOf([move, tool])),
        Example(_VECTOR, spaces.OneOf([move, three])),
        Example(_VECTOR, spaces.OneOf([choices, spaces.Discrete(2)])),
    ]
