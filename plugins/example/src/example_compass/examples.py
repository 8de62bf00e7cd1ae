"""Examples for the conformance kit, which does not know how to create a Compass space."""

from __future__ import annotations

from gymnasium.spaces import Discrete

from example_compass.spaces import Compass
from rlcatalog_testing import Example


def examples() -> list[Example]:
    """Return example observations that the codec accepts."""
    return [Example(Compass(8), Discrete(2))]
