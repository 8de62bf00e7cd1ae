"""Raw actions into those of a space and back, against maps written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import ActionError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex

HALF_OPEN = spaces.Box(
    np.array([-2, 0, -np.inf, -np.inf], np.float32),
    np.array([6, np.inf, 3, np.inf], np.float32),
    dtype=np.float32,
)


def codec(space, bounds="clip", raw_kinds=None):
    return action_codec(SpaceInfo.read(space, "action"), bounds, raw_kinds or {})


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_discrete_values_have_the_dtype_of_their_space_and_begin_where_it_does(dtype):
    for start in (0, -3):
        space = spaces.Discrete(4, start=start, dtype=dtype)
        one, onehot = codec(space), codec(space, raw_kinds={"action": "onehot"})
        assert (one.width, onehot.width) == (1, 4)
        raw = np.array([[0], [3], [1]])
        for made, given in ((one, raw), (onehot, np.eye(4, dtype=np.float32)[raw[:, 0]])):
            found = made.adapt(given)
            assert found.dtype == dtype
            assert found.tolist() == [start, start + 3, start + 1]
            np.testing.assert_array_equal(made.invert(found), given)


def test_affine_bounds_map_the_interval_where_there_are_two_and_clip_elsewhere():
    found = codec(HALF_OPEN, "affine")
    raw = np.array([[-1, -1, -1, -1], [0, 0.5, 0.5, 5], [1, 9, 9, -9], [2, 1, 1, 1]], np.float32)
    expected = np.float32([[-2, 0, -1, -1], [2, 0.5, 0.5, 5], [6, 9, 3, -9], [6, 1, 1, 1]])
    np.testing.assert_array_equal(found.adapt(raw), expected)
    back = found.invert(found.adapt(raw[1:2]))
    np.testing.assert_allclose(back, raw[1:2], rtol=1e-6)
    assert back.dtype == np.float64  # fewer digits would give another action
    for action in (expected, np.float32([[0.1, 0.1, -7.3, 1e9]])):
        np.testing.assert_array_equal(found.adapt(found.invert(action)), action)


@pytest.mark.parametrize("bounds", ["clip", "affine"])
def test_between_equal_bounds_there_is_one_value(bounds):
    found = codec(spaces.Box(np.float32([-1, 2]), np.float32([1, 2]), dtype=np.float32), bounds)
    action = np.float32([[0.25, 2], [-1, 2]])
    np.testing.assert_array_equal(found.adapt(found.invert(action)), action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipped_values_keep_their_dtype_and_shape_and_are_their_own_raw_values(dtype):
    found = codec(spaces.Box(-1, 2, (2, 2), dtype))
    adapted = found.adapt(np.array([[-5, -1, 0.5, 9]], np.float32))
    assert adapted.dtype == dtype
    np.testing.assert_array_equal(adapted, [[[-1, -1], [0.5, 2]]])
    back = found.invert(adapted)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, [[-1, -1, 0.5, 2]])


@pytest.mark.parametrize("bounds", ["clip", "affine"])
@pytest.mark.parametrize("raw_kind", ["values", "bounded"])
@pytest.mark.parametrize("beyond", [-1.01, 2.0001, np.nan, np.inf])
def test_what_lies_beyond_the_bounds_has_no_raw_value(bounds, raw_kind, beyond):
    found = codec(spaces.Box(-1, 2, (2, 2), np.float32), bounds, {"action": raw_kind})
    action = np.float32([[[-1, 2], [0, 0]], [[0, 0], [beyond, 0]]])
    with pytest.raises(
        ActionError,
        match=r"actions: action: expected values within the bounds of Box\(.*; found .* in"
        r" row 1, at \[1, 0\]",
    ):
        found.invert(action)
    assert found.invert(action[:1]).shape == (1, 4)


def test_infinity_is_no_action_of_a_space_without_bounds():
    found = codec(HALF_OPEN)
    assert found.invert(np.float32([[0, 2e9, -2e9, 2e9]])).tolist() == [[0, 2e9, -2e9, 2e9]]
    with pytest.raises(ActionError, match="found inf in row 0"):
        found.invert(np.float32([[0, np.inf, 0, 0]]))


def test_a_number_of_more_digits_is_rounded_to_the_space_s_before_it_is_compared():
    found = codec(spaces.Box(-0.7, 0.7, (1,), np.float32))  # float32's 0.7 lies below 0.7
    assert found.invert([[0.7]]).tolist() == [[float(np.float32(0.7))]]


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_nested_actions_go_there_and_back(kind):
    inner = [
        spaces.MultiDiscrete([2, 3], start=[5, -1]),
        spaces.Box(-2, 6, (2,), np.float32),
        spaces.MultiBinary(2),
    ]
    outer = (
        spaces.Tuple(inner)
        if kind == "tuple"
        else spaces.Dict(dict(zip("cab", inner, strict=True)))
    )
    space = spaces.Tuple([spaces.Discrete(3, start=1), outer])
    found = codec(space, "affine")
    assert found.width == 7
    # A Dict has its keys in alphabetical order or in that of its making, as Gymnasium left them.
    keys = list(outer.spaces) if kind == "dict" else [0, 1, 2]
    pieces = {"MultiDiscrete": [1, 2], "Box": [0.5, -1.0], "MultiBinary": [0, 1]}
    raw = [2, *(value for key in keys for value in pieces[type(outer[key]).__name__])]
    adapted = found.adapt(np.array([raw, raw], np.float32))
    expected = {"MultiDiscrete": [6, 1], "Box": [4.0, -2.0], "MultiBinary": [0, 1]}
    assert adapted[0].tolist() == [3, 3]
    for key in keys:
        name = type(outer[key]).__name__
        np.testing.assert_array_equal(adapted[1][key], [expected[name]] * 2)
        assert adapted[1][key].dtype == outer[key].dtype
    np.testing.assert_array_equal(found.invert(adapted), [raw, raw])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
def test_values_that_count_are_cut_to_those_of_the_space(dtype):
    for space in (
        spaces.Box(np.array([-3, 2]), np.array([1, 2]), dtype=np.int16),
        spaces.MultiDiscrete([5, 1], start=[-3, 2]),
    ):
        raw = np.array([[0, 0], [4, 0], [9, 3]], dtype)
        np.testing.assert_array_equal(codec(space).adapt(raw), [[-3, 2], [1, 2], [1, 2]])
        if np.dtype(dtype).kind != "u":
            np.testing.assert_array_equal(
                codec(space).adapt(np.array([[-2, -1]], dtype)), [[-3, 2]]
            )
    found = codec(spaces.Box(np.array([-3, 2]), np.array([1, 2]), dtype=np.int16))
    assert found.adapt(np.array([[1.4, 0.2], [2.6, 0]], np.float32)).tolist() == [[-2, 2], [0, 2]]


def test_beside_floats_as_many_whole_numbers_as_float32_tells_apart():
    floats = spaces.Box(-1, 1, (1,), np.float32)
    for most, made in (
        (2**24, lambda n: spaces.Box(0, n, (1,), np.int64)),
        (2**24 + 1, spaces.Discrete),
    ):
        assert codec(spaces.Tuple([made(most), floats])).width == 2
        with pytest.raises(
            UnsupportedSpaceError, match="values cannot be distinguished next to floats"
        ):
            codec(spaces.Tuple([made(most + 1), floats]))
        codec(spaces.Tuple([made(most + 1), spaces.Discrete(2)]))  # whole numbers alone are int64


def test_what_counts_comes_back_as_int64_or_where_that_is_too_narrow_as_uint64():
    narrow, wide = (
        codec(spaces.Box(low, high, (2,), dtype))
        for low, high, dtype in ((-3, 5, np.int16), (0, 2**64 - 1, np.uint64))
    )
    found = narrow.invert(np.array([[-3, 5]], np.int16))
    assert (found.dtype, found.tolist()) == (np.int64, [[0, 8]])
    found = wide.invert(np.array([[7, 2**64 - 1]], np.uint64))
    assert (found.dtype, found.tolist()) == (np.uint64, [[7, 2**64 - 1]])


def test_no_choices_at_all_are_no_floats():
    nothing = spaces.MultiDiscrete(np.zeros(0, np.int64))
    assert codec(spaces.Tuple([spaces.Discrete(2**24 + 2), nothing])).width == 1


def test_whole_numbers_side_by_side_are_none_of_floats():
    wide, far = spaces.Box(0, 2**64 - 1, (1,), np.uint64), spaces.Discrete(2**60, start=-(2**60))
    found = codec(spaces.Tuple([far, wide])).invert(
        ([-1, -2], np.array([[2**64 - 1], [2**53 + 1]], np.uint64))
    )
    assert (found.dtype, found.tolist()) == (
        np.uint64,
        [[2**60 - 1, 2**64 - 1], [2**60 - 2, 2**53 + 1]],
    )
    found = codec(spaces.Tuple([far, spaces.Discrete(2)])).invert(([-1], [1]))
    assert (found.dtype, found.tolist()) == (np.int64, [[2**60 - 1, 1]])


WRONG = {
    "a choice beyond": (spaces.Discrete(3, start=-1), [0, 2], "from -1 to 1; found 2 in row 1"),
    "a choice below": (spaces.Discrete(3, start=-1), np.uint8([7]), "found 7 in row 0"),
    "half a choice": (spaces.Discrete(3), [0.5], "found 0.5 in row 0"),
    "a choice of no number": (
        spaces.Discrete(3),
        ["left"],
        r"numbers of shape \[B\]; found dtype <U4",
    ),
    "a column of choices": (
        spaces.Discrete(3),
        [[0], [1]],
        r"numbers of shape \[B\]; found shape \(2, 1\)",
    ),
    "one choice of several": (
        spaces.MultiDiscrete([2, 3]),
        [[1, 3]],
        r"found 3 in row 0, at \[1\]",
    ),
    "part of a number": (spaces.MultiDiscrete([2, 3]), [[1, 1.5]], r"found 1.5 in row 0, at \[1\]"),
    "a byte too many": (
        spaces.Box(250, 255, (1,), np.uint8),
        np.array([[256]]),
        r"found 256 in row 0, at \[0\]",
    ),
    "a list of them": (spaces.Box(250, 255, (1,), np.uint8), [[256]], "expected integers of Box"),
    "below the lowest": (spaces.Box(-3, 5, (1,), np.int16), np.int16([[-4]]), "found -4 in row 0"),
    "no bit": (spaces.MultiBinary(2), [[0, 2]], r"expected 0 or 1; found 2 in row 0, at \[1\]"),
    "no probabilities": (
        Simplex((2,)),
        [[0.5, 0.4]],
        "add up to 1 along the last axis; found 0.5 in row 0",
    ),
    "negative ones": (Simplex((2,)), [[1.5, -0.5]], r"found -0.5 in row 0, at \[1\]"),
    "a shape": (
        spaces.Box(-1, 1, (2,)),
        np.zeros((3, 1)),
        r"of shape \[B, 2\]; found shape \(3, 1\)",
    ),
    "rows of two lengths": (
        spaces.Box(-1, 1, (2,)),
        [[0, 0], [0]],
        r"\[B, 2\]; found something that is not an array",
    ),
    "a tuple too short": (
        spaces.Tuple([spaces.Discrete(2)] * 2),
        ([0],),
        "a tuple of 2 parts; found 1 of them",
    ),
    "no dict": (
        spaces.Dict(a=spaces.Discrete(2)),
        [0],
        r"a dict with the keys \['a'\]; found list",
    ),
    "another key": (
        spaces.Dict(a=spaces.Discrete(2)),
        {"b": [0]},
        r"the keys \['a'\]; found keys \['b'\]",
    ),
    "rows": (
        spaces.Tuple([spaces.Discrete(2)] * 2),
        ([0], [0, 1]),
        r"found 1 in action\[0\], 2 in action\[1\]",
    ),
    "a part": (
        spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)])),
        {"a": ([5],)},
        r"^actions: action\['a'\]\[0\]: ",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_action_of_the_space_is_refused_by_path(name):
    space, action, said = WRONG[name]
    with pytest.raises(ActionError, match=said) as raised:
        codec(space).invert(action)
    assert "actions: action" in str(raised.value)
