"""Plugin declarations: the supported action spaces; the distribution's size is the sum of its
children's sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError


def match(request: Request) -> Match:
    """Match if the action space is a Tuple or a Dict."""
    action = request.action
    if action is None:
        return Match(rank=None, why="takes Tuple and Dict, not nothing")
    if not action.is_composite:
        return Match(rank=None, why=f"takes Tuple and Dict, not {action.kind}")
    if not action.children:
        return Match(rank=None, why=f"the {action.kind} is empty")
    kind = action.kind.capitalize()
    return Match(Rank.GENERIC, f"the action is a {kind} of {len(action.children)}")


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Raise an error: only the catalog, which chooses the children's distributions, knows their
    sizes.
    """
    raise UnsupportedSpaceError(
        f"{action.path}: multi_action only supports a Tuple or Dict, found {action.describe()}."
        " Name multi_action only for these spaces, or call Catalog.action_dist() to get the size"
        " of this one."
    )


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="multi_action",
            targets={
                "torch": "rlcatalog_multi_action.torch:MultiActionDistribution",
                "tf": "rlcatalog_multi_action.tf:MultiActionDistribution",
            },
            summary="one distribution per part of a Tuple or Dict, nested to any depth",
            match=match,
            size=size,
            composite=True,
        )
    ]
