"""Plugin declarations: the action spaces that the distribution supports, and the number of model
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of values."""
    if action.kind != "box" or not (action.dtype or "").startswith("float"):
        raise UnsupportedSpaceError(
            f"{action.path}: Deterministic needs a Box of floats, found {action.describe()}."
        )
    return math.prod(action.shape or ())


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="deterministic",
            targets={
                "torch": "rlcatalog_deterministic.torch:Deterministic",
                "tf": "rlcatalog_deterministic.tf:Deterministic",
            },
            summary="uses the model's outputs as the action",
            size=size,
            reads=("action_bounds",),
        )
    ]
