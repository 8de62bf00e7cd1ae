"""Examples for the conformance kit, which cannot know how to create a Compass."""

from __future__ import annotations

from gymnasium.spaces import Discrete

from example_compass.spaces import Compass
from rlcatalog_testing import Example


def examples() -> list[Example]:
    """Return observations that the codec accepts."""
    return [Example(Compass(8), Discrete(2))]
