"""What the codecs refuse: observations outside their space, by the leaf's path, and spaces nobody
serves.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import Catalog, ModelCatalog
from rlcatalog.errors import ObservationError, ObservationWarning, UnsupportedSpaceError
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces import Repeated

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})


def make(space, options=None, check="always"):
    return CATALOG.preprocessor_for(space, CATALOG.parse_config(options), check=check)


def samples(space, n, seed):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


POS = spaces.Box(-1, 1, (2,), np.float32)
SPACE = spaces.Dict(
    {
        "pos": POS,
        "task": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(0, 9, (2, 2), np.int64)]),
    }
)
GOOD = {"pos": np.zeros(2, np.float32), "task": (1, np.zeros((2, 2), np.int64))}
BAD = [
    (
        {**GOOD, "pos": np.zeros(3, np.float32)},
        "obs['pos']: expected Box(2,) float32: shape (2,)",
        "shape (3,)",
    ),
    ({**GOOD, "pos": np.zeros((1, 2), np.float32)}, "obs['pos']: expected", "shape (1, 2)"),
    ({**GOOD, "pos": np.float32(0)}, "obs['pos']: expected", "0.0"),
    (
        {**GOOD, "pos": np.array([0, 1.5], np.float32)},
        "obs['pos']: expected",
        "within [-1.0, 1.0] at [1]; found",
    ),
    ({**GOOD, "pos": np.array([np.nan, 0], np.float32)}, "obs['pos']: expected", "at [0]; found"),
    ({**GOOD, "pos": np.array([0, -np.inf], np.float32)}, "obs['pos']: expected", "at [1]; found"),
    ({**GOOD, "pos": np.array(["a", "b"])}, "obs['pos']: expected", "cast to float32; found"),
    ({**GOOD, "pos": np.zeros(2, np.complex64)}, "obs['pos']: expected", "cast to float32; found"),
    ({**GOOD, "pos": None}, "obs['pos']: expected", "None"),
    (
        {**GOOD, "task": (0, GOOD["task"][1])},
        "obs['task'][0]: expected Discrete(3, start=1)",
        "1 to 3; found 0",
    ),
    ({**GOOD, "task": (4, GOOD["task"][1])}, "obs['task'][0]: expected", "found 4"),
    ({**GOOD, "task": (1.0, GOOD["task"][1])}, "obs['task'][0]: expected", "found 1.0 ("),
    ({**GOOD, "task": (np.array([1]), GOOD["task"][1])}, "obs['task'][0]: expected", "shape (1,)"),
    ({**GOOD, "task": ("1", GOOD["task"][1])}, "obs['task'][0]: expected", "found '1'"),
    ({**GOOD, "task": (1, np.zeros((2, 2)))}, "obs['task'][1]: expected", "cast to int64; found"),
    (
        {**GOOD, "task": (1, np.array([[0, 0], [10, 0]]))},
        "obs['task'][1]: expected",
        "within [0, 9] at [1, 0]",
    ),
    ({**GOOD, "task": (1,)}, "obs['task']: expected a tuple of 2 values", "(1,)"),
    ({**GOOD, "task": {"a": 1}}, "obs['task']: expected a tuple of 2 values", "(dict)"),
    (
        {"pos": GOOD["pos"]},
        "obs: expected a dict with the keys ['pos', 'task']",
        "without ['task']",
    ),
    (
        {**GOOD, "extra": 1},
        "obs: expected a dict with the keys ['pos', 'task']",
        "with the unknown ['extra']",
    ),
    (
        {"pos": GOOD["pos"], "tasks": GOOD["task"]},
        "obs: expected",
        "without ['task'] and with the unknown ['tasks']",
    ),
    (GOOD["pos"], "obs: expected a dict", "array of shape (2,)"),
    (None, "obs: expected a dict", "None"),
]


@pytest.mark.parametrize(("obs", "expected", "found"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("way", ["transform", "list", "after a good one"])
def test_an_observation_outside_its_space_is_refused_with_its_leafs_path(obs, expected, found, way):
    preprocessor = make(SPACE)
    preprocessor.transform(GOOD)
    encode = preprocessor.transform if way == "transform" else preprocessor.transform_batch
    given_obs = {"transform": obs, "list": [obs], "after a good one": [GOOD, obs]}[way]
    with pytest.raises(ObservationError) as caught:
        encode(given_obs)
    assert str(caught.value).startswith(expected)
    assert found in str(caught.value)


def test_truth_is_no_number_of_an_action():
    with pytest.raises(
        ObservationError, match=r"obs: expected Discrete\(3\).*; found True \(bool\)"
    ):
        make(spaces.Discrete(3)).transform(True)


def batch(**changes):
    good = {
        "pos": np.zeros((3, 2), np.float32),
        "task": (np.ones(3, np.int64), np.zeros((3, 2, 2), np.int64)),
    }
    return {**good, **changes}


BAD_BATCHES = [
    (
        batch(pos=np.array([[0, 0], [0, 0], [0, 2]], np.float32)),
        "obs['pos']: expected",
        "at [1]; found 2.0",
    ),
    (batch(pos=np.full((3, 2), np.nan, np.float32)), "obs['pos']: expected", "at [0]; found"),
    (batch(pos=np.zeros((3, 3), np.float32)), "obs['pos']: expected", "shape (3,)"),
    (batch(pos=np.zeros((3, 2), np.complex64)), "obs['pos']: expected", "cast to float32"),
    (
        batch(task=(np.array([1, 0, 1]), np.zeros((3, 2, 2), np.int64))),
        "obs['task'][0]: expected",
        "found 0",
    ),
    (
        batch(task=(np.ones(3), np.zeros((3, 2, 2), np.int64))),
        "obs['task'][0]: expected",
        "found 1.0",
    ),
    (batch(extra=np.zeros(3)), "obs: expected a dict with the keys", "with the unknown ['extra']"),
    ({"pos": np.zeros((3, 2), np.float32)}, "obs: expected", "task"),
    (batch(task=(np.ones(3, np.int64),)), "obs", "task"),
    (batch(pos=np.zeros((2, 2), np.float32)), "obs", ""),
    (batch(pos=np.zeros(2, np.float32)), "obs", ""),
    (np.zeros((3, 2), np.float32), "obs: expected", "array of shape (3, 2)"),
]


@pytest.mark.parametrize(
    ("bad", "expected", "found", "check"),
    # The first row of the first one is good, and "first" looks at that row alone.
    [(*bad, "always") for bad in BAD_BATCHES] + [(*bad, "first") for bad in BAD_BATCHES[1:]],
)
def test_a_batch_outside_its_space_is_refused_with_its_leafs_path(bad, expected, found, check):
    preprocessor = make(SPACE, check=check)
    with pytest.raises(ObservationError) as caught:
        preprocessor.transform_batch(bad)
    assert str(caught.value).startswith(expected)
    assert found in str(caught.value)


@pytest.mark.parametrize("check", ["always", "first", "never"])
@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (POS, np.zeros(2, np.float32)),
        (POS, np.zeros((2, 1, 2), np.float32)),
        (POS, 3.0),
        (spaces.Discrete(3), np.zeros((2, 2), np.int64)),
        (spaces.Discrete(3), np.array([0, 3])),
        (spaces.Discrete(3), np.array([0, -1])),
        (SPACE, batch(pos=np.zeros((3, 1), np.float32))),
        (SPACE, batch(pos=np.zeros((2, 2), np.float32))),
    ],
    ids=range(8),
)
def test_what_cannot_be_encoded_is_refused_whatever_the_check(space, wrong, check):
    preprocessor = make(space, check=check)
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)
    preprocessor.transform(samples(space, 1, 0)[0])  # a good one has passed
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)


def test_a_wrong_shape_is_not_broadcast():
    preprocessor = make(spaces.Dict({"a": POS}), check="never")
    for wrong in (np.zeros(1, np.float32), np.float32(0), np.zeros((1, 2), np.float32)):
        with pytest.raises(ObservationError, match=r"obs\['a'\]"):
            preprocessor.transform({"a": wrong})


def test_a_negative_index_does_not_hit_another_slot():
    preprocessor = make(spaces.Tuple([POS, spaces.Discrete(3)]), check="never")
    for wrong in (-1, 3, -3):
        with pytest.raises(ObservationError, match=r"obs\[1\]"):
            preprocessor.transform((np.zeros(2), wrong))


OUTSIDE = {"a": np.array([0, 5], np.float32)}
INSIDE = {"a": np.array([0, 0.5], np.float32)}
ONE_LEAF = spaces.Dict({"a": POS})


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
def test_check_first_checks_until_one_has_passed(form):
    preprocessor = make(ONE_LEAF, check="first")

    def encode(obs):
        return (
            preprocessor.transform(obs)
            if form == "transform"
            else preprocessor.transform_batch([obs])[0]
        )

    for _ in range(2):
        with pytest.raises(ObservationError, match=r"obs\['a'\]"):
            encode({"a": np.zeros(3, np.float32)})
    encode(INSIDE)
    np.testing.assert_array_equal(encode(OUTSIDE), [0, 5])


def test_check_first_warns_once_of_values_out_of_bounds():
    preprocessor = make(ONE_LEAF, check="first")
    with pytest.warns(ObservationWarning, match=r"obs\['a'\].*found 5.0.*check_observations"):
        preprocessor.transform(OUTSIDE)
    np.testing.assert_array_equal(preprocessor.transform(OUTSIDE), [0, 5])


def test_wrong_shape_is_named_before_values_out_of_bounds():
    space = spaces.Tuple([POS, POS])
    wrong_shape = np.zeros(3, np.float32)
    with pytest.raises(ObservationError, match=r"obs\[1\].*shape"):
        make(space, check="first").transform((OUTSIDE["a"], wrong_shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_first_value_that_is_not_finite_is_refused(value):
    with pytest.raises(ObservationError, match=r"obs\['a'\].*found"):
        make(ONE_LEAF, check="first").transform({"a": np.array([0, value], np.float32)})


def test_integer_beyond_its_dtype_is_refused():
    # 300 is 44 as a byte, so that it cannot be used as it is.
    preprocessor = make(spaces.Box(0, 200, (1,), np.uint8), check="first")
    with pytest.raises(ObservationError, match="found 300"):
        preprocessor.transform(np.array([300]))


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value"),
    [
        (-1, 1, np.float32, 1.0000001),
        (-1, 1, np.float32, -1.0000001),
        (0, 1, np.float32, -1e-7),  # a rounding step of 1, the larger bound
        (
            0,
            1,
            np.float64,
            1.0000001,
        ),  # as float32, in which it is encoded, it is one step beyond 1
        (0, 100, np.float16, 100.125),  # two of float16's steps of 1/16
    ],
)
def test_rounding_beyond_a_bound_is_allowed(low, high, dtype, value):
    preprocessor = make(spaces.Box(low, high, (1,), dtype), check="always")
    preprocessor.transform(np.array([value], dtype))


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value"),
    [
        (-1, 1, np.float32, 1.00001),
        (0, 1, np.float32, -1e-5),
        (0, 0, np.float32, 1e-7),  # bounds of 0 have no rounding
        (0, 9, np.int64, 10),
    ],
)
def test_more_than_rounding_beyond_a_bound_is_refused(low, high, dtype, value):
    preprocessor = make(spaces.Box(low, high, (1,), dtype), check="always")
    with pytest.raises(ObservationError, match="values within"):
        preprocessor.transform(np.array([value], dtype))


def test_check_always_and_never():
    always, never = make(ONE_LEAF, check="always"), make(ONE_LEAF, check="never")
    always.transform(INSIDE)
    with pytest.raises(ObservationError):
        always.transform(OUTSIDE)
    with pytest.raises(ObservationError):
        always.transform_batch([INSIDE, INSIDE, OUTSIDE])
    np.testing.assert_array_equal(never.transform(OUTSIDE), [0, 5])
    np.testing.assert_array_equal(never.transform_batch({"a": OUTSIDE["a"][None]}), [[0, 5]])


def test_the_config_says_when_to_check():
    for mode in ("first", "always", "never"):
        found = ModelCatalog.get_preprocessor_for_space(ONE_LEAF, {"check_observations": mode})
        assert found.check_mode == mode
    assert ModelCatalog.get_preprocessor_for_space(ONE_LEAF).check_mode == "first"


BOX = spaces.Box(-1, 1, (2,), np.float32)


class Foreign(spaces.Space):
    """A kind of space no package knows."""

    def __repr__(self):
        return "Foreign()"  # names of tests must be the same in every process


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (Foreign(), "obs"),
        (spaces.Dict({"a": BOX, "g": Foreign()}), "obs['g']"),
        (spaces.Tuple([BOX, spaces.Dict({"t": Foreign()})]), "obs[1]['t']"),
        (spaces.OneOf([BOX, spaces.Sequence(Foreign())]), "obs[1][:]"),
        (spaces.Dict({"a": Repeated(Foreign(), 3)}), "obs['a'][:]"),
    ],
    ids=str,
)
def test_a_kind_nobody_serves_names_the_leaf(space, path):
    with pytest.raises(UnsupportedSpaceError) as caught:
        make(space, {"sequence_max_len": 4})
    said = str(caught.value)
    assert said.startswith(f"{path}: no installed preprocessor supports ")
    assert "Installed: dict, " in said
    assert "tuple. Wrap the environment" in said


@pytest.mark.parametrize(
    ("space", "options", "path", "key"),
    [
        (spaces.Dict({"a": spaces.Sequence(BOX)}), {}, "obs['a']", "sequence_max_len"),
        (spaces.Tuple([BOX, spaces.Graph(BOX, None)]), {}, "obs[1]", "graph_max_nodes"),
        (spaces.Graph(BOX, BOX), {"graph_max_nodes": 3}, "obs", "graph_max_edges"),
        (
            spaces.Dict({"a": spaces.Sequence(BOX)}),
            {"sequence_max_len": {"obs['b']": 3}},
            "obs['a']",
            "sequence_max_len",
        ),
    ],
    ids=str,
)
def test_a_size_the_space_does_not_say_is_asked_for(space, options, path, key):
    with pytest.raises(UnsupportedSpaceError) as caught:
        make(space, options)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert f'{key!r}: a number, or {{"{path}": number}}' in said


def test_sizes_can_differ_from_leaf_to_leaf():
    space = spaces.Dict({"a": spaces.Sequence(BOX), "b": spaces.Sequence(BOX)})
    assert make(space, {"sequence_max_len": {"obs['a']": 2, "obs['b']": 5}}).shape == (
        1 + 4 + 1 + 10,
    )


def test_what_is_no_space_is_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"expected a gymnasium\.Space, found 'Box'"):
        make("Box")
