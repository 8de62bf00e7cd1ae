"""Errors of the codecs: observations outside their space, and spaces without a codec."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from packaging.version import Version

from rlcatalog import Catalog, ModelCatalog
from rlcatalog.errors import (
    ConfigError,
    ObservationError,
    ObservationWarning,
    UnsupportedSpaceError,
)
from rlcatalog.plugins.discovery import scan
from rlcatalog.spaces import Repeated, Simplex

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
BOX = Box(-1, 1, (2,), np.float32)


def make_preprocessor(space, *, check="always", **options):
    return CATALOG.preprocessor_for(space, CATALOG.parse_config(options), check=check)


# --- observations outside a Dict, by the path of the leaf -----------------------------------------

TASK = Tuple([Discrete(3, start=1), Box(0, 9, (2, 2), np.int64)])
POS_AND_TASK = Dict({"pos": Box(-1, 1, (2,), np.float32), "task": TASK})


def make_obs(**changes):
    """Return an observation of `POS_AND_TASK` with these changes."""
    good = {"pos": np.zeros(2, np.float32), "task": (1, np.zeros((2, 2), np.int64))}
    return good | changes


def make_task(first=1, second=None):
    """Return an observation of `TASK` in which one of the parts may be wrong."""
    if second is None:
        second = np.zeros((2, 2), np.int64)
    return (first, second)


@pytest.fixture
def preprocessor():
    """A preprocessor of `POS_AND_TASK` that has encoded a good observation before."""
    preprocessor = make_preprocessor(POS_AND_TASK)
    preprocessor.transform(make_obs())
    return preprocessor


def encode(preprocessor, form, obs):
    """Encode an observation alone or in a list, behind a good one."""
    if form == "alone":
        preprocessor.transform(obs)
    else:
        preprocessor.transform_batch([make_obs(), obs])


each_form = pytest.mark.parametrize("form", ["alone", "behind-a-good-one"])


@each_form
@pytest.mark.parametrize(
    ("pos", "found"),
    [
        pytest.param(np.zeros(3, np.float32), "shape (3,)", id="longer"),
        pytest.param(np.zeros((1, 2), np.float32), "shape (1, 2)", id="another-rank"),
        pytest.param(np.float32(0), "0.0", id="scalar"),
        pytest.param(
            np.array([0, 1.5], np.float32), "within [-1.0, 1.0] at [1]; found", id="too-high"
        ),
        pytest.param(np.array([np.nan, 0], np.float32), "at [0]; found", id="nan"),
        pytest.param(np.array([0, -np.inf], np.float32), "at [1]; found", id="infinite"),
        pytest.param(np.array(["a", "b"]), "cast to float32; found", id="texts"),
        pytest.param(np.zeros(2, np.complex64), "cast to float32; found", id="complex"),
        pytest.param(None, "None", id="none"),
    ],
)
def test_wrong_box_is_rejected_with_its_path(preprocessor, form, pos, found):
    with pytest.raises(ObservationError) as caught:
        encode(preprocessor, form, make_obs(pos=pos))

    assert str(caught.value).startswith("obs['pos']: expected Box(2,) float32")
    assert found in str(caught.value)


@each_form
@pytest.mark.parametrize(
    ("number", "found"),
    [
        pytest.param(0, "1 to 3; found 0", id="too-low"),
        pytest.param(4, "found 4", id="too-high"),
        pytest.param(1.0, "found 1.0 (", id="float"),
        pytest.param(np.array([1]), "shape (1,)", id="array"),
        pytest.param("1", "found '1'", id="text"),
    ],
)
def test_wrong_discrete_is_rejected_with_its_path(preprocessor, form, number, found):
    with pytest.raises(ObservationError) as caught:
        encode(preprocessor, form, make_obs(task=make_task(first=number)))

    assert str(caught.value).startswith("obs['task'][0]: expected Discrete(3, start=1)")
    assert found in str(caught.value)


@each_form
@pytest.mark.parametrize(
    ("integers", "found"),
    [
        pytest.param(np.zeros((2, 2)), "cast to int64; found", id="floats"),
        pytest.param(np.array([[0, 0], [10, 0]]), "within [0, 9] at [1, 0]", id="too-high"),
    ],
)
def test_wrong_box_of_integers_is_rejected_with_its_path(preprocessor, form, integers, found):
    with pytest.raises(ObservationError) as caught:
        encode(preprocessor, form, make_obs(task=make_task(second=integers)))

    assert str(caught.value).startswith("obs['task'][1]: expected")
    assert found in str(caught.value)


@each_form
@pytest.mark.parametrize(
    ("task", "found"),
    [pytest.param((1,), "(1,)", id="too-short"), pytest.param({"a": 1}, "(dict)", id="dict")],
)
def test_wrong_tuple_is_rejected_with_its_path(preprocessor, form, task, found):
    with pytest.raises(ObservationError, match="expected a tuple of 2 values") as caught:
        encode(preprocessor, form, make_obs(task=task))

    assert str(caught.value).startswith("obs['task']: ")
    assert found in str(caught.value)


@each_form
@pytest.mark.parametrize(
    ("obs", "found"),
    [
        pytest.param({"pos": np.zeros(2)}, "without ['task']", id="missing-key"),
        pytest.param(make_obs(extra=1), "with the unknown ['extra']", id="unknown-key"),
        pytest.param(
            {"pos": np.zeros(2), "tasks": make_task()},
            "without ['task'] and with the unknown ['tasks']",
            id="misspelt-key",
        ),
        pytest.param(np.zeros(2, np.float32), "array of shape (2,)", id="array"),
        pytest.param(None, "None", id="none"),
    ],
)
def test_wrong_dict_is_rejected(preprocessor, form, obs, found):
    with pytest.raises(ObservationError, match="obs: expected a dict with the keys") as caught:
        encode(preprocessor, form, obs)

    assert "['pos', 'task']" in str(caught.value)
    assert found in str(caught.value)


def test_bool_is_not_a_discrete_number():
    with pytest.raises(ObservationError, match=r"obs: expected Discrete\(3\)") as caught:
        make_preprocessor(Discrete(3)).transform(True)

    assert "found True (bool)" in str(caught.value)


# --- other kinds of spaces ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "options", "obs", "message"),
    [
        pytest.param(
            Dict({"items": Repeated(Dict({"x": BOX}), 3)}),
            {},
            {"items": [{"x": np.zeros(2)}, {"x": np.zeros(2)}, {"x": np.array([0, 2.0])}]},
            "obs['items'][2]['x']: expected Box(2,) float32: values within [-1.0, 1.0] at [1];"
            " found 2.0",
            id="item-of-a-list",
        ),
        pytest.param(
            Tuple([Graph(BOX, None)]),
            {"graph_max_nodes": 4},
            (GraphInstance(np.array([[0, 0]] * 3 + [[np.nan, 0]], np.float32), None, None),),
            "obs[0].nodes[3]: expected Box(2,) float32: values within [-1.0, 1.0] at [0]; found"
            " nan",
            id="node-of-a-graph",
        ),
        pytest.param(
            OneOf([Text(3), BOX]),
            {},
            (1, "abc"),
            "obs[1]: expected Box(2,) float32: values that can be cast to float32; found 'abc'",
            id="text-as-box-branch",
        ),
        pytest.param(
            OneOf([Text(3), BOX]),
            {},
            (0, np.zeros(2)),
            "obs[0]: expected a text; found an array",
            id="array-as-text-branch",
        ),
        pytest.param(
            OneOf([BOX, Dict({"a": BOX})]),
            {},
            (0, {"a": np.zeros(2)}),
            "obs[0]: expected Box(2,) float32: values that can be cast to float32; found {'a'",
            id="dict-as-box-branch",
        ),
        pytest.param(
            Sequence(Repeated(Discrete(2), 2)),
            {"sequence_max_len": 2},
            ([0], [1, 2]),
            "obs[1][1]: expected Discrete(2): an integer from 0 to 1; found 2",
            id="item-of-a-list-in-a-list",
        ),
        pytest.param(
            Sequence(Discrete(2)),
            {"sequence_max_len": 2},
            (0, 1, 0),
            "obs: expected Sequence(Discrete(2)): at most 2 items; the model config key"
            " 'sequence_max_len' sets it; found '3 items'",
            id="too-many-items",
        ),
        pytest.param(
            Sequence(Dict({"a": BOX, "b": Discrete(2)}), stack=True),
            {"sequence_max_len": 2},
            {"a": np.zeros((2, 2), np.float32), "b": np.array([0])},
            "obs: expected Sequence(Dict(a: Box(2,) float32, b: Discrete(2))): at most 2 items,"
            " stacked; found",
            id="stacked-items-of-two-lengths",
        ),
        pytest.param(
            Simplex((2,)),
            {},
            np.array([0.5, 0.25], np.float32),
            "obs: expected Simplex((2,)): values that sum to 1 along the last axis; found 0.75",
            id="simplex",
        ),
        pytest.param(
            Text(3, charset="ab"),
            {},
            "cab",
            "obs: expected a text of the characters 'ab'; found \"'cab' with 'c'\"",
            id="text",
        ),
    ],
)
def test_error_says_what_a_space_expects(space, options, obs, message):
    with pytest.raises(ObservationError) as caught:
        make_preprocessor(space, **options).transform(obs)

    assert str(caught.value).startswith(message)


def test_list_that_is_too_long_is_rejected():
    space = Repeated(Box(-1, 1, (2,), np.float32), 4)

    with pytest.raises(ObservationError, match=r"obs: expected Repeated\(.*at most 4") as caught:
        make_preprocessor(space).transform([np.ones(2, np.float32)] * 5)

    assert "found '5 items'" in str(caught.value)


#: As int64, this number would be -1.
HUGE_UNSIGNED = np.array([2**64 - 1], np.uint64)


def test_huge_unsigned_number_is_not_negative():
    preprocessor = make_preprocessor(Discrete(3, start=-1))

    with pytest.raises(ObservationError, match="found 18446744073709551615") as caught:
        preprocessor.transform(HUGE_UNSIGNED[0])

    assert "an integer from -1 to 1" in str(caught.value)


@pytest.mark.parametrize("make_batch", [list, np.array])
def test_huge_unsigned_number_in_a_batch_is_not_negative(make_batch):
    preprocessor = make_preprocessor(Discrete(3, start=-1))

    with pytest.raises(ObservationError, match="found 18446744073709551615") as caught:
        preprocessor.transform_batch(make_batch(HUGE_UNSIGNED))

    assert "an integer from -1 to 1" in str(caught.value)


# --- batches of a vector environment --------------------------------------------------------------


def make_batch(**changes):
    """Return three observations of `POS_AND_TASK`, stacked, with these changes."""
    good = {
        "pos": np.zeros((3, 2), np.float32),
        "task": (np.ones(3, np.int64), np.zeros((3, 2, 2), np.int64)),
    }
    return good | changes


each_check_of_batches = pytest.mark.parametrize("check", ["always", "first"])


@each_check_of_batches
@pytest.mark.parametrize(
    ("pos", "found"),
    [
        pytest.param(np.full((3, 2), np.nan, np.float32), "at [0]; found", id="nan"),
        pytest.param(np.zeros((3, 3), np.float32), "shape (3,)", id="longer"),
        pytest.param(np.zeros((3, 2), np.complex64), "cast to float32", id="complex"),
    ],
)
def test_batch_with_wrong_boxes_is_rejected(check, pos, found):
    preprocessor = make_preprocessor(POS_AND_TASK, check=check)

    with pytest.raises(ObservationError) as caught:
        preprocessor.transform_batch(make_batch(pos=pos))

    assert str(caught.value).startswith("obs['pos']: expected")
    assert found in str(caught.value)


def test_batch_with_a_wrong_last_row_is_rejected():
    # check="first" would look at the first row only.
    pos = np.array([[0, 0], [0, 0], [0, 2]], np.float32)

    with pytest.raises(ObservationError, match=r"at \[1\]; found 2\.0") as caught:
        make_preprocessor(POS_AND_TASK, check="always").transform_batch(make_batch(pos=pos))

    assert str(caught.value).startswith("obs['pos']: expected")


@each_check_of_batches
@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        pytest.param(np.array([1, 0, 1]), "found 0", id="too-low"),
        pytest.param(np.ones(3), "found 1.0", id="floats"),
    ],
)
def test_batch_with_wrong_discrete_numbers_is_rejected(check, numbers, found):
    # The numbers of Discrete(3, start=1) are 1, 2 and 3.
    preprocessor = make_preprocessor(POS_AND_TASK, check=check)
    batch = make_batch(task=(numbers, np.zeros((3, 2, 2), np.int64)))

    with pytest.raises(ObservationError) as caught:
        preprocessor.transform_batch(batch)

    assert str(caught.value).startswith("obs['task'][0]: expected")
    assert found in str(caught.value)


@each_check_of_batches
@pytest.mark.parametrize(
    ("batch", "found"),
    [
        pytest.param(make_batch(extra=np.zeros(3)), "with the unknown ['extra']", id="unknown-key"),
        pytest.param({"pos": np.zeros((3, 2), np.float32)}, "task", id="missing-key"),
        pytest.param(np.zeros((3, 2), np.float32), "array of shape (3, 2)", id="array"),
    ],
)
def test_batch_that_is_not_a_dict_of_the_keys_is_rejected(check, batch, found):
    with pytest.raises(ObservationError, match=r"^obs: expected") as caught:
        make_preprocessor(POS_AND_TASK, check=check).transform_batch(batch)

    assert found in str(caught.value)


@each_check_of_batches
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"task": (np.ones(3, np.int64),)}, "task", id="tuple-too-short"),
        pytest.param({"pos": np.zeros((2, 2), np.float32)}, "", id="fewer-rows"),
        pytest.param({"pos": np.zeros(2, np.float32)}, "", id="no-rows"),
    ],
)
def test_batch_with_parts_of_other_lengths_is_rejected(check, changes, found):
    with pytest.raises(ObservationError, match=r"^obs") as caught:
        make_preprocessor(POS_AND_TASK, check=check).transform_batch(make_batch(**changes))

    assert found in str(caught.value)


# --- observations that cannot be encoded, even without a check ------------------------------------


@pytest.mark.parametrize("check", ["always", "first", "never"])
@pytest.mark.parametrize(
    ("space", "good", "wrong"),
    [
        pytest.param(BOX, np.zeros(2), np.zeros(2, np.float32), id="box-no-batch"),
        pytest.param(BOX, np.zeros(2), np.zeros((2, 1, 2), np.float32), id="box-another-rank"),
        pytest.param(BOX, np.zeros(2), 3.0, id="box-number"),
        pytest.param(Discrete(3), 0, np.zeros((2, 2), np.int64), id="discrete-another-rank"),
        pytest.param(Discrete(3), 0, np.array([0, 3]), id="discrete-too-high"),
        pytest.param(Discrete(3), 0, np.array([0, -1]), id="discrete-negative"),
        pytest.param(
            POS_AND_TASK,
            make_obs(),
            make_batch(pos=np.zeros((3, 1), np.float32)),
            id="dict-shorter-box",
        ),
        pytest.param(
            POS_AND_TASK,
            make_obs(),
            make_batch(pos=np.zeros((2, 2), np.float32)),
            id="dict-fewer-rows",
        ),
    ],
)
def test_batch_that_cannot_be_encoded_is_rejected(check, space, good, wrong):
    preprocessor = make_preprocessor(space, check=check)

    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)
    preprocessor.transform(good)
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        pytest.param(Discrete(3), float("inf"), id="infinite-discrete"),
        pytest.param(Discrete(3), 10**30, id="huge-discrete"),
        pytest.param(
            Box(-9, 9, (), np.float32),
            [1.0],
            id="list-as-scalar",
            marks=pytest.mark.skipif(
                Version(np.__version__) < Version("2.4"),
                reason="older NumPy takes a list of one number for a number, and warns",
            ),
        ),
        pytest.param(Repeated(BOX, 2), np.array(3), id="number-as-list"),
        pytest.param(OneOf([BOX, BOX]), (2, np.zeros(2)), id="tag-too-high"),
        pytest.param(OneOf([BOX, BOX]), (-1, np.zeros(2)), id="negative-tag"),
        pytest.param(Text(3, charset="ab"), "abab", id="text-too-long"),
    ],
)
def test_value_that_cannot_be_encoded_is_rejected_unchecked(space, wrong):
    alone = make_preprocessor(space, check="never")
    in_a_tuple = make_preprocessor(Tuple([BOX, space]), check="never")

    with pytest.raises(ObservationError, match=r"^obs:"):
        alone.transform(wrong)
    with pytest.raises(ObservationError, match=r"^obs"):
        alone.transform_batch([wrong])
    with pytest.raises(ObservationError, match=r"^obs\[1\]"):
        in_a_tuple.transform((np.zeros(2), wrong))


def test_number_too_great_for_its_dtype_is_rejected_unchecked():
    preprocessor = make_preprocessor(Box(0, 255, (2,), np.uint8), check="never")

    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform([300, 0])
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch([[300, 0]])


@pytest.mark.parametrize("space", [Box(-1, 1, (), np.float32), Discrete(3)], ids=str)
def test_number_is_not_a_batch(space):
    # Discrete numbers stay numbers, so that a batch of them has one axis.
    preprocessor = make_preprocessor(space, check="never", _disable_preprocessor_api=True)

    with pytest.raises(ObservationError, match="expected a batch"):
        preprocessor.transform_batch(1)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(np.zeros(1, np.float32), id="one-value"),
        pytest.param(np.float32(0), id="scalar"),
        pytest.param(np.zeros((1, 2), np.float32), id="another-rank"),
    ],
)
def test_wrong_shape_is_not_broadcast_unchecked(wrong):
    preprocessor = make_preprocessor(Dict({"a": BOX}), check="never")

    with pytest.raises(ObservationError, match=r"obs\['a'\]"):
        preprocessor.transform({"a": wrong})


@pytest.mark.parametrize("index", [-1, 3, -3])
def test_wrong_index_hits_no_other_place_unchecked(index):
    preprocessor = make_preprocessor(Tuple([BOX, Discrete(3)]), check="never")

    with pytest.raises(ObservationError, match=r"obs\[1\]"):
        preprocessor.transform((np.zeros(2), index))


# --- when observations are checked ----------------------------------------------------------------

#: A space, and observations inside and outside its bounds.
DICT_OF_BOX = Dict({"a": Box(-1, 1, (2,), np.float32)})
INSIDE = {"a": np.array([0, 0.5], np.float32)}
OUTSIDE = {"a": np.array([0, 5], np.float32)}


@pytest.mark.parametrize("mode", ["first", "always", "never"])
def test_config_says_when_to_check(mode):
    preprocessor = ModelCatalog.get_preprocessor_for_space(
        DICT_OF_BOX, {"check_observations": mode}
    )

    assert preprocessor.check_mode == mode


def test_default_is_to_check_the_first_observation():
    assert ModelCatalog.get_preprocessor_for_space(DICT_OF_BOX).check_mode == "first"


def test_check_first_checks_until_one_batch_has_passed():
    preprocessor = make_preprocessor(DICT_OF_BOX, check="first")

    for _attempt in range(2):
        with pytest.raises(ObservationError, match=r"obs\['a'\]"):
            preprocessor.transform_batch([{"a": np.zeros(3, np.float32)}])
    preprocessor.transform_batch([INSIDE])

    np.testing.assert_array_equal(preprocessor.transform_batch([OUTSIDE]), [[0, 5]])


def test_check_first_warns_once_of_values_out_of_bounds():
    preprocessor = make_preprocessor(DICT_OF_BOX, check="first")

    with pytest.warns(ObservationWarning, match=r"\['a'\].*found 5.0.*check_observations"):
        preprocessor.transform(OUTSIDE)

    np.testing.assert_array_equal(preprocessor.transform(OUTSIDE), [0, 5])


def test_check_first_rejects_a_shape_behind_values_out_of_bounds():
    preprocessor = make_preprocessor(Tuple([BOX, BOX]), check="first")
    out_of_bounds = np.array([0, 5], np.float32)
    wrong_shape = np.zeros(3, np.float32)

    with pytest.raises(ObservationError, match=r"obs\[1\].*shape"):
        preprocessor.transform((out_of_bounds, wrong_shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_check_first_rejects_values_that_are_not_finite(value):
    preprocessor = make_preprocessor(DICT_OF_BOX, check="first")

    with pytest.raises(ObservationError, match=r"obs\['a'\].*found"):
        preprocessor.transform({"a": np.array([0, value], np.float32)})


def test_check_first_rejects_an_integer_beyond_its_dtype():
    preprocessor = make_preprocessor(Box(0, 200, (1,), np.uint8), check="first")

    # 300 would be 44 as a byte, so that it cannot be used with a warning.
    with pytest.raises(ObservationError, match="found 300"):
        preprocessor.transform(np.array([300]))


def test_check_never_encodes_values_out_of_bounds():
    preprocessor = make_preprocessor(DICT_OF_BOX, check="never")
    batch = {"a": np.array([[0, 5]], np.float32)}

    np.testing.assert_array_equal(preprocessor.transform(OUTSIDE), [0, 5])
    np.testing.assert_array_equal(preprocessor.transform_batch(batch), [[0, 5]])


# --- rounding at the bounds -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value"),
    [
        pytest.param(-1, 1, np.float32, 1.0000001, id="above"),
        pytest.param(-1, 1, np.float32, -1.0000001, id="below"),
        # A rounding step of the larger bound, 1.
        pytest.param(0, 1, np.float32, -1e-7, id="below-zero"),
        # It is encoded as float32, in which it is one step above 1.
        pytest.param(0, 1, np.float64, 1.0000001, id="float64"),
        # Two of float16's steps of 1/16.
        pytest.param(0, 100, np.float16, 100.125, id="float16"),
    ],
)
def test_rounding_beyond_a_bound_is_allowed(low, high, dtype, value):
    preprocessor = make_preprocessor(Box(low, high, (1,), dtype), check="always")

    preprocessor.transform(np.array([value], dtype))


@pytest.mark.parametrize(
    ("low", "high", "dtype", "value"),
    [
        pytest.param(-1, 1, np.float32, 1.00001, id="above"),
        pytest.param(0, 1, np.float32, -1e-5, id="below-zero"),
        pytest.param(0, 0, np.float32, 1e-7, id="bounds-of-0-have-no-rounding"),
        pytest.param(0, 9, np.int64, 10, id="integer"),
    ],
)
def test_more_than_rounding_beyond_a_bound_is_rejected(low, high, dtype, value):
    preprocessor = make_preprocessor(Box(low, high, (1,), dtype), check="always")

    with pytest.raises(ObservationError, match="values within"):
        preprocessor.transform(np.array([value], dtype))


each_bound = pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (-0.7, -0.1)])


@each_bound
def test_float64_at_a_float32_bound_is_inside(low, high):
    # Environments compute in float64, but the bounds of their space are rounded to float32.
    preprocessor = make_preprocessor(Box(low, high, (2,), np.float32))

    encoded = preprocessor.transform(np.array([low, high]))

    np.testing.assert_array_equal(encoded, np.array([low, high], np.float32))


@each_bound
def test_float64_beyond_a_float32_bound_is_rejected(low, high):
    preprocessor = make_preprocessor(Box(low, high, (2,), np.float32))

    with pytest.raises(ObservationError):
        preprocessor.transform(np.array([low, high + 1e-6]))


# --- spaces without a codec -----------------------------------------------------------------------


class UnknownSpace(Space):
    """A kind of space that no package knows."""

    def __repr__(self):
        # Names of tests must not contain an address of this process.
        return "UnknownSpace()"


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (UnknownSpace(), "obs"),
        (Dict({"a": BOX, "g": UnknownSpace()}), "obs['g']"),
        (Tuple([BOX, Dict({"t": UnknownSpace()})]), "obs[1]['t']"),
        (OneOf([BOX, Sequence(UnknownSpace())]), "obs[1][:]"),
        (Dict({"a": Repeated(UnknownSpace(), 3)}), "obs['a'][:]"),
    ],
    ids=str,
)
def test_unknown_kind_of_space_is_an_error_with_its_path(space, path):
    with pytest.raises(UnsupportedSpaceError) as caught:
        make_preprocessor(space, sequence_max_len=4)

    message = str(caught.value)
    assert message.startswith(f"{path}: no installed preprocessor supports ")
    assert "Installed: dict, " in message
    assert "tuple. Wrap the environment" in message


@pytest.mark.parametrize(
    ("space", "options", "path", "key"),
    [
        pytest.param(Dict({"a": Sequence(BOX)}), {}, "obs['a']", "sequence_max_len", id="sequence"),
        pytest.param(Tuple([BOX, Graph(BOX, None)]), {}, "obs[1]", "graph_max_nodes", id="nodes"),
        pytest.param(Graph(BOX, BOX), {"graph_max_nodes": 3}, "obs", "graph_max_edges", id="edges"),
        pytest.param(
            Dict({"a": Sequence(BOX)}),
            {"sequence_max_len": {"obs['b']": 3}},
            "obs['a']",
            "sequence_max_len",
            id="size-of-another-leaf",
        ),
    ],
)
def test_missing_size_error_names_path_and_key(space, options, path, key):
    with pytest.raises(UnsupportedSpaceError) as caught:
        make_preprocessor(space, **options)

    assert str(caught.value).startswith(f"{path}: ")
    assert f'{key!r}: a number, or {{"{path}": number}}' in str(caught.value)


def test_sizes_may_differ_from_leaf_to_leaf():
    space = Dict({"a": Sequence(BOX), "b": Sequence(BOX)})

    preprocessor = make_preprocessor(space, sequence_max_len={"a": 2, "obs['b']": 5})

    # Each list has a length, and places for items of two values.
    assert preprocessor.shape == (1 + 2 * 2 + 1 + 5 * 2,)


def test_text_in_place_of_a_space_is_an_error():
    with pytest.raises(UnsupportedSpaceError, match=r"expected a gymnasium\.Space, found 'Box'"):
        make_preprocessor("Box")


@pytest.mark.parametrize(
    ("space", "key"),
    [
        (Sequence(BOX), "sequence_max_len"),
        (Graph(BOX, BOX), "graph_max_nodes"),
        (Graph(BOX, BOX), "graph_max_edges"),
        (Text(5), "text_max_length"),
    ],
)
def test_number_of_items_above_2_to_the_24_is_an_error(space, key):
    # It is encoded as float32, which represents no odd number above.
    assert np.float32(2**24 + 1) == 2**24
    with pytest.raises(ConfigError, match=key):
        make_preprocessor(space, **{key: 2**24 + 1})
