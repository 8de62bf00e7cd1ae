"""Additional examples for the conformance kit: the config chooses the net for a part, and items of
lists contain ids to embed.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import Repeated
from rlcatalog_testing import Example

_PAIR = spaces.Box(-1, 1, (2,), np.float32)


def examples() -> list[Example]:
    """Return examples with an image, which passes through the default net and another one, and with
    embedded ids beside an image and in a list.
    """
    image = spaces.Box(0, 255, (10, 10, 2), np.uint8)
    obs = spaces.Dict({"eye": image, "self": _PAIR})
    units = Repeated(spaces.Dict({"at": _PAIR, "kind": spaces.Discrete(3, start=1)}), 2)
    seen = spaces.Dict({"eye": image, "item": spaces.Discrete(4), "units": units})
    embeddings = {"item": 3, "units[:].kind": 2}
    return [
        Example(obs, spaces.Discrete(3, start=1)),
        Example(obs, spaces.Discrete(3, start=1), {"input_nets": {"obs['eye']": "fcnet"}}),
        Example(seen, spaces.Discrete(2), {"embeddings": embeddings}),
    ]
