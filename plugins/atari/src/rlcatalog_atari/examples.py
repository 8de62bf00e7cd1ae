"""Examples for the conformance kit: a game, its screen and its memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rlcatalog_testing import Example


def environments() -> list[Callable[[], Any]]:
    """Return functions, each of which creates a game with pixel observations."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return [partial(gymnasium.make, "ALE/Breakout-v5")]


def pixels() -> list[Example]:
    """Return example screens for the pixel codec, in colour and in gray."""
    screen = Box(0, 255, (210, 160, 3), np.uint8)
    return [
        Example(screen, Discrete(2), _named("generic_pixel", dim=42, grayscale=gray))
        for gray in (False, True)
    ]


def memory() -> list[Example]:
    """Return an example with the bytes of an emulator's memory."""
    return [Example(Box(0, 255, (128,), np.uint8), Discrete(2), _named("atari_ram"))]


def _named(name: str, **config: Any) -> dict[str, Any]:
    return {"custom_preprocessor": f"rlcatalog-atari/{name}", **config}
