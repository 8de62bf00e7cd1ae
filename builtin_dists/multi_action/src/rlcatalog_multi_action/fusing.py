"""Leaves of one family, joined into one distribution, so that the number of tensor operations does not grow with them.

Which belong together, their classes say (`ActionDistribution.family` and `side_by_side`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True, eq=False)
class Group:
    """One distribution, of one leaf or of several.

    Attributes:
        dist: Makes it: called with `(inputs, model)`.
        leaves: Places of its leaves among all.
        inputs: Runs `(start, stop)` of the columns of the model outputs that it takes side by side.
        raw: The same of the columns of raw actions.
        whole: Whether its raw actions are whole numbers.
    """

    dist: Any
    leaves: tuple[int, ...]
    inputs: tuple[tuple[int, int], ...]
    raw: tuple[tuple[int, int], ...]
    whole: bool


def grouped(bound: Sequence[tuple[Any, Mapping[str, Any]]], leaves: Sequence[Any]) -> tuple[Group, ...]:
    """Return the groups of a composite's leaves.

    Args:
        bound: Class and options of each leaf's distribution.
        leaves: The leaves.
    """
    starts, raw_starts = ([0, *accumulate(getattr(leaf, name) for leaf in leaves)] for name in ("size", "width"))
    members: dict[Any, list[int]] = {}
    for i, (cls, options) in enumerate(bound):
        family = getattr(cls, "family", None)
        key = family(options) if family is not None else None
        # Whole numbers and others are not joined: flat actions are rounded group by group.
        members.setdefault(i if key is None else (key, leaves[i].whole), []).append(i)
    groups = []
    for places in members.values():
        first = leaves[places[0]]
        dist, order = first.dist, [(m, 0, leaves[i].size) for m, i in enumerate(places)]
        if len(places) > 1:
            dist, order = bound[places[0]][0].side_by_side([(bound[i][1], leaves[i].size) for i in places])
        runs = [(starts[places[m]] + start, starts[places[m]] + stop) for m, start, stop in order]
        raw = [(raw_starts[i], raw_starts[i + 1]) for i in places]
        groups.append(Group(dist, tuple(places), _merged(runs), _merged(raw), first.whole))
    return tuple(groups)


def _merged(runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join runs that follow one another."""
    found: list[tuple[int, int]] = []
    for start, stop in runs:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)
