"""Grids: tests over every combination of some parameters, of which `make test` runs a part.

Mark a test `@pytest.mark.grid` where its parameters are crossed. `make test` then runs few
combinations, in which each value of each parameter occurs, and `make attack` all others.
TensorFlow, which takes five times as long as PyTorch, has a quarter of what runs.

Mark a module `pytestmark = pytest.mark.twins` whose tests run in both frameworks, and of which
others say that the frameworks agree once weights are copied. `make test` then runs each in PyTorch,
and every fourth in TensorFlow as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Sequence

import pytest

#: For one case of TensorFlow in `make test` there are so many of the other frameworks.
_OTHERS = 3


def covering(
    combinations: Sequence[Sequence[Hashable]], slow: Container[Hashable] = ()
) -> list[int]:
    """Return the places of few combinations that have every value of every parameter.

    Values occur about equally often, but for the slow ones.

    Args:
        combinations: For each the values of all parameters, in one order.
        slow: Values that occur a third as often as the others.
    """
    pairs = [set(enumerate(values)) for values in combinations]
    left = set().union(*pairs)
    used: Counter[tuple[int, Hashable]] = Counter()
    chosen = []
    while left:
        best = max(
            range(len(pairs)),
            key=lambda k: (len(left & pairs[k]), -sum(used[pair] for pair in pairs[k])),
        )
        left -= pairs[best]
        for pair in pairs[best]:
            used[pair] += _OTHERS if pair[1] in slow else 1
        chosen.append(best)
    return sorted(chosen)


def in_turn(place: int, frameworks: Sequence[str]) -> str:
    """Return the framework in which `make test` tries the case at a place of a list; `make attack`
    tries the others.
    """
    others = [framework for framework in frameworks if framework != "tf"]
    if "tf" in frameworks and (not others or place % (_OTHERS + 1) == _OTHERS):
        return "tf"
    return others[place % len(others)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out of grids and twins."""
    grids = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "grid" in marks and "slow" not in marks and hasattr(item, "callspec"):
            grids[item.path, item.parent, item.originalname].append(item)
    for grid in grids.values():
        combinations = [_values(item) for item in grid]
        slow = {value for values in combinations for value in values if _TF in _parts(value)}
        kept = covering(combinations, slow)
        for place in set(range(len(grid))) - set(kept):
            grid[place].add_marker(pytest.mark.slow)
    _thin_twins(items)


def _thin_twins(items: list[pytest.Item]) -> None:
    modules: dict[Hashable, dict[Hashable, list[pytest.Item]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "twins" in marks and not marks & {"grid", "slow", "learn"} and hasattr(item, "callspec"):
            modules[item.path][item.parent, item.originalname].append(item)
    for tests in modules.values():
        pairs = [
            group
            for group in tests.values()
            if {"torch", "tf"} <= {_framework(item) for item in group}
        ]
        for place, group in enumerate(pairs):
            for item in group:
                if _framework(item) == "tf" and in_turn(place, ("torch", "tf")) != "tf":
                    item.add_marker(pytest.mark.slow)


def _framework(item: pytest.Item) -> str | None:
    values = [value for value in item.callspec.params.values() if isinstance(value, str)]
    return next((value for value in values if value in ("torch", "tf")), None)


#: The value `"tf"`: Python keeps one string of it.
_TF = id("tf")


def _parts(value: Hashable) -> Sequence[Hashable]:
    return value if isinstance(value, tuple) else (value,)


def _values(item: pytest.Function) -> list[Hashable]:
    """Return which row of each `parametrize` a test has, and which value of each fixture with
    values.
    """
    given = {name: id(value) for name, value in item.callspec.params.items()}
    calls = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [call.split(",") if isinstance(call, str) else call for call in calls]
    rows: list[Hashable] = [tuple(given.pop(name.strip()) for name in row) for row in names]
    return [*rows, *given.values()]
