"""Action codecs: raw actions of a distribution to actions of the space (`adapt`) and back
(`invert`), compared with values worked out by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.errors import ActionError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex

#: One dimension with both bounds, one with a lower, one with an upper bound, one without bounds.
MIXED_BOUNDS = spaces.Box(
    np.array([-2, 0, -np.inf, -np.inf], np.float32),
    np.array([6, np.inf, 3, np.inf], np.float32),
    dtype=np.float32,
)

#: float32 has a significand of 24 bits, so it represents every integer up to this one.
LARGEST_EXACT_FLOAT32 = 2**24


def make_codec(space, *, bounds="clip", raw_kind=None):
    """Return the codec of `space`; `raw_kind` says what the distribution's raw actions are."""
    raw_kinds = {}
    if raw_kind is not None:
        raw_kinds["action"] = raw_kind
    return action_codec(SpaceInfo.read(space, "action"), bounds, raw_kinds)


# --- discrete spaces ------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, -3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_discrete_index_is_counted_from_start(dtype, start):
    codec = make_codec(spaces.Discrete(4, start=start, dtype=dtype))
    raw = np.array([[0], [3], [1]])

    action = codec.adapt(raw)

    assert codec.width == 1
    assert action.dtype == dtype
    assert action.tolist() == [start, start + 3, start + 1]
    np.testing.assert_array_equal(codec.invert(action), raw)


@pytest.mark.parametrize("start", [0, -3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_discrete_onehot_is_counted_from_start(dtype, start):
    codec = make_codec(spaces.Discrete(4, start=start, dtype=dtype), raw_kind="onehot")
    raw = np.eye(4, dtype=np.float32)[[0, 3, 1]]

    action = codec.adapt(raw)

    assert codec.width == 4
    assert action.dtype == dtype
    assert action.tolist() == [start, start + 3, start + 1]
    np.testing.assert_array_equal(codec.invert(action), raw)


# --- bounds of a Box ------------------------------------------------------------------------------


def test_affine_bounds_scale_bounded_dimensions_and_clip_others():
    codec = make_codec(MIXED_BOUNDS, bounds="affine")
    raw = np.float32([[-1, -1, -1, -1], [0, 0.5, 0.5, 5], [1, 9, 9, -9], [2, 1, 1, 1]])

    action = codec.adapt(raw)

    # Column 0 maps [-1, 1] to [-2, 6]; columns 1 and 2 are clipped; column 3 has no bounds.
    expected = np.float32([[-2, 0, -1, -1], [2, 0.5, 0.5, 5], [6, 9, 3, -9], [6, 1, 1, 1]])
    np.testing.assert_array_equal(action, expected)


def test_affine_bounds_inverse_returns_raw_action():
    codec = make_codec(MIXED_BOUNDS, bounds="affine")
    raw = np.float32([[0, 0.5, 0.5, 5]])

    restored = codec.invert(codec.adapt(raw))

    np.testing.assert_allclose(restored, raw, rtol=1e-6)
    assert restored.dtype == np.float64  # a float32 could map to a different action


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(
            [[-2, 0, -1, -1], [2, 0.5, 0.5, 5], [6, 9, 3, -9], [6, 1, 1, 1]], id="at-the-bounds"
        ),
        pytest.param([[0.1, 0.1, -7.3, 1e9]], id="within-the-bounds"),
    ],
)
def test_affine_bounds_round_trip_keeps_action(action):
    codec = make_codec(MIXED_BOUNDS, bounds="affine")
    action = np.float32(action)

    restored = codec.adapt(codec.invert(action))

    np.testing.assert_array_equal(restored, action)


