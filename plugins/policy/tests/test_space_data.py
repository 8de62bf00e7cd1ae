"""Spaces as plain data: what is read, what is refused before it takes memory, and how bounds are
written.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.spaces import Repeated
from rlcatalog_policy import same_space, space_from_json, space_to_json

MOST = 1 << 25
TWO = {"space": "discrete", "n": 2, "start": 0, "dtype": "int64"}


def bits(n):
    return {"space": "multi_binary", "n": n}


def box(shape):
    return {"space": "box", "dtype": "float32", "shape": shape, "low": "0.0", "high": "1.0"}


@pytest.mark.parametrize(
    ("data", "space"),
    [
        (bits(MOST), spaces.MultiBinary(MOST)),
        (bits([MOST // 4, 2, 2]), spaces.MultiBinary([MOST // 4, 2, 2])),
        ({**box([0, 1 << 40]), "low": [], "high": []}, None),
        ({"space": "tuple", "children": [bits(MOST - 3), bits(3), TWO]}, None),
        ({**bits(MOST - 1), "original_space": bits(1)}, spaces.MultiBinary(MOST - 1)),
    ],
    ids=["number", "shape", "empty", "tuple", "origin"],
)
def test_as_many_entries_as_the_limit_are_read(data, space):
    space_read = space_from_json(data)
    assert space is None or space_read == space
    if "original_space" in data:
        assert space_read.original_space == spaces.MultiBinary(1)


@pytest.mark.parametrize(
    "data",
    [
        bits(MOST + 1),
        bits([MOST // 2, 3]),
        {"space": "tuple", "children": [bits(MOST - 3), bits(4)]},
        {**bits(MOST), "original_space": bits(1)},
        {"space": "dict", "keys": ["a"], "children": [bits(MOST + 1)]},
        {"space": "box", "shape": [MOST, 2], "dtype": "uint8", "low": "0", "high": "1"},
        {"space": "simplex", "shape": [MOST + 1], "concentration": 1.0, "dtype": "float32"},
        {**TWO, "original_space": {"space": "tuple", "children": [TWO, bits(2 * MOST)]}},
    ],
    ids=["number", "shape", "tuple", "origin", "dict", "box", "simplex", "inside an origin"],
)
def test_more_entries_are_refused_before_they_take_memory(data):
    with pytest.raises(
        ValueError,
        match=f"it has 33554433|it has .* entries, but at most {MOST} are read from a file",
    ):
        space_from_json(data)


def test_how_many_entries_there_are_is_named():
    data = {
        "space": "tuple",
        "children": [bits([MOST, 2]), {**bits(5), "original_space": bits(6)}, bits(7)],
    }
    with pytest.raises(
        ValueError, match=f"it has {2 * MOST + 18} entries, but at most {MOST} are read from a file"
    ):
        space_from_json(data)


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [-(1 << 20), -(1 << 20)],
        [1.5, 1 << 40],
        [-1.5, -(1 << 40)],
        ["a"],
        "ab",
        None,
        {"a": 1},
    ],
    ids=repr,
)
def test_shape_of_other_things_is_no_large_shape(shape):
    with pytest.raises((ValueError, TypeError)) as caught:
        space_from_json(box(shape))
    assert "entries" not in str(caught.value)


def test_children_that_are_no_list_are_refused():
    for children in (5, {"a": bits(2 * MOST)}):
        with pytest.raises((ValueError, TypeError)) as caught:
            space_from_json({"space": "tuple", "children": children})
        assert "entries" not in str(caught.value)


@pytest.mark.parametrize("kind", ["sequence", "graph", "repeated"])
def test_kind_with_inner_spaces_needs_them(kind):
    for data in (
        {"space": kind, "stack": False, "n": 3},
        {"space": kind, "stack": False, "n": 3, "children": []},
    ):
        with pytest.raises(ValueError, match=f"^{kind} without its inner spaces$"):
            space_from_json(data)
    space_read = space_from_json(
        {"space": kind, "stack": False, "n": 3, "children": [TWO if kind != "graph" else box([2])]}
    )
    expected = {
        "sequence": spaces.Sequence(spaces.Discrete(2)),
        "graph": spaces.Graph(spaces.Box(0, 1, (2,)), None),
        "repeated": Repeated(spaces.Discrete(2), 3),
    }
    assert space_read == expected[kind]


@pytest.mark.parametrize(
    "data", [[], [TWO], "discrete", 3, {}, {"space": 3}, {"space": None}, {"space": []}], ids=repr
)
def test_what_is_no_table_with_a_kind_is_refused(data):
    with pytest.raises(ValueError, match="expected a table with a kind of space, found "):
        space_from_json(data)


class Outsider(gym.Space):
    """A kind of space that no codec saves."""

    def __init__(self):
        super().__init__((2,), np.float32)


def test_origin_that_cannot_be_saved_is_left_out():
    space = spaces.Box(0, 1, (2,))
    space.original_space = Outsider()
    assert space_to_json(space) == box([2])
    space.original_space = "no space"
    assert space_to_json(space) == box([2])
    space.original_space = spaces.Discrete(2)
    assert space_to_json(space) == {**box([2]), "original_space": TWO}
    outsider = Outsider()
    outsider.original_space = spaces.Discrete(2)
    assert space_to_json(outsider) is None


def test_origins_are_not_compared_at_any_level():
    inner = {**box([2]), "original_space": TWO}
    assert same_space(
        {"space": "tuple", "children": [inner]}, {"space": "tuple", "children": [box([2])]}
    )
    assert not same_space(
        {"space": "tuple", "children": [inner]}, {"space": "tuple", "children": [box([3])]}
    )
    assert not same_space(
        {"space": "tuple", "children": [inner]}, {"space": "tuple", "children": []}
    )


def written(*arguments, **options):
    data = space_to_json(spaces.Box(*arguments, **options))
    return data["low"], data["high"]


def test_equal_bounds_are_written_once_and_others_one_by_one():
    assert written(-1, 2, (2, 2), np.float32) == ("-1.0", "2.0")
    assert written(0, 255, (3,), np.uint8) == ("0", "255")
    assert written(-np.inf, np.inf, (3,)) == ("-inf", "inf")
    assert written(np.array([0, 0.5]), np.array([1.0, 1.0]), dtype=np.float64) == (
        ["0.0", "0.5"],
        "1.0",
    )
    assert written(np.array([[0, 0], [0, 1]]), np.array([[2, 2], [3, 2]]), dtype=np.int64) == (
        [["0", "0"], ["0", "1"]],
        [["2", "2"], ["3", "2"]],
    )
    assert written(0, 1, (0,), np.float32) == ([], [])
    assert written(0, 1, (2,), np.bool_) == ("False", "True")
    assert written(np.zeros(2, bool), np.array([True, False]), dtype=np.bool_) == (
        "False",
        ["True", "False"],
    )


def test_bounds_are_read_exactly_as_they_were_written():
    for dtype, low, high in (
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", 0, 2**64 - 1),
        ("float64", 0.1, 1 / 3),
    ):
        space_read = space_from_json(
            {
                "space": "box",
                "dtype": dtype,
                "shape": [2],
                "low": repr(low),
                "high": [repr(high)] * 2,
            }
        )
        assert space_read.low.tolist() == [low, low]
        assert space_read.high.tolist() == [high, high]
        assert space_read.dtype == np.dtype(dtype)
    space_read = space_from_json(
        {"space": "box", "dtype": "bool", "shape": [2], "low": ["False", "True"], "high": "True"}
    )
    assert (space_read.low.tolist(), space_read.high.tolist()) == ([False, True], [True, True])
    space_read = space_from_json(
        {"space": "box", "dtype": "uint8", "shape": [1, 2], "low": [["1", "2"]], "high": "3"}
    )
    assert (space_read.low.tolist(), space_read.high.tolist()) == ([[1, 2]], [[3, 3]])
