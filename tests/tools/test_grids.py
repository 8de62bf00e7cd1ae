"""What `make test` runs of a grid: each value of each parameter, in few combinations."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from grids import covering


def make_grid(*sizes):
    """Return all combinations of numbers below the sizes."""
    return list(itertools.product(*map(range, sizes)))


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 7), (7, 2), (3, 2, 4), (2, 2, 2, 2)])
def test_covering_has_every_value_of_every_parameter(sizes):
    grid = make_grid(*sizes)
    chosen = [grid[place] for place in covering(grid)]
    for parameter, size in enumerate(sizes):
        values = {combination[parameter] for combination in chosen}
        assert values == set(range(size))


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 7), (7, 2), (3, 2, 4), (2, 2, 2, 2)])
def test_covering_has_few_combinations_and_none_twice(sizes):
    places = covering(make_grid(*sizes))
    # The largest parameter needs one each; the others may add one each.
    assert len(places) <= max(sizes) + len(sizes) - 1
    assert len(places) == len(set(places))


def test_covering_of_a_grid_with_gaps_covers_it():
    grid = [("a", 0), ("a", 1), ("b", 1), ("c", 2)]
    assert covering(grid) == [0, 2, 3]  # a and 0, b and 1, c and 2


@pytest.mark.parametrize(
    ("slow", "expected"),
    [((), {"torch": 6, "tf": 6}), (("tf",), {"torch": 9, "tf": 3})],
    ids=["equal shares", "a quarter for a slow framework"],
)
def test_covering_shares_cases_between_frameworks(slow, expected):
    grid = list(itertools.product(range(12), ("torch", "tf")))
    chosen = [grid[place] for place in covering(grid, slow)]
    assert Counter(framework for _, framework in chosen) == expected


def cases_of_this_test(request):
    """Return all cases of the running test that pytest collected."""
    name = request.node.originalname
    return [item for item in request.session.items if item.originalname == name]


@pytest.mark.grid
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", range(3))
def test_grid_mark_leaves_half_of_six_cases_to_attack(case, framework, request):
    cases = cases_of_this_test(request)
    of_make_test = [item for item in cases if not item.get_closest_marker("slow")]
    # None if this is `make attack`, which runs the others.
    assert len(of_make_test) in (0, 3)


@pytest.mark.twins
@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_twins_mark_leaves_cases_in_tensorflow_to_attack(framework, request):
    # Three of four tests of a module do; this is the first of this module with the mark.
    for item in cases_of_this_test(request):
        is_slow = item.get_closest_marker("slow") is not None
        assert is_slow == (item.callspec.params["framework"] == "tf")
