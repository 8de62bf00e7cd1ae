"""Grids: tests over every combination of some parameters, of which `make test` runs a part.

Mark a test `@pytest.mark.grid` where its parameters are crossed. `make test` then runs few combinations, in which each
value of each parameter occurs, and `make attack` all others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import pytest


def covering(combinations: Sequence[Sequence[Hashable]]) -> list[int]:
    """Return the places of few combinations that have every value of every parameter.

    Values occur about equally often: of two frameworks, each has half of the cases.

    Args:
        combinations: For each the values of all parameters, in one order.
    """
    left = {(i, value) for values in combinations for i, value in enumerate(values)}
    used: Counter[tuple[int, Hashable]] = Counter()
    chosen = []
    while left:
        pairs = [list(enumerate(values)) for values in combinations]
        best = max(range(len(pairs)), key=lambda k: (len(left & set(pairs[k])), -sum(used[pair] for pair in pairs[k])))
        left -= set(pairs[best])
        used.update(pairs[best])
        chosen.append(best)
    return sorted(chosen)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out of a grid."""
    grids = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "grid" in marks and "attack" not in marks and hasattr(item, "callspec"):
            grids[item.path, item.parent, item.originalname].append(item)
    for grid in grids.values():
        kept = covering([_values(item) for item in grid])
        for place in set(range(len(grid))) - set(kept):
            grid[place].add_marker(pytest.mark.attack)


def _values(item: pytest.Function) -> list[Hashable]:
    """Return which row of each `parametrize` a test has, and which value of each fixture with values."""
    given = {name: id(value) for name, value in item.callspec.params.items()}
    calls = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [call.split(",") if isinstance(call, str) else call for call in calls]
    rows: list[Hashable] = [tuple(given.pop(name.strip()) for name in row) for row in names]
    return [*rows, *given.values()]
