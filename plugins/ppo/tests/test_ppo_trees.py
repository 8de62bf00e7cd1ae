"""A training state as JSON and arrays."""

from __future__ import annotations

import json
from collections import deque

import numpy as np
import pytest

from rlcatalog_ppo.trees import put_together, stack_steps, take_apart


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ((True, None), {"$tuple": [True, None]}),
        (deque([2.5], 4), {"$deque": [2.5]}),
        (b"\0\xff", {"$bytes": "AP8="}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (1.0, 1.0),
        ("$array", "$array"),
        ({"list": [1, {"a": ()}]}, {"list": [1, {"a": {"$tuple": []}}]}),
    ],
    ids=str,
)
def test_take_apart_writes_each_type_as_json(value, data):
    arrays = {}

    assert take_apart(value, arrays) == data
    assert arrays == {}


def test_take_apart_names_arrays_by_their_place():
    tree = {"list": [1, np.zeros(2)], "dict": {"tuple": (np.int8(3), "text")}}
    arrays = {}

    data = take_apart(tree, arrays)

    assert data == {
        "list": [1, {"$array": "list/1"}],
        "dict": {"tuple": {"$tuple": [{"$array": "dict/tuple/0"}, "text"]}},
    }
    assert arrays.keys() == {"list/1", "dict/tuple/0"}
    assert arrays["list/1"].tolist() == [0.0, 0.0]
    assert arrays["dict/tuple/0"] == 3


@pytest.mark.parametrize(
    ("tree", "place", "data", "name"),
    [
        ([np.zeros(1)], "", [{"$array": "0"}], "0"),
        (np.zeros(1), "", {"$array": "value"}, "value"),
        (np.uint8(1), "here", {"$array": "here"}, "here"),
        ([np.zeros(1)], "at", [{"$array": "at/0"}], "at/0"),
        ([0, {"a": np.zeros(1)}], "at", [0, {"a": {"$array": "at/1/a"}}], "at/1/a"),
    ],
    ids=["list", "array", "number-at-a-place", "list-at-a-place", "dict-at-a-place"],
)
def test_take_apart_begins_names_with_the_place(tree, place, data, name):
    arrays = {}

    assert take_apart(tree, arrays, place) == data
    assert arrays.keys() == {name}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [0, {"b": {1}}]}, "a/1/b: set cannot be saved"),
        ({1: 2}, "the state: the key 1 cannot be saved"),
        ({"a": {("x",): 2}}, r"a: the key \('x',\) cannot be saved"),
        ({"$array": 1}, r"the state: the key '\$array' cannot"),
        (np.array(["x"]), "the state: ndarray cannot be saved"),
        ({"a": np.array([1j])}, "a: ndarray cannot be saved"),
        (np.array([None]), "the state: ndarray cannot"),
        (np.str_("x"), "the state: str_ cannot"),
        ({1}, "the state: set cannot"),
        ([...], "0: ellipsis cannot be saved"),
    ],
    ids=str,
)
def test_take_apart_names_the_place_of_an_unknown_type(tree, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        take_apart(tree, {})


@pytest.mark.parametrize("mark", ["$array", "$tuple", "$deque", "$bytes", "$float"])
def test_take_apart_rejects_its_own_marks_as_keys(mark):
    with pytest.raises(TypeError, match=rf"^a/0: the key '\{mark}' cannot"):
        take_apart({"a": [{mark: 1}]}, {})


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ([1, {"$tuple": [1, {"$deque": [2]}]}], [1, (1, deque([2]))]),
        ({"$bytes": "AP8="}, b"\0\xff"),
        ({"$float": "inf"}, float("inf")),
        ({}, {}),
        # Beside another key, a mark is a key as any other.
        ({"$tuple": [1], "other": 2}, {"$tuple": [1], "other": 2}),
        ({"plain": {"$tuple": []}}, {"plain": ()}),
        (None, None),
    ],
    ids=str,
)
def test_put_together_reads_json_of_each_type(data, value):
    assert put_together(data, arrays={}) == value


def test_put_together_takes_arrays_by_their_names():
    array = np.arange(3)

    tree = put_together({"a": [{"$array": "x"}]}, {"x": array})

    assert tree["a"][0] is array


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("$array", "no such name"),
        ("$array", []),
        ("$bytes", "!!!!"),
        ("$bytes", "A"),
        ("$float", "x"),
        ("$tuple", 3),
    ],
)
def test_put_together_rejects_wrong_values_of_marks(mark, value):
    with pytest.raises(ValueError, match=rf"^\{mark}: "):
        put_together([{mark: value}], {"x": np.arange(3)})


def test_tree_is_the_same_after_json():
    tree = {
        "list": [1, 2.5, True, None, "text"],
        "tuple": (float("inf"), -0.0),
        "dict": {"bytes": b"\0\1", "empty": {}},
        "large": 2**100,
        "empty": [],
    }

    text = json.dumps(take_apart(tree, arrays={}), allow_nan=False)

    assert put_together(json.loads(text), arrays={}) == tree


def test_arrays_of_a_tree_are_the_same_after_json():
    tree = {"array": (np.arange(3),), "number": np.float32(0.1)}
    arrays = {}

    text = json.dumps(take_apart(tree, arrays))
    restored = put_together(json.loads(text), arrays)

    assert restored.keys() == tree.keys()
    np.testing.assert_array_equal(restored["array"][0], np.arange(3))
    assert restored["number"] == np.float32(0.1)
    assert restored["number"].dtype == np.float32


@pytest.mark.parametrize("count", [1, 4])
def test_stack_steps_stacks_the_arrays_of_a_structure(count):
    step = {"a": np.zeros(2), "b": (np.ones(2), {"c": np.zeros((2, 3))})}

    steps = stack_steps([step] * count)

    assert steps["a"].shape == (count, 2)
    assert isinstance(steps["b"], tuple)
    assert steps["b"][0].shape == (count, 2)
    assert steps["b"][1]["c"].shape == (count, 2, 3)
