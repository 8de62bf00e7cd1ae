"""Plugin declarations: the action spaces that the distributions support, and the number of model
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog_gaussian.numeric_limits import MAX_LOG_STD

_CONFIG = "rlcatalog_gaussian.config:GaussianConfig"


def match(request: Request) -> Match:
    """Match if the action space is a Box of floats."""
    action = request.action
    if action is None:
        return Match(rank=None, why="takes Box, not nothing")
    if action.kind != "box":
        return Match(rank=None, why=f"takes Box, not {action.kind}")
    if not (action.dtype or "").startswith("float"):
        return Match(rank=None, why=f"takes a Box of floats, not of {action.dtype}")
    return Match(Rank.GENERIC, f"the action is a Box of {math.prod(action.shape or ())} floats")


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return twice the number of values, for means and log standard deviations."""
    if action.kind != "box" or not (action.dtype or "").startswith("float"):
        raise UnsupportedSpaceError(
            f"{action.path}: DiagGaussian needs a Box of floats, found {action.describe()}."
        )
    return 2 * math.prod(action.shape or ())


def initial_std(
    action: SpaceInfo,  # noqa: ARG001  (an initial_std function gets both)
    config: Mapping[str, Any],
) -> float:
    """Return 1, or the nearest number within the config's limits, because a new model's outputs are
    close to 0.
    """
    # Imported here, because a plugin module must not import msgspec.
    from rlcatalog_gaussian.config import clip_range, limits

    requested = limits(config)
    low, high = clip_range(
        requested.get("log_std_min"),
        requested.get("log_std_max"),
        least=-MAX_LOG_STD,
        most=MAX_LOG_STD,
    )
    log_std = min(max(0.0, low), high)
    return math.exp(log_std)


def squashed_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return twice the number of values, which must all be bounded."""
    # Imported here, because a plugin module must not import NumPy.
    from rlcatalog.actions import read_bounds

    low, _ = read_bounds(action, "SquashedGaussian")
    return 2 * low.size


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="diag_gaussian",
            targets={
                "torch": "rlcatalog_gaussian.torch:DiagGaussian",
                "tf": "rlcatalog_gaussian.tf:DiagGaussian",
            },
            summary="independent normal values, from means and log standard deviations",
            match=match,
            size=size,
            config=_CONFIG,
            reads=("free_log_std", "action_bounds"),
            initial_std=initial_std,
        ),
        ActionDistSpec(
            name="squashed_gaussian",
            targets={
                "torch": "rlcatalog_gaussian.torch:SquashedGaussian",
                "tf": "rlcatalog_gaussian.tf:SquashedGaussian",
            },
            summary="normal values squashed into the bounds of a Box by tanh",
            size=squashed_size,
            config=_CONFIG,
            reads=("free_log_std",),
        ),
    ]
