"""What the codecs refuse and what they take, by known values: messages with their paths, and
numbers at the edges.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from packaging.version import Version
from random_spaces import Case

from rlcatalog.errors import ObservationError
from rlcatalog.spaces import Repeated, Simplex

BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("space", "options", "obs", "expected"),
    [
        (
            spaces.Dict({"items": Repeated(spaces.Dict({"x": BOX}), 3)}),
            {},
            {"items": [{"x": np.zeros(2)}, {"x": np.zeros(2)}, {"x": np.array([0, 2.0])}]},
            "obs['items'][2]['x']: expected Box(2,) float32: values within [-1.0, 1.0] at [1];"
            " found 2.0",
        ),
        (
            spaces.Tuple([spaces.Graph(BOX, None)]),
            {"graph_max_nodes": 4},
            (spaces.GraphInstance(np.array([[0, 0]] * 3 + [[np.nan, 0]], np.float32), None, None),),
            "obs[0].nodes[3]: expected Box(2,) float32: values within [-1.0, 1.0] at [0]; found"
            " nan",
        ),
        (
            spaces.OneOf([spaces.Text(3), BOX]),
            {},
            (1, "abc"),
            "obs[1]: expected Box(2,) float32: values that can be cast to float32; found 'abc'",
        ),
        (
            spaces.OneOf([spaces.Text(3), BOX]),
            {},
            (0, np.zeros(2)),
            "obs[0]: expected a text; found an array",
        ),
        (
            spaces.OneOf([BOX, spaces.Dict({"a": BOX})]),
            {},
            (0, {"a": np.zeros(2)}),
            "obs[0]: expected Box(2,) float32: values that can be cast to float32; found {'a'",
        ),
        (
            spaces.Sequence(Repeated(spaces.Discrete(2), 2)),
            {"sequence_max_len": 2},
            ([0], [1, 2]),
            "obs[1][1]: expected Discrete(2): an integer from 0 to 1; found 2",
        ),
        (
            spaces.Sequence(spaces.Discrete(2)),
            {"sequence_max_len": 2},
            (0, 1, 0),
            "obs: expected Sequence(Discrete(2)): at most 2 items; the model config key"
            " 'sequence_max_len' sets it; found '3 items'",
        ),
        (
            spaces.Sequence(spaces.Dict({"a": BOX, "b": spaces.Discrete(2)}), stack=True),
            {"sequence_max_len": 2},
            {"a": np.zeros((2, 2), np.float32), "b": np.array([0])},
            "obs: expected Sequence(Dict(a: Box(2,) float32, b: Discrete(2))): at most 2 items,"
            " stacked; found",
        ),
        (
            Simplex((2,)),
            {},
            np.array([0.5, 0.25], np.float32),
            "obs: expected Simplex((2,)): values that sum to 1 along the last axis; found 0.75",
        ),
        (
            spaces.Text(3, charset="ab"),
            {},
            "cab",
            "obs: expected a text of the characters 'ab'; found \"'cab' with 'c'\"",
        ),
    ],
    ids=range(10),
)
def test_the_message_of_a_refusal(space, options, obs, expected):
    with pytest.raises(ObservationError) as caught:
        Case(space, options).make("always").transform(obs)
    assert str(caught.value).startswith(expected), str(caught.value)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Discrete(3), float("inf")),
        (spaces.Discrete(3), 10**30),
        (spaces.Box(-9, 9, (), np.float32), [1.0]),
        (Repeated(BOX, 2), np.array(3)),
        (spaces.OneOf([BOX, BOX]), (2, np.zeros(2))),
        (spaces.OneOf([BOX, BOX]), (-1, np.zeros(2))),
        (spaces.Text(3, charset="ab"), "abab"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_has_no_place_is_refused_unchecked(space, value, nested):
    if value == [1.0] and Version(np.__version__) < Version("2.4"):
        pytest.skip("older NumPy takes a list of one number for a number, and warns")
    case = Case(spaces.Tuple([BOX, space, BOX]) if nested else space)
    obs = (np.zeros(2), value, np.zeros(2)) if nested else value
    preprocessor = case.make("never")
    with pytest.raises(ObservationError, match=r"^obs\[1\]" if nested else r"^obs"):
        preprocessor.transform(obs)
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch([obs])


def test_a_number_too_great_for_the_spaces_dtype_is_refused_unchecked():
    preprocessor = Case(spaces.Box(0, 255, (2,), np.uint8)).make("never")
    for encode, obs in (
        (preprocessor.transform, [300, 0]),
        (preprocessor.transform_batch, [[300, 0]]),
    ):
        with pytest.raises(ObservationError, match=r"^obs"):
            encode(obs)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (), np.float32), spaces.Discrete(3)], ids=str)
def test_a_number_is_no_batch(space):
    preprocessor = Case(space, {"_disable_preprocessor_api": True}).make("never")
    with pytest.raises(ObservationError, match="expected a batch"):
        preprocessor.transform_batch(1)


@pytest.mark.parametrize("form", ["transform", "list", "vector"])
def test_a_great_unsigned_number_is_no_negative_one(form):
    preprocessor, value = (
        Case(spaces.Discrete(3, start=-1)).make("always"),
        np.array([2**64 - 1], np.uint64),
    )
    encode = preprocessor.transform if form == "transform" else preprocessor.transform_batch
    with pytest.raises(
        ObservationError, match=r"an integer from -1 to 1; found 18446744073709551615"
    ):
        encode({"transform": value[0], "list": list(value), "vector": value}[form])


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (-0.7, -0.1)])
def test_a_float64_at_a_float32_bound_is_inside(low, high):
    # Environments compute in float64; the bounds of their space are rounded to float32.
    preprocessor = Case(spaces.Box(low, high, (2,), np.float32)).make("always")
    np.testing.assert_array_equal(
        preprocessor.transform(np.array([low, high])), np.array([low, high], np.float32)
    )
    with pytest.raises(ObservationError):
        preprocessor.transform(np.array([low, high + 1e-6]))
