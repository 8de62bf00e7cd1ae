"""Spaces as plain JSON data: what is written, what is read, and the limits of data that is read."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ViewRequirement
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_policy import same_space, space_from_json, space_to_json

#: The largest number of entries that a space may have.
MOST = 1 << 25
DISCRETE_2 = {"space": "discrete", "n": 2, "start": 0, "dtype": "int64"}


def multi_binary(n):
    """Return the data of a space with n entries."""
    return {"space": "multi_binary", "n": n}


def box(shape):
    """Return the data of a Box from 0 to 1."""
    return {"space": "box", "dtype": "float32", "shape": shape, "low": "0.0", "high": "1.0"}


def tuple_of(*children):
    return {"space": "tuple", "children": list(children)}


# --- there and back -------------------------------------------------------------------------------

SMALLEST = np.nextafter(np.float32(0), np.float32(1))
SPACES = [
    spaces.Box(-1, 1, (), np.float32),
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(np.array([-np.inf, 0, -1], np.float32), np.array([0, np.inf, 2], np.float32)),
    spaces.Box(np.array([[0.1, -0.2]]), np.array([[1 / 3, 1e300]]), dtype=np.float64),
    spaces.Box(np.float32(-3.4e38), np.float32(3.4e38), (2,), np.float32),
    spaces.Box(SMALLEST, np.float32(1), (2,), np.float32),
    spaces.Box(-1, 1, (2,), np.float16),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(
        np.zeros((2, 3), np.uint8), np.arange(6, dtype=np.uint8).reshape(2, 3), dtype=np.uint8
    ),
    spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    spaces.Box(0, 2**64 - 1, (1,), np.uint64),
    spaces.Box(0, 1, (2, 2), np.bool_),
    spaces.Box(0, 1, (0, 3), np.float32),
    spaces.Box(0, 1, (0,), np.uint8),
    spaces.Discrete(5),
    spaces.Discrete(5, start=-3),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32, start=[[1, 0], [-2, 7]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.MultiBinary([3]),
    spaces.Text(12),
    spaces.Text(8, min_length=0, charset="ab\u00e9 \n\"'"),
    spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32)),
    spaces.Sequence(spaces.Discrete(3), stack=True),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), None),
    spaces.Graph(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.MultiBinary(2)])]),
    spaces.Tuple([]),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Dict({"x": spaces.Text(3)})}),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    spaces.Dict({}),
    Repeated(spaces.Dict({"hp": spaces.Box(0, 100, (1,), np.float32)}), 4),
    Repeated(Repeated(spaces.Discrete(3), 2), 5),
    Simplex((4,)),
    Simplex((2, 3), [0.5, 1.0, 2.0], np.float64),
]


def write_and_read(space):
    """Return the space that is read from the JSON text of a space."""
    text = json.dumps(space_to_json(space), allow_nan=False)  # strict JSON: no Infinity, no NaN
    return space_from_json(json.loads(text))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: str(space)[:40])
def test_space_comes_back_from_json(space):
    back = write_and_read(space)

    assert type(back) is type(space)
    assert back == space
    assert back.dtype == space.dtype
    assert back.shape == space.shape


BOXES = [space for space in SPACES if isinstance(space, spaces.Box)]


@pytest.mark.parametrize("space", BOXES, ids=lambda space: str(space)[:40])
def test_box_from_json_has_exactly_the_same_bounds(space):
    back = write_and_read(space)

    # == on spaces compares bounds with a tolerance.
    assert back.low.tobytes() == space.low.tobytes()
    assert back.high.tobytes() == space.high.tobytes()


@pytest.mark.parametrize("keys", [["z", "a"], ["b", "a"], []], ids=str)
def test_dict_from_json_has_its_keys_in_the_same_order(keys):
    back = write_and_read(spaces.Dict([(key, spaces.Discrete(2)) for key in keys]))

    assert list(back.spaces) == keys


def test_simplex_from_json_has_the_same_concentration():
    back = write_and_read(Simplex((2, 3), [0.5, 1.0, 2.0], np.float64))

    assert back.concentration.tolist() == [0.5, 1.0, 2.0]


# --- kinds ----------------------------------------------------------------------------------------


class Angle(spaces.Box):
    """A Box that means more than its base says."""


@pytest.mark.parametrize(
    "space",
    [
        Angle(0, 1, (2,)),
        spaces.Dict({"a": spaces.Tuple([Angle(0, 1, (2,))])}),
        spaces.Sequence(Angle(0, 1, (2,))),
        Repeated(Angle(0, 1, (2,)), 3),
        spaces.Graph(Angle(0, 1, (2,)), None),
    ],
    ids=lambda space: type(space).__name__,
)
def test_subclass_of_a_space_is_not_written_as_its_base(space):
    assert space_to_json(space) is None


def test_space_that_was_not_written_is_not_read():
    with pytest.raises(ValueError, match="its kind comes from a plugin"):
        space_from_json(None)


def test_kind_is_under_the_same_key_as_in_rllib():
    a_dict = spaces.Dict({"kind": spaces.Box(0, 1, (2,))})

    data = space_to_json(spaces.Tuple([spaces.Discrete(2), a_dict]))

    assert data["space"] == "tuple"
    assert [child["space"] for child in data["children"]] == ["discrete", "dict"]


def test_unknown_kind_is_rejected():
    with pytest.raises(ValueError, match="unknown kind of space 'hologram'"):
        space_from_json({"space": "hologram"})


@pytest.mark.parametrize(
    "data",
    [
        [],
        [DISCRETE_2],
        "discrete",
        3,
        {},
        {"space": 3},
        {"space": None},
        {"space": []},
        {"kind": "discrete", "n": 2, "start": 0, "dtype": "int64"},
    ],
    ids=repr,
)
def test_data_without_a_kind_is_rejected(data):
    with pytest.raises(ValueError, match="a table with a kind of space, found "):
        space_from_json(data)


@pytest.mark.parametrize("kind", ["sequence", "graph", "repeated"])
@pytest.mark.parametrize("children", [{}, {"children": []}], ids=["no-key", "empty-list"])
def test_kind_with_inner_spaces_needs_them(kind, children):
    with pytest.raises(ValueError, match=f"^{kind} without its inner spaces$"):
        space_from_json({"space": kind, "stack": False, "n": 3, **children})


# --- the number of entries ------------------------------------------------------------------------


def test_image_is_written_in_few_bytes():
    image = spaces.Box(0, 255, (210, 160, 3), np.uint8)

    # Equal bounds are written once.
    assert len(json.dumps(space_to_json(image))) < 150


@pytest.mark.parametrize(
    ("data", "space"),
    [
        pytest.param(multi_binary(MOST), spaces.MultiBinary(MOST), id="number"),
        pytest.param(
            multi_binary([MOST // 4, 2, 2]), spaces.MultiBinary([MOST // 4, 2, 2]), id="shape"
        ),
        pytest.param(
            {**multi_binary(MOST - 1), "original_space": multi_binary(1)},
            spaces.MultiBinary(MOST - 1),
            id="original-space",
        ),
    ],
)
def test_space_up_to_the_limit_is_read(data, space):
    assert space_from_json(data) == space


@pytest.mark.parametrize(
    "data",
    [
        # Discrete(2) has no entries.
        pytest.param(tuple_of(multi_binary(MOST - 3), multi_binary(3), DISCRETE_2), id="tuple"),
        pytest.param({**box([0, 1 << 40]), "low": [], "high": []}, id="empty-box"),
    ],
)
def test_space_with_inner_sizes_up_to_the_limit_is_read(data):
    space_from_json(data)  # no error


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(multi_binary(MOST + 1), id="number"),
        pytest.param(multi_binary([MOST // 2, 3]), id="shape"),
        pytest.param(tuple_of(multi_binary(MOST - 3), multi_binary(4)), id="tuple"),
        pytest.param(
            {**multi_binary(MOST), "original_space": multi_binary(1)}, id="original-space"
        ),
        pytest.param(
            {"space": "dict", "keys": ["a"], "children": [multi_binary(MOST + 1)]}, id="dict"
        ),
        pytest.param(
            {"space": "box", "shape": [MOST, 2], "dtype": "uint8", "low": "0", "high": "1"},
            id="box",
        ),
        pytest.param(
            {"space": "simplex", "shape": [MOST + 1], "concentration": 1.0, "dtype": "float32"},
            id="simplex",
        ),
        pytest.param(
            {**DISCRETE_2, "original_space": tuple_of(DISCRETE_2, multi_binary(2 * MOST))},
            id="tuple-in-original-space",
        ),
        pytest.param(
            {
                **box([3]),
                "original_space": {"space": "box", "dtype": "float32", "shape": [1 << 26]},
            },
            id="box-in-original-space",
        ),
    ],
)
def test_space_beyond_the_limit_is_not_built(data):
    with pytest.raises(ValueError, match=f"entries, but at most {MOST} are read"):
        space_from_json(data)


def test_error_for_a_large_space_counts_all_entries():
    data = tuple_of(
        multi_binary([MOST, 2]),
        {**multi_binary(5), "original_space": multi_binary(6)},
        multi_binary(7),
    )

    entries = 2 * MOST + 5 + 6 + 7
    with pytest.raises(ValueError, match=f"{entries} entries, but at most {MOST}"):
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
def test_invalid_shape_is_not_counted(shape):
    with pytest.raises((ValueError, TypeError)) as caught:
        space_from_json(box(shape))

    assert "entries" not in str(caught.value)


@pytest.mark.parametrize("children", [5, {"a": multi_binary(2 * MOST)}], ids=["number", "table"])
def test_children_that_are_not_list_are_not_counted(children):
    with pytest.raises((ValueError, TypeError)) as caught:
        space_from_json({"space": "tuple", "children": children})

    assert "entries" not in str(caught.value)


# --- the space that a space was created from ------------------------------------------------------


@pytest.fixture
def one_hot_space():
    """The space of encoded observations, which knows the space that it was created from."""
    original = spaces.Dict({"a": spaces.Discrete(3)})
    return rlcatalog.ModelCatalog.get_preprocessor_for_space(original).observation_space


def test_original_space_comes_back_from_json(one_hot_space):
    back = write_and_read(one_hot_space)

    assert back == one_hot_space
    assert back.original_space == spaces.Dict({"a": spaces.Discrete(3)})


def test_original_space_comes_back_with_a_view_requirement(one_hot_space):
    view = ViewRequirement("obs", space=one_hot_space, shift=-1)

    back = ViewRequirement.from_dict(json.loads(json.dumps(view.to_dict())))

    assert back.space.original_space == spaces.Dict({"a": spaces.Discrete(3)})


def test_original_space_is_written_beside_the_space():
    space = spaces.Box(0, 1, (2,))
    space.original_space = spaces.Discrete(2)

    assert space_to_json(space) == {**box([2]), "original_space": DISCRETE_2}


class UnknownSpace(gym.Space):
    """A kind of space that no codec can save."""

    def __init__(self):
        super().__init__((2,), np.float32)


@pytest.mark.parametrize("original", [UnknownSpace(), "no space"], ids=["unknown", "text"])
def test_original_space_that_cannot_be_saved_is_left_out(original):
    space = spaces.Box(0, 1, (2,))
    space.original_space = original

    assert space_to_json(space) == box([2])


def test_unknown_space_is_not_written_in_spite_of_its_original():
    space = UnknownSpace()
    space.original_space = spaces.Discrete(2)

    assert space_to_json(space) is None


# --- comparing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "is_same"), [pytest.param(2, True, id="same"), pytest.param(3, False, id="other")]
)
def test_spaces_are_compared_by_their_data(n, is_same):
    data = space_to_json(spaces.Dict({"a": spaces.Discrete(2)}))
    other = space_to_json(spaces.Dict({"a": spaces.Discrete(n)}))

    assert same_space(data, other) is is_same


def test_space_differs_from_one_that_was_not_written():
    assert not same_space(DISCRETE_2, None)


def test_original_space_is_not_compared(one_hot_space):
    box_of_three = spaces.Box(0, 1, (3,))

    assert same_space(space_to_json(one_hot_space), space_to_json(box_of_three))


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(tuple_of(box([2])), True, id="same"),
        pytest.param(tuple_of(box([3])), False, id="other-shape"),
        pytest.param(tuple_of(), False, id="no-children"),
    ],
)
def test_original_space_of_a_child_is_not_compared(other, is_same):
    child = {**box([2]), "original_space": DISCRETE_2}

    assert same_space(tuple_of(child), other) is is_same


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "low", "high"),
    [
        (spaces.Box(-1, 2, (2, 2), np.float32), "-1.0", "2.0"),
        (spaces.Box(0, 255, (3,), np.uint8), "0", "255"),
        (spaces.Box(-np.inf, np.inf, (3,)), "-inf", "inf"),
        (spaces.Box(0, 1, (2,), np.bool_), "False", "True"),
    ],
    ids=str,
)
def test_equal_bounds_are_written_once(space, low, high):
    data = space_to_json(space)

    assert data["low"] == low
    assert data["high"] == high


def test_bounds_that_differ_are_written_as_a_list():
    space = spaces.Box(np.array([0, 0.5]), np.array([1.0, 1.0]), dtype=np.float64)

    data = space_to_json(space)

    assert data["low"] == ["0.0", "0.5"]
    assert data["high"] == "1.0"


def test_bounds_of_a_matrix_are_written_as_nested_lists():
    space = spaces.Box(np.array([[0, 0], [0, 1]]), np.array([[2, 2], [3, 2]]), dtype=np.int64)

    data = space_to_json(space)

    assert data["low"] == [["0", "0"], ["0", "1"]]
    assert data["high"] == [["2", "2"], ["3", "2"]]


def test_bounds_of_an_empty_box_are_empty():
    data = space_to_json(spaces.Box(0, 1, (0,), np.float32))

    assert data["low"] == []
    assert data["high"] == []