@pytest.mark.parametrize("bounds", ["clip", "affine"])
def test_equal_bounds_round_trip_keeps_action(bounds):
    only_value = 2  # the lower and the upper bound of the second dimension
    space = spaces.Box(np.float32([-1, only_value]), np.float32([1, only_value]), dtype=np.float32)
    codec = make_codec(space, bounds=bounds)
    action = np.float32([[0.25, only_value], [-1, only_value]])

    restored = codec.adapt(codec.invert(action))

    np.testing.assert_array_equal(restored, action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip_bounds_keep_dtype_and_shape(dtype):
    codec = make_codec(spaces.Box(-1, 2, (2, 2), dtype), bounds="clip")

    action = codec.adapt(np.array([[-5, -1, 0.5, 9]], np.float32))

    assert action.dtype == dtype
    np.testing.assert_array_equal(action, [[[-1, -1], [0.5, 2]]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip_bounds_inverse_only_flattens_action(dtype):
    codec = make_codec(spaces.Box(-1, 2, (2, 2), dtype), bounds="clip")

    raw = codec.invert(np.array([[[-1, -1], [0.5, 2]]], dtype))

    assert raw.dtype == dtype
    np.testing.assert_array_equal(raw, [[-1, -1, 0.5, 2]])


@pytest.mark.parametrize("bounds", ["clip", "affine"])
@pytest.mark.parametrize("raw_kind", ["values", "bounded"])
@pytest.mark.parametrize(
    "out_of_bounds",
    [
        pytest.param(-1.01, id="below-low"),
        pytest.param(2.0001, id="above-high"),
        pytest.param(np.nan, id="nan"),
        pytest.param(np.inf, id="infinity"),
    ],
)
def test_box_action_out_of_bounds_is_rejected(bounds, raw_kind, out_of_bounds):
    codec = make_codec(spaces.Box(-1, 2, (2, 2), np.float32), bounds=bounds, raw_kind=raw_kind)
    action = np.float32([[[-1, 2], [0, 0]], [[0, 0], [out_of_bounds, 0]]])

    with pytest.raises(ActionError, match="expected values within the bounds") as caught:
        codec.invert(action)

    assert "in row 1, at [1, 0]" in str(caught.value)
    assert str(caught.value).startswith("actions: action: ")
    assert codec.invert(action[:1]).shape == (1, 4)  # the first row alone is valid


def test_unbounded_box_accepts_large_values():
    codec = make_codec(MIXED_BOUNDS)

    raw = codec.invert(np.float32([[0, 2e9, -2e9, 2e9]]))

    assert raw.tolist() == [[0, 2e9, -2e9, 2e9]]


def test_unbounded_box_rejects_infinity():
    codec = make_codec(MIXED_BOUNDS)

    with pytest.raises(ActionError, match="found inf in row 0"):
        codec.invert(np.float32([[0, np.inf, 0, 0]]))


def test_float64_action_is_rounded_before_bounds_are_checked():
    # float32(0.7) is less than 0.7, so without rounding 0.7 would lie above the upper bound.
    codec = make_codec(spaces.Box(-0.7, 0.7, (1,), np.float32))

    raw = codec.invert([[0.7]])

    assert raw.tolist() == [[float(np.float32(0.7))]]


# --- nested spaces --------------------------------------------------------------------------------

INNER_SPACES = {
    "choices": spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "numbers": spaces.Box(-2, 6, (2,), np.float32),
    "bits": spaces.MultiBinary(2),
}
INNER_RAW = {"choices": [1, 2], "numbers": [0.5, -1.0], "bits": [0, 1]}
#: "choices" adds its start; "numbers" maps [-1, 1] to [-2, 6]; "bits" stay as they are.
INNER_ACTIONS = {"choices": [6, 1], "numbers": [4.0, -2.0], "bits": [0, 1]}


def check_nested_action(*, outer, keys, names):
    """Adapt and invert two equal rows of `outer` behind a Discrete, and compare each part.

    `names[i]` is the entry of `INNER_SPACES` that stands under `keys[i]`.
    """
    codec = make_codec(spaces.Tuple([spaces.Discrete(3, start=1), outer]), bounds="affine")
    raw_row = [2]  # Discrete: index 2, and start 1 makes it the action 3
    for name in names:
        raw_row.extend(INNER_RAW[name])
    raw = np.array([raw_row, raw_row], np.float32)

    discrete, inner = codec.adapt(raw)

    assert codec.width == 7
    assert discrete.tolist() == [3, 3]
    for key, name in zip(keys, names, strict=True):
        np.testing.assert_array_equal(inner[key], [INNER_ACTIONS[name]] * 2)
        assert inner[key].dtype == outer[key].dtype
    np.testing.assert_array_equal(codec.invert((discrete, inner)), raw)


def test_nested_tuple_round_trip():
    outer = spaces.Tuple(list(INNER_SPACES.values()))
    check_nested_action(outer=outer, keys=range(3), names=list(INNER_SPACES))


def test_nested_dict_round_trip():
    # Gymnasium may sort the keys, so that the order is taken from the space itself.
    name_of_key = {"c": "choices", "a": "numbers", "b": "bits"}
    outer = spaces.Dict({key: INNER_SPACES[name] for key, name in name_of_key.items()})
    keys = list(outer.spaces)
    check_nested_action(outer=outer, keys=keys, names=[name_of_key[key] for key in keys])


# --- integers -------------------------------------------------------------------------------------

#: Two spaces with the same values: the first dimension has -3 … 1, the second has 2 alone.
EQUAL_INTEGER_SPACES = [
    pytest.param(spaces.Box(np.array([-3, 2]), np.array([1, 2]), dtype=np.int16), id="box"),
    pytest.param(spaces.MultiDiscrete([5, 1], start=[-3, 2]), id="multi-discrete"),
]


@pytest.mark.parametrize("space", EQUAL_INTEGER_SPACES)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
def test_integer_indices_above_the_last_are_clipped(space, dtype):
    raw = np.array([[0, 0], [4, 0], [9, 3]], dtype)

    action = make_codec(space).adapt(raw)

    np.testing.assert_array_equal(action, [[-3, 2], [1, 2], [1, 2]])


@pytest.mark.parametrize("space", EQUAL_INTEGER_SPACES)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_negative_integer_indices_are_clipped(space, dtype):
    action = make_codec(space).adapt(np.array([[-2, -1]], dtype))

    np.testing.assert_array_equal(action, [[-3, 2]])


def test_fractional_indices_of_integer_box_are_rounded():
    codec = make_codec(spaces.Box(np.array([-3, 2]), np.array([1, 2]), dtype=np.int16))

    action = codec.adapt(np.array([[1.4, 0.2], [2.6, 0]], np.float32))

    assert action.tolist() == [[-3 + 1, 2], [-3 + 3, 2]]


@pytest.mark.parametrize(
    ("largest", "make_space"),
    [
        pytest.param(LARGEST_EXACT_FLOAT32, lambda n: spaces.Box(0, n, (1,), np.int64), id="box"),
        # Discrete(n) has the indices 0 … n - 1.
        pytest.param(LARGEST_EXACT_FLOAT32 + 1, spaces.Discrete, id="discrete"),
    ],
)
def test_integers_beside_floats_must_be_exact_in_float32(largest, make_space):
    floats = spaces.Box(-1, 1, (1,), np.float32)

    assert make_codec(spaces.Tuple([make_space(largest), floats])).width == 2
    with pytest.raises(UnsupportedSpaceError, match="cannot be distinguished next to floats"):
        make_codec(spaces.Tuple([make_space(largest + 1), floats]))
    # Without floats beside them, the raw actions are int64 and hold larger integers.
    make_codec(spaces.Tuple([make_space(largest + 1), spaces.Discrete(2)]))


def test_empty_multi_discrete_does_not_count_as_floats():
    large = spaces.Discrete(LARGEST_EXACT_FLOAT32 + 2)
    empty = spaces.MultiDiscrete(np.zeros(0, np.int64))

    assert make_codec(spaces.Tuple([large, empty])).width == 1


def test_raw_integers_are_int64():
    codec = make_codec(spaces.Box(-3, 5, (2,), np.int16))

    raw = codec.invert(np.array([[-3, 5]], np.int16))

    assert raw.dtype == np.int64
    assert raw.tolist() == [[0, 8]]  # counted from the lower bound, -3


def test_raw_integers_beyond_int64_are_uint64():
    codec = make_codec(spaces.Box(0, 2**64 - 1, (2,), np.uint64))

    raw = codec.invert(np.array([[7, 2**64 - 1]], np.uint64))

    assert raw.dtype == np.uint64
    assert raw.tolist() == [[7, 2**64 - 1]]


def test_large_integers_beside_uint64_stay_exact():
    discrete = spaces.Discrete(2**60, start=-(2**60))
    box = spaces.Box(0, 2**64 - 1, (1,), np.uint64)
    codec = make_codec(spaces.Tuple([discrete, box]))

    raw = codec.invert(([-1, -2], np.array([[2**64 - 1], [2**53 + 1]], np.uint64)))

    assert raw.dtype == np.uint64
    # The index of -1 is -1 - start; float64 could not hold 2**53 + 1.
    assert raw.tolist() == [[2**60 - 1, 2**64 - 1], [2**60 - 2, 2**53 + 1]]


def test_large_integers_beside_small_ones_stay_exact():
    discrete = spaces.Discrete(2**60, start=-(2**60))
    codec = make_codec(spaces.Tuple([discrete, spaces.Discrete(2)]))

    raw = codec.invert(([-1], [1]))

    assert raw.dtype == np.int64
    assert raw.tolist() == [[2**60 - 1, 1]]  # the index of -1 is -1 - start


# --- invalid actions ------------------------------------------------------------------------------

#: Label → space, an action that does not belong to it, and what the message says.
INVALID_ACTIONS = {
    "discrete-too-large": (
        spaces.Discrete(3, start=-1),
        [0, 2],
        "from -1 to 1; found 2 in row 1",
    ),
    "discrete-too-large-for-negative-start": (
        spaces.Discrete(3, start=-1),
        np.uint8([7]),
        "found 7 in row 0",
    ),
    "discrete-fraction": (spaces.Discrete(3), [0.5], "found 0.5 in row 0"),
    "discrete-text": (spaces.Discrete(3), ["left"], "found dtype <U4"),
    "discrete-column": (spaces.Discrete(3), [[0], [1]], r"found shape \(2, 1\)"),
    "multi-discrete-too-large": (
        spaces.MultiDiscrete([2, 3]),
        [[1, 3]],
        r"found 3 in row 0, at \[1\]",
    ),
    "multi-discrete-fraction": (
        spaces.MultiDiscrete([2, 3]),
        [[1, 1.5]],
        r"found 1.5 in row 0, at \[1\]",
    ),
    "uint8-box-too-large": (
        spaces.Box(250, 255, (1,), np.uint8),
        np.array([[256]]),
        r"found 256 in row 0, at \[0\]",
    ),
    "uint8-box-list-too-large": (
        spaces.Box(250, 255, (1,), np.uint8),
        [[256]],
        "expected integers of Box",
    ),
    "int16-box-too-small": (
        spaces.Box(-3, 5, (1,), np.int16),
        np.int16([[-4]]),
        "found -4 in row 0",
    ),
    "multi-binary-two": (
        spaces.MultiBinary(2),
        [[0, 2]],
        r"expected 0 or 1; found 2 in row 0, at \[1\]",
    ),
    "simplex-sum-below-one": (Simplex((2,)), [[0.5, 0.4]], "add up to 1 along the last axis"),
    "simplex-negative": (Simplex((2,)), [[1.5, -0.5]], r"found -0.5 in row 0, at \[1\]"),
    "box-wrong-shape": (spaces.Box(-1, 1, (2,)), np.zeros((3, 1)), r"found shape \(3, 1\)"),
    "box-ragged-rows": (
        spaces.Box(-1, 1, (2,)),
        [[0, 0], [0]],
        "found something that is not an array",
    ),
    "tuple-too-short": (
        spaces.Tuple([spaces.Discrete(2)] * 2),
        ([0],),
        "a tuple of 2 parts; found 1 of them",
    ),
    "dict-given-as-list": (
        spaces.Dict(a=spaces.Discrete(2)),
        [0],
        r"the keys \['a'\]; found list",
    ),
    "dict-wrong-key": (
        spaces.Dict(a=spaces.Discrete(2)),
        {"b": [0]},
        r"the keys \['a'\]; found keys \['b'\]",
    ),
    "tuple-unequal-rows": (
        spaces.Tuple([spaces.Discrete(2)] * 2),
        ([0], [0, 1]),
        r"found 1 in action\[0\], 2 in action\[1\]",
    ),
    "invalid-part-of-a-dict": (
        spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)])),
        {"a": ([5],)},
        r"^actions: action\['a'\]\[0\]: ",
    ),
}


@pytest.mark.parametrize(
    ("space", "action", "cause"), INVALID_ACTIONS.values(), ids=INVALID_ACTIONS
)
def test_invalid_action_error_names_path_and_cause(space, action, cause):
    with pytest.raises(ActionError, match=cause) as caught:
        make_codec(space).invert(action)

    assert "actions: action" in str(caught.value)
