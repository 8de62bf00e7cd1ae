"""What `make test` runs of a grid: each value of each parameter, and few combinations."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from grids import covering


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 7), (7, 2), (3, 2, 4), (2, 2, 2, 2)])
def test_every_value_occurs_in_few_combinations(sizes):
    grid = list(itertools.product(*map(range, sizes)))
    kept = [grid[place] for place in covering(grid)]
    for i, size in enumerate(sizes):
        assert {values[i] for values in kept} == set(range(size))
    assert len(kept) <= max(sizes) + len(sizes) - 1
    assert len(kept) == len(set(kept))


def test_two_frameworks_share_the_cases():
    grid = list(itertools.product(range(10), ("torch", "tf")))
    kept = [grid[place] for place in covering(grid)]
    assert Counter(framework for _, framework in kept) == {"torch": 5, "tf": 5}


def test_combinations_that_are_missing_are_no_hindrance():
    grid = [("a", 0), ("a", 1), ("b", 1), ("c", 2)]
    assert covering(grid) == [0, 2, 3]


def test_nothing_is_left_of_nothing():
    assert covering([]) == []


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", range(3))
def test_the_mark_leaves_the_rest_to_attack(case, framework, request):
    """Six combinations; whichever run here are three, unless `make attack` or nobody chose."""
    beside = [item for item in request.session.items if item.originalname == request.node.originalname]
    attack = {item for item in beside if item.get_closest_marker("attack")}
    assert len(set(beside) - attack) in (0, 3)
