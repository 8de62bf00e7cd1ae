"""Additional examples for the conformance kit, in which the config chooses the net for a part."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog_testing import Example


def examples() -> list[Example]:
    """Return an example in which an image passes through a net other than the default one."""
    image = spaces.Box(0, 255, (10, 10, 2), np.uint8)
    obs = spaces.Dict({"eye": image, "self": spaces.Box(-1, 1, (2,), np.float32)})
    return [
        Example(obs, spaces.Discrete(3, start=1)),
        Example(obs, spaces.Discrete(3, start=1), {"input_nets": {"obs['eye']": "fcnet"}}),
    ]
