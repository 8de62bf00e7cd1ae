"""Plugin declarations: the supported action spaces; a distribution's size is the sum of the sizes
of its parts' distributions.
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


def match_one_of(request: Request) -> Match:
    """Match if the action space is a OneOf."""
    action = request.action
    if action is None:
        return Match(rank=None, why="takes OneOf, not nothing")
    if action.choice is None:
        return Match(rank=None, why=f"takes OneOf, not {action.kind}")
    return Match(Rank.GENERIC, f"the action is one of {len(action.children)} parts")


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Raise an error: only the catalog, which chooses the children's distributions, knows their
    sizes.
    """
    raise _refusal("multi_action", "a Tuple or Dict", action)


def size_of_one_of(action: SpaceInfo, config: Mapping[str, Any]) -> int:  # noqa: ARG001  (a size function gets both)
    """Raise an error, as `size` does."""
    raise _refusal("one_of", "a OneOf", action)


def _refusal(name: str, spaces: str, action: SpaceInfo) -> UnsupportedSpaceError:
    """Return the error for a space whose size a distribution does not know."""
    return UnsupportedSpaceError(
        f"{action.path}: {name} only supports {spaces}, found {action.describe()}."
        f" Name {name} only for these spaces, or call Catalog.action_dist() to get the size"
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
        ),
        ActionDistSpec(
            name="one_of",
            targets={
                "torch": "rlcatalog_multi_action.torch:OneOfDistribution",
                "tf": "rlcatalog_multi_action.tf:OneOfDistribution",
            },
            summary="the choice of a part of a OneOf, and one distribution per part",
            match=match_one_of,
            size=size_of_one_of,
            composite=True,
            examples="rlcatalog_multi_action.examples:of_one_of",
        ),
    ]
