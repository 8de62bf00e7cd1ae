"""What `make test` runs of a grid: each value of each parameter, and few combinations."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from grids import covering, in_turn


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 7), (7, 2), (3, 2, 4), (2, 2, 2, 2)])
def test_every_value_occurs_in_few_combinations(sizes):
    grid = list(itertools.product(*map(range, sizes)))
    kept = [grid[place] for place in covering(grid)]
    for i, size in enumerate(sizes):
        assert {values[i] for values in kept} == set(range(size))
    assert len(kept) <= max(sizes) + len(sizes) - 1
    assert len(kept) == len(set(kept))


def test_two_frameworks_share_the_cases():
    grid = list(itertools.product(range(12), ("torch", "tf")))
    kept, thinned = ([grid[place] for place in covering(grid, slow)] for slow in ((), ("tf",)))
    assert Counter(framework for _, framework in kept) == {"torch": 6, "tf": 6}
    assert Counter(framework for _, framework in thinned) == {"torch": 9, "tf": 3}


def test_a_list_of_cases_goes_through_the_frameworks_in_turn():
    turns = [in_turn(place, ("torch", "tf", "toy")) for place in range(8)]
    assert turns == ["torch", "toy", "torch", "tf"] * 2
    assert {in_turn(place, ("tf",)) for place in range(8)} == {"tf"}


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
    beside = [
        item for item in request.session.items if item.originalname == request.node.originalname
    ]
    attack = {item for item in beside if item.get_closest_marker("attack")}
    assert len(set(beside) - attack) in (0, 3)


@pytest.mark.twins
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_twins_leave_three_of_four_to_attack_in_tensorflow(framework, request):
    """This is the only one of its module; the fourth would run in both."""
    beside = [
        item for item in request.session.items if item.originalname == request.node.originalname
    ]
    for item in beside:
        assert (item.callspec.params["framework"] == "tf") == (
            item.get_closest_marker("attack") is not None
        )
