"""Plugin declarations: the action spaces that the distributions support, and the number of model
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError

#: Inputs of Beta are clipped to ± this number, so concentrations lie between 1 and 101.
MAX_BETA_INPUT = 100.0
#: Inputs of Dirichlet are clipped to these numbers, so concentrations lie between 2.1e-7 and 1,097.
DIRICHLET_INPUTS = (-16.0, 7.0)
#: Added to the concentrations of a Dirichlet, as in RLlib.
LEAST_CONCENTRATION = 1e-7


def beta_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return twice the number of values, because each value has two concentrations; all values must
    be bounded.
    """
    # Imported here, because a plugin module must not import NumPy.
    from rlcatalog.actions import read_bounds

    low, _ = read_bounds(action, "Beta")
    return 2 * low.size


def match_simplex(request: Request) -> Match:
    """Match if the action space is a Simplex."""
    action = request.action
    if action is None:
        return Match(rank=None, why="takes Simplex, not nothing")
    if action.kind != "simplex":
        return Match(rank=None, why=f"takes Simplex, not {action.kind}")
    *_, values = action.shape or (0,)
    return Match(Rank.GENERIC, f"the action is a point of a simplex of {values} values")


def dirichlet_size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Return the number of values, because each value has one concentration."""
    if action.kind != "simplex" or not action.shape:
        raise UnsupportedSpaceError(
            f"{action.path}: Dirichlet requires a Simplex, found {action.describe()}."
        )
    if action.is_empty:
        raise action.error_without_values("Dirichlet")
    return math.prod(action.shape)


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="beta",
            targets={"torch": "rlcatalog_bounded.torch:Beta", "tf": "rlcatalog_bounded.tf:Beta"},
            summary="independent Beta-distributed values within the bounds of a Box",
            size=beta_size,
        ),
        ActionDistSpec(
            name="dirichlet",
            targets={
                "torch": "rlcatalog_bounded.torch:Dirichlet",
                "tf": "rlcatalog_bounded.tf:Dirichlet",
            },
            summary="points on a simplex: shares that sum to 1",
            match=match_simplex,
            size=dirichlet_size,
            examples="rlcatalog_bounded.examples:simplexes",
        ),
    ]
