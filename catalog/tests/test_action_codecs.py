"""Raw actions into those of a space and back, against maps written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import NotServedError, UnsupportedSpaceError

HALF_OPEN = spaces.Box(
    np.array([-2, 0, -np.inf, -np.inf], np.float32), np.array([6, np.inf, 3, np.inf], np.float32), dtype=np.float32
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
    assert back.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipped_values_keep_their_dtype_and_shape_and_have_no_inverse(dtype):
    found = codec(spaces.Box(-1, 2, (2, 2), dtype))
    adapted = found.adapt(np.array([[-5, -1, 0.5, 9]], np.float32))
    assert adapted.dtype == dtype
    np.testing.assert_array_equal(adapted, [[[-1, -1], [0.5, 2]]])
    with pytest.raises(NotServedError, match="clipping has no inverse"):
        found.invert(adapted)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_nested_actions_go_there_and_back(kind):
    inner = [spaces.MultiDiscrete([2, 3], start=[5, -1]), spaces.Box(-2, 6, (2,), np.float32), spaces.MultiBinary(2)]
    outer = spaces.Tuple(inner) if kind == "tuple" else spaces.Dict(dict(zip("cab", inner, strict=True)))
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
            np.testing.assert_array_equal(codec(space).adapt(np.array([[-2, -1]], dtype)), [[-3, 2]])
    found = codec(spaces.Box(np.array([-3, 2]), np.array([1, 2]), dtype=np.int16))
    assert found.adapt(np.array([[1.4, 0.2], [2.6, 0]], np.float32)).tolist() == [[-2, 2], [0, 2]]


def test_beside_floats_as_many_whole_numbers_as_float32_tells_apart():
    floats = spaces.Box(-1, 1, (1,), np.float32)
    for most, made in ((2**24, lambda n: spaces.Box(0, n, (1,), np.int64)), (2**24 + 1, spaces.Discrete)):
        assert codec(spaces.Tuple([made(most), floats])).width == 2
        with pytest.raises(UnsupportedSpaceError, match="values cannot be told apart beside floats"):
            codec(spaces.Tuple([made(most + 1), floats]))
        codec(spaces.Tuple([made(most + 1), spaces.Discrete(2)]))  # whole numbers alone are int64


def test_what_counts_comes_back_as_int64_or_where_that_is_too_narrow_as_uint64():
    narrow, wide = (
        codec(spaces.Box(low, high, (2,), dtype)) for low, high, dtype in ((-3, 5, np.int16), (0, 2**64 - 1, np.uint64))
    )
    found = narrow.invert(np.array([[-3, 5]], np.int16))
    assert (found.dtype, found.tolist()) == (np.int64, [[0, 8]])
    found = wide.invert(np.array([[7, 2**64 - 1]], np.uint64))
    assert (found.dtype, found.tolist()) == (np.uint64, [[7, 2**64 - 1]])


def test_no_choices_at_all_are_no_floats():
    nothing = spaces.MultiDiscrete(np.zeros(0, np.int64))
    assert codec(spaces.Tuple([spaces.Discrete(2**24 + 2), nothing])).width == 1
