"""Declarations: which action spaces the distribution serves and how many model outputs it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog import ActionDistSpec, Match, NoMatch, Rank, Request, SpaceInfo, hookimpl
from rlcatalog.errors import UnsupportedSpaceError


def match(request: Request) -> Match | NoMatch:
    """Say whether the action space is Discrete."""
    action = request.action
    if action is not None and action.kind == "discrete":
        return Match(Rank.GENERIC, f"the action is one of {action.n} values")
    return NoMatch(f"takes Discrete, not {action.kind if action else 'nothing'}")


def size(action: SpaceInfo, config: Mapping[str, Any]) -> int:
    """Return the number of logits."""
    if action.n is None or action.kind != "discrete":
        raise UnsupportedSpaceError(f"{action.path}: Categorical takes a Discrete space, found {action.describe()}.")
    return action.n


@hookimpl
def rlcatalog_action_dists() -> list[ActionDistSpec]:
    return [
        ActionDistSpec(
            name="categorical",
            targets={"torch": "rlcatalog_categorical.torch:Categorical", "tf": "rlcatalog_categorical.tf:Categorical"},
            summary="one of n values, from n logits",
            match=match,
            size=size,
        )
    ]
