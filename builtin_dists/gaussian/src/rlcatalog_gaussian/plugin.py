"""Declarations: which action spaces the distribution serves and how many model outputs it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, NoMatch, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError

#: Log standard deviations beyond this are cut off: exp of a number much larger is infinite in float32.
MAX_LOG_STD = 40.0


def match(request: Request) -> Match | NoMatch:
    """Say whether the action space is a Box of floats."""
    action = request.action
    if action is None or action.kind != "box":
        return NoMatch(f"takes Box, not {action.kind if action else 'nothing'}")
    if not (action.dtype or "").startswith("float"):
        return NoMatch(f"takes a Box of floats, not of {action.dtype}")
    return Match(Rank.GENERIC, f"the action is a Box of {math.prod(action.shape or ())} floats")


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:
    """Return twice the number of values: means and log standard deviations."""
    if action.kind != "box" or not (action.dtype or "").startswith("float"):
        raise UnsupportedSpaceError(f"{action.path}: DiagGaussian takes a Box of floats, found {action.describe()}.")
    return 2 * math.prod(action.shape or ())


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="diag_gaussian",
            targets={"torch": "rlcatalog_gaussian.torch:DiagGaussian", "tf": "rlcatalog_gaussian.tf:DiagGaussian"},
            summary="independent normal values, from means and log standard deviations",
            match=match,
            size=size,
            reads=("free_log_std", "action_bounds"),
        )
    ]
