"""Examples for the conformance kit: observations with masks and embeddings of the actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog.spaces import Repeated
from rlcatalog_testing import Example

_STATE = spaces.Box(-1, 1, (4,), np.float32)
_EMBEDDING = spaces.Box(-1, 1, (5,), np.float32)


def examples() -> list[Example]:
    """Return examples with embeddings and a mask, with only a mask, and with a list
    of embeddings.
    """
    on = {"use_parametric": True}
    masks = spaces.Tuple([spaces.MultiBinary(3), spaces.MultiBinary(2)])
    embedded = {
        "action_mask": spaces.MultiBinary(3),
        "avail_actions": spaces.Box(-1, 1, (3, 5), np.float32),
    }
    return [
        Example(spaces.Dict({**embedded, "state": _STATE}), spaces.Discrete(3), on),
        Example(
            spaces.Dict({"action_mask": masks, "state": _STATE}), spaces.MultiDiscrete([3, 2]), on
        ),
        Example(
            spaces.Dict({"avail_actions": Repeated(_EMBEDDING, 3), "state": _STATE}),
            spaces.Discrete(3),
            on,
            _listed,
        ),
    ]


def _listed(rng: np.random.Generator) -> dict[str, Any]:
    """Return an observation with at least one available action."""
    listed = [rng.uniform(-1, 1, 5).astype(np.float32) for _ in range(rng.integers(1, 4))]
    return {"avail_actions": listed, "state": rng.uniform(-1, 1, 4).astype(np.float32)}
