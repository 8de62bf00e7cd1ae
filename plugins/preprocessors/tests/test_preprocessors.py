"""Codecs against a slow reference, Gymnasium's own flattening and real environments; and what they refuse."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcatalog import (
    Catalog,
    Match,
    ModelCatalog,
    NoMatch,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    restore_original_dimensions,
)
from rlcatalog.catalog import default_catalog
from rlcatalog.discovery import scan
from rlcatalog.errors import ModelContractError, ObservationError, UnsupportedSpaceError
from rlcatalog_preprocessors.codecs import NoPreprocessor

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
quick = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def make(space, check="always"):
    return CATALOG.preprocessor_for(space, {}, check=check)


# --- the reference ---------------------------------------------------------------------------------------------------


def encoded(space, obs):
    """The flat encoding, one value at a time."""
    if isinstance(space, spaces.Discrete):
        return [1.0 if obs == space.start + i else 0.0 for i in range(space.n)]
    if isinstance(space, spaces.Box):
        return [float(np.float32(value)) for value in np.asarray(obs).flat]
    if isinstance(space, spaces.Dict):
        return [value for key in space.spaces for value in encoded(space.spaces[key], obs[key])]
    return [value for child, part in zip(space.spaces, obs, strict=True) for value in encoded(child, part)]


def restored(space, obs):
    """What a model sees: the structure, with float32 arrays, and one-hot vectors for Discrete."""
    if isinstance(space, spaces.Dict):
        return {key: restored(child, obs[key]) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(restored(child, part) for child, part in zip(space.spaces, obs, strict=True))
    return np.array(encoded(space, obs), np.float32).reshape(space.shape if isinstance(space, spaces.Box) else -1)


def stacked(rows):
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(stacked(list(column)) for column in zip(*rows, strict=True))
    return np.stack(rows)


def assert_same(found, expected):
    """Compare structures of arrays or tensors: same containers, same keys, same values."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert tuple(found.shape) == expected.shape
        np.testing.assert_array_equal(np.asarray(found), expected)


def permuted(value):
    """The same observation, with the keys of every dict in another order."""
    if isinstance(value, dict):
        return {key: permuted(value[key]) for key in reversed(list(value))}
    return tuple(permuted(part) for part in value) if isinstance(value, tuple) else value


@st.composite
def boxes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64", "float16", "uint8", "int8", "int32", "int64"])))
    if dtype.kind == "f":
        low, high = draw(st.sampled_from([(-1, 1), (0, 0.1), (-np.inf, np.inf), (-2.5, np.inf), (-np.inf, 7)]))
    else:
        low, high = draw(st.sampled_from([(0, 1), (3, 100), (0, 127)]))
    return spaces.Box(low, high, shape, dtype.type)


discretes = st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 6), st.integers(-5, 5))
keys = st.text("abz_\u00e9 '", min_size=1, max_size=4)
nested = st.recursive(
    boxes() | discretes,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.lists(st.tuples(keys, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0]).map(spaces.Dict)
    ),
    max_leaves=6,
)


def samples(space, n, seed):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


# --- any space -------------------------------------------------------------------------------------------------------


@quick
@given(nested, st.integers(0, 2**20))
def test_one_observation_is_encoded_as_the_reference_does(space, seed):
    preprocessor = make(space)
    for obs in samples(space, 3, seed):
        found = preprocessor.transform(obs)
        assert found.shape == preprocessor.shape
        assert found.size == preprocessor.size
        if isinstance(space, spaces.Box):
            assert found.dtype == space.dtype
            np.testing.assert_array_equal(found, obs)
            assert found is not obs
        else:
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, encoded(space, obs))
        assert preprocessor.observation_space.contains(found)


@quick
@given(nested, st.integers(0, 2**20))
def test_the_order_of_the_values_is_gymnasiums(space, seed):
    flat = spaces.utils.flatten(space, samples(space, 1, seed)[0])
    space.seed(seed)
    found = make(space).transform(space.sample())
    np.testing.assert_array_equal(found.ravel().astype(np.float32), flat.astype(np.float32))


@quick
@given(nested, st.integers(0, 2**20), st.integers(1, 4))
def test_a_vector_environments_batch_is_encoded_row_by_row(space, seed, n):
    preprocessor, many = make(space), batch_space(space, n)
    many.seed(seed)
    batch = many.sample()
    found = preprocessor.transform_batch(batch)
    assert found.shape == (n, *preprocessor.shape)
    one_by_one = [preprocessor.transform(row) for row in iterate(many, batch)]
    np.testing.assert_array_equal(found, one_by_one)
    assert found.dtype == one_by_one[0].dtype


@quick
@given(nested, st.integers(0, 2**20))
def test_a_list_of_observations_is_a_batch(space, seed):
    preprocessor, rows = make(space), samples(space, 3, seed)
    np.testing.assert_array_equal(preprocessor.transform_batch(rows), [preprocessor.transform(row) for row in rows])


@quick
@given(nested, st.integers(0, 2**20))
def test_the_structure_comes_back(space, seed):
    preprocessor, rows = make(space), samples(space, 3, seed)
    flat = preprocessor.transform_batch(rows)
    expected = stacked([restored(space, row) for row in rows])
    if isinstance(space, spaces.Box | spaces.Discrete):  # nothing to restore: handed back untouched
        assert restore_original_dimensions(flat, preprocessor.observation_space) is flat
        return
    assert_same(restore_original_dimensions(flat, preprocessor.observation_space), expected)
    assert_same(restore_original_dimensions(torch.from_numpy(flat), preprocessor.observation_space, "torch"), expected)
    # A time axis is a second batch axis.
    twice = restore_original_dimensions(np.stack([flat, flat]), preprocessor.observation_space)
    assert_same(twice, stacked([expected, expected]))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(nested.filter(lambda space: not isinstance(space, spaces.Box | spaces.Discrete)), st.integers(0, 2**20))
def test_the_structure_comes_back_in_tensorflow(space, seed):
    preprocessor, rows = make(space), samples(space, 3, seed)
    flat = preprocessor.transform_batch(rows)
    expected = stacked([restored(space, row) for row in rows])
    assert_same(restore_original_dimensions(tf.constant(flat), preprocessor.observation_space, "tf"), expected)


def test_the_structure_comes_back_while_tracing():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2, 3), np.float32), "b": spaces.Tuple([spaces.Discrete(3)])})
    preprocessor, rows = make(space), samples(space, 4, 0)

    @tf.function(input_signature=[tf.TensorSpec([None, preprocessor.size], tf.float32)])
    def restore(flat):
        found = restore_original_dimensions(flat, preprocessor.observation_space, "tf")
        return found["a"], found["b"][0]

    a, b = restore(preprocessor.transform_batch(rows))
    expected = stacked([restored(space, row) for row in rows])
    np.testing.assert_array_equal(a, expected["a"])
    np.testing.assert_array_equal(b, expected["b"][0])


@quick
@given(nested, st.integers(0, 2**20))
def test_the_order_of_an_observations_keys_means_nothing(space, seed):
    preprocessor, rows = make(space), samples(space, 2, seed)
    for row in rows:
        np.testing.assert_array_equal(preprocessor.transform(permuted(row)), preprocessor.transform(row))
    many = batch_space(space, 2)
    many.seed(seed)
    batch = many.sample()
    np.testing.assert_array_equal(preprocessor.transform_batch(permuted(batch)), preprocessor.transform_batch(batch))
    mixed = [rows[0], permuted(rows[1])]
    np.testing.assert_array_equal(preprocessor.transform_batch(mixed), preprocessor.transform_batch(rows))


@quick
@given(nested, st.integers(0, 2**20))
def test_the_plan_names_each_leaf_and_its_slice(space, seed):
    preprocessor = make(space)
    obs = samples(space, 1, seed)[0]
    flat, end = preprocessor.transform(obs).ravel(), 0
    for leaf in preprocessor.leaves():
        assert leaf.start == end
        # A path is what one would type.
        value = eval(leaf.path, {"obs": obs, "__builtins__": {}})
        sub = eval(leaf.path, {"obs": space, "__builtins__": {}})
        assert leaf.kind == ("box" if isinstance(sub, spaces.Box) else "discrete")
        np.testing.assert_array_equal(flat[leaf.start : leaf.stop].astype(np.float32), encoded(sub, value))
        assert int(np.prod(leaf.shape)) == leaf.stop - leaf.start
        end = leaf.stop
    assert end == preprocessor.size


@quick
@given(nested, st.integers(0, 2**20))
def test_a_copy_works_like_the_original(space, seed):
    preprocessor, rows = make(space), samples(space, 2, seed)
    expected = preprocessor.transform_batch(rows)
    for other in (copy.deepcopy(preprocessor), pickle.loads(pickle.dumps(preprocessor))):
        np.testing.assert_array_equal(other.transform_batch(rows), expected)
        np.testing.assert_array_equal(other.transform(rows[0]), expected[0])
        assert other.check_mode == "always"
        assert other.observation_space == preprocessor.observation_space
    processed = pickle.loads(pickle.dumps(preprocessor.observation_space))
    if not isinstance(space, spaces.Box | spaces.Discrete):
        assert_same(
            restore_original_dimensions(expected, processed),
            restore_original_dimensions(expected, preprocessor.observation_space),
        )


@quick
@given(nested, st.integers(0, 2**20), st.integers(0, 3))
def test_write_fills_its_slice_and_nothing_else(space, seed, offset):
    preprocessor, obs = make(space), samples(space, 1, seed)[0]
    array = np.full(offset + preprocessor.size + 2, 7.0, np.float32)
    preprocessor.write(obs, array, offset)
    np.testing.assert_array_equal(array[:offset], 7)
    np.testing.assert_array_equal(array[offset + preprocessor.size :], 7)
    np.testing.assert_array_equal(array[offset : offset + preprocessor.size], encoded(space, obs))


# --- known values ----------------------------------------------------------------------------------------------------


def test_the_seeds_example():
    np.testing.assert_array_equal(make(spaces.Discrete(3)).transform(1), [0, 1, 0])


def test_start_is_honoured():
    preprocessor = make(spaces.Discrete(3, start=2))
    np.testing.assert_array_equal(preprocessor.transform(3), [0, 1, 0])
    np.testing.assert_array_equal(preprocessor.transform_batch(np.array([4, 2])), [[0, 0, 1], [1, 0, 0]])


def test_rllibs_example_of_a_tuple():
    space = spaces.Tuple([spaces.Discrete(5), spaces.Box(0, 5, (3,), np.float32)])
    np.testing.assert_array_equal(make(space).transform((0, np.array([1, 2, 3]))), [1, 0, 0, 0, 0, 1, 2, 3])


def test_rllibs_example_of_a_dict():
    inner = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (4,), np.float32)])
    assert make(spaces.Dict({"a": spaces.Discrete(2), "b": inner})).shape == (9,)


def test_a_dict_whose_keys_are_not_in_alphabetical_order():
    # RLlib matched such observations by position, and swapped their fields silently.
    space = spaces.Dict([("z", spaces.Box(0, 9, (1,), np.float32)), ("a", spaces.Box(0, 9, (1,), np.float32))])
    preprocessor = make(space)
    obs = {"a": np.array([1.0]), "z": np.array([2.0])}
    np.testing.assert_array_equal(preprocessor.transform(obs), [2, 1])
    np.testing.assert_array_equal(preprocessor.transform_batch([obs, permuted(obs)]), [[2, 1], [2, 1]])
    assert_same(
        restore_original_dimensions(np.array([[2.0, 1.0]], np.float32), preprocessor.observation_space),
        {"z": np.array([[2.0]], np.float32), "a": np.array([[1.0]], np.float32)},
    )


def test_the_encoded_bounds_are_the_leaves_own():
    space = spaces.Tuple([spaces.Box(np.array([-2, 0]), np.array([3, 7]), dtype=np.float32), spaces.Discrete(2)])
    processed = make(space).observation_space
    np.testing.assert_array_equal(processed.low, [-2, 0, 0, 0])
    np.testing.assert_array_equal(processed.high, [3, 7, 1, 1])
    assert processed.original_space is space
    assert processed.dtype == np.float32


def test_the_space_of_a_box_is_itself():
    space = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    assert make(space).observation_space is space


def test_bounds_that_float32_cannot_hold():
    space = spaces.Dict({"x": spaces.Box(-1e300, 1e300, (2,), np.float64)})
    processed = make(space).observation_space
    assert processed.contains(make(space).transform({"x": np.array([-3.0, 4.0])}))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Dict({}), "b": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Tuple([]), spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({})]),
        spaces.Tuple([spaces.Box(0, 1, (0,), np.float32), spaces.Discrete(2)]),
    ],
    ids=str,
)
def test_children_without_values_take_no_room(space):
    preprocessor = make(space)
    rows = samples(space, 3, 0)
    assert preprocessor.size == 2
    np.testing.assert_array_equal(preprocessor.transform(rows[0]), encoded(space, rows[0]))
    np.testing.assert_array_equal(preprocessor.transform_batch(rows), [encoded(space, row) for row in rows])


def test_transform_never_hands_out_what_it_was_given():
    for space in (spaces.Box(-1, 1, (3,), np.float32), spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32)})):
        preprocessor, obs = make(space), samples(space, 1, 0)[0]
        found = preprocessor.transform(obs)
        found[:] = 9
        assert space.contains(obs)
        batch = np.zeros((2, 3), np.float32)
        preprocessor.transform_batch(batch if isinstance(space, spaces.Box) else {"a": batch})[:] = 9
        np.testing.assert_array_equal(batch, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_a_list_of_numbers_is_taken_for_an_array(dtype):
    preprocessor = make(spaces.Box(0, 9, (3,), dtype))
    found = preprocessor.transform([1, 2, 3])
    np.testing.assert_array_equal(found, [1, 2, 3])
    assert found.dtype == dtype


def test_a_processed_space_from_elsewhere_is_restored_too():
    # Another process, or RLlib, hands over a flat Box that only knows its original_space.
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(2)})
    foreign = spaces.Box(-1, 1, (4,), np.float32)
    foreign.original_space = space
    found = restore_original_dimensions(np.array([[1, 2, 0, 1]], np.float32), foreign)
    assert_same(found, {"a": np.array([[1, 2]], np.float32), "b": np.array([[0, 1]], np.float32)})


def test_what_restoring_leaves_alone_and_what_it_refuses():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32)})
    processed = make(space).observation_space
    done = {"a": np.zeros((1, 2))}
    assert restore_original_dimensions(done, processed) is done
    plain = np.zeros((1, 2))
    assert restore_original_dimensions(plain, spaces.Box(-1, 1, (2,))) is plain
    for wrong in (np.zeros((1, 3)), np.zeros(2)):
        with pytest.raises(ObservationError, match=r"expected encoded observations of shape \[\.\.\., 2\]"):
            restore_original_dimensions(wrong, processed)
    with pytest.raises(ModelContractError, match="tensorlib must be"):
        restore_original_dimensions(np.zeros((1, 2)), processed, "jax")


# --- what is refused -------------------------------------------------------------------------------------------------

POS = spaces.Box(-1, 1, (2,), np.float32)
SPACE = spaces.Dict(
    {"pos": POS, "task": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(0, 9, (2, 2), np.int64)])}
)
GOOD = {"pos": np.zeros(2, np.float32), "task": (1, np.zeros((2, 2), np.int64))}
BAD = [
    ({**GOOD, "pos": np.zeros(3, np.float32)}, "obs['pos']: expected Box(2,) float32: shape (2,)", "shape (3,)"),
    ({**GOOD, "pos": np.zeros((1, 2), np.float32)}, "obs['pos']: expected", "shape (1, 2)"),
    ({**GOOD, "pos": np.float32(0)}, "obs['pos']: expected", "0.0"),
    ({**GOOD, "pos": np.array([0, 1.5], np.float32)}, "obs['pos']: expected", "within [-1.0, 1.0] at [1]; found"),
    ({**GOOD, "pos": np.array([np.nan, 0], np.float32)}, "obs['pos']: expected", "at [0]; found"),
    ({**GOOD, "pos": np.array([0, -np.inf], np.float32)}, "obs['pos']: expected", "at [1]; found"),
    ({**GOOD, "pos": np.array(["a", "b"])}, "obs['pos']: expected", "cast to float32; found"),
    ({**GOOD, "pos": np.zeros(2, np.complex64)}, "obs['pos']: expected", "cast to float32; found"),
    ({**GOOD, "pos": None}, "obs['pos']: expected", "None"),
    ({**GOOD, "task": (0, GOOD["task"][1])}, "obs['task'][0]: expected Discrete(3, start=1)", "1 to 3; found 0"),
    ({**GOOD, "task": (4, GOOD["task"][1])}, "obs['task'][0]: expected", "found 4"),
    ({**GOOD, "task": (1.0, GOOD["task"][1])}, "obs['task'][0]: expected", "found 1.0 ("),
    ({**GOOD, "task": (np.array([1]), GOOD["task"][1])}, "obs['task'][0]: expected", "shape (1,)"),
    ({**GOOD, "task": ("1", GOOD["task"][1])}, "obs['task'][0]: expected", "found '1'"),
    ({**GOOD, "task": (1, np.zeros((2, 2)))}, "obs['task'][1]: expected", "cast to int64; found"),
    ({**GOOD, "task": (1, np.array([[0, 0], [10, 0]]))}, "obs['task'][1]: expected", "within [0, 9] at [1, 0]"),
    ({**GOOD, "task": (1,)}, "obs['task']: expected a tuple of 2 values", "(1,)"),
    ({**GOOD, "task": {"a": 1}}, "obs['task']: expected a tuple of 2 values", "(dict)"),
    ({"pos": GOOD["pos"]}, "obs: expected a dict with the keys ['pos', 'task']", "without ['task']"),
    ({**GOOD, "extra": 1}, "obs: expected a dict with the keys ['pos', 'task']", "with the unknown ['extra']"),
    ({"pos": GOOD["pos"], "tasks": GOOD["task"]}, "obs: expected", "without ['task'] and with the unknown ['tasks']"),
    (GOOD["pos"], "obs: expected a dict", "array of shape (2,)"),
    (None, "obs: expected a dict", "None"),
]  # fmt: skip


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
    with pytest.raises(ObservationError, match=r"obs: expected Discrete\(3\).*; found True \(bool\)"):
        make(spaces.Discrete(3)).transform(True)


def batch(**changes):
    good = {"pos": np.zeros((3, 2), np.float32), "task": (np.ones(3, np.int64), np.zeros((3, 2, 2), np.int64))}
    return {**good, **changes}


BAD_BATCHES = [
    (batch(pos=np.array([[0, 0], [0, 0], [0, 2]], np.float32)), "obs['pos']: expected", "at [1]; found 2.0"),
    (batch(pos=np.full((3, 2), np.nan, np.float32)), "obs['pos']: expected", "at [0]; found"),
    (batch(pos=np.zeros((3, 3), np.float32)), "obs['pos']: expected", "shape (3,)"),
    (batch(pos=np.zeros((3, 2), np.complex64)), "obs['pos']: expected", "cast to float32"),
    (batch(task=(np.array([1, 0, 1]), np.zeros((3, 2, 2), np.int64))), "obs['task'][0]: expected", "found 0"),
    (batch(task=(np.ones(3), np.zeros((3, 2, 2), np.int64))), "obs['task'][0]: expected", "found 1.0"),
    (batch(extra=np.zeros(3)), "obs: expected a dict with the keys", "with the unknown ['extra']"),
    ({"pos": np.zeros((3, 2), np.float32)}, "obs: expected", "task"),
    (batch(task=(np.ones(3, np.int64),)), "obs", "task"),
    (batch(pos=np.zeros((2, 2), np.float32)), "obs", ""),
    (batch(pos=np.zeros(2, np.float32)), "obs", ""),
    (np.zeros((3, 2), np.float32), "obs: expected", "array of shape (3, 2)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "expected", "found", "check"),
    # The first row of the first one is good, and "first" looks at that row alone.
    [(*bad, "always") for bad in BAD_BATCHES] + [(*bad, "first") for bad in BAD_BATCHES[1:]],
)
def test_a_batch_outside_its_space_is_refused_with_its_leafs_path(bad, expected, found, check):
    preprocessor = make(SPACE, check)
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
    preprocessor = make(space, check)
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)
    preprocessor.transform(samples(space, 1, 0)[0])  # a good one has passed
    with pytest.raises(ObservationError, match=r"^obs"):
        preprocessor.transform_batch(wrong)


def test_a_wrong_shape_is_not_broadcast():
    preprocessor = make(spaces.Dict({"a": POS}), "never")
    for wrong in (np.zeros(1, np.float32), np.float32(0), np.zeros((1, 2), np.float32)):
        with pytest.raises(ObservationError, match=r"obs\['a'\]"):
            preprocessor.transform({"a": wrong})


def test_a_negative_index_does_not_hit_another_slot():
    preprocessor = make(spaces.Tuple([POS, spaces.Discrete(3)]), "never")
    for wrong in (-1, 3, -3):
        with pytest.raises(ObservationError, match=r"obs\[1\]"):
            preprocessor.transform((np.zeros(2), wrong))


OUTSIDE = {"a": np.array([0, 5], np.float32)}
INSIDE = {"a": np.array([0, 0.5], np.float32)}
ONE_LEAF = spaces.Dict({"a": POS})


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
def test_check_first_checks_until_one_has_passed(form):
    preprocessor = make(ONE_LEAF, "first")

    def encode(obs):
        return preprocessor.transform(obs) if form == "transform" else preprocessor.transform_batch([obs])[0]

    for _ in range(2):
        with pytest.raises(ObservationError, match=r"obs\['a'\]"):
            encode(OUTSIDE)
    encode(INSIDE)
    np.testing.assert_array_equal(encode(OUTSIDE), [0, 5])


def test_check_always_and_never():
    always, never = make(ONE_LEAF, "always"), make(ONE_LEAF, "never")
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


@pytest.mark.parametrize(
    ("space", "path", "described"),
    [
        (spaces.Dict({"a": BOX, "g": spaces.Graph(BOX, None)}), "obs['g']", "Graph"),
        (spaces.Tuple([BOX, spaces.Dict({"t": spaces.Text(4)})]), "obs[1]['t']", "Text"),
        (spaces.Text(4), "obs", "Text"),
        (spaces.Dict({"a": spaces.Tuple([BOX, spaces.Graph(BOX, BOX)])}), "obs['a'][1]", "Graph"),
    ],
    ids=str,
)
def test_a_kind_nobody_serves_names_the_leaf(space, path, described):
    with pytest.raises(UnsupportedSpaceError) as caught:
        make(space)
    said = str(caught.value)
    assert said.startswith(f"{path}: no installed preprocessor takes {described}")
    assert "Installed: dict, none, onehot, tuple" in said


def test_what_is_no_space_is_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"expected a gymnasium\.Space, found 'Box'"):
        make("Box")


# --- a class in RLlib's old form -------------------------------------------------------------------------------------


class MyPreprocessorClass(Preprocessor):
    """The seeds' example, filled in."""

    def _init_shape(self, obs_space, options):
        self.factor = options["custom_options"].get("factor", 1)
        return (2 * obs_space.shape[0],)

    def transform(self, observation):
        return np.concatenate([observation, self.factor * observation])


@pytest.fixture
def default(monkeypatch):
    """A default catalog of this test's own."""
    default_catalog.cache_clear()
    yield default_catalog()
    default_catalog.cache_clear()


@pytest.mark.parametrize("by_name", [True, False])
def test_a_custom_preprocessor_with_its_options(default, by_name):
    ModelCatalog.register_custom_preprocessor("my_prep", MyPreprocessorClass)
    config = {"custom_preprocessor": "my_prep" if by_name else MyPreprocessorClass, "custom_options": {"factor": 3}}
    with (
        pytest.warns(DeprecationWarning, match="custom_preprocessor is deprecated"),
        pytest.warns(DeprecationWarning, match="'custom_options' is now called 'custom_model_config'"),
    ):
        preprocessor = ModelCatalog.get_preprocessor_for_space(BOX, config)
    assert isinstance(preprocessor, MyPreprocessorClass)
    assert (preprocessor.shape, preprocessor.size) == ((4,), 4)
    np.testing.assert_array_equal(preprocessor.transform(np.array([0.5, 1.0])), [0.5, 1, 1.5, 3])
    # What the base makes of the two methods.
    batch_of_two = np.array([[0.5, 1.0], [0.0, -1.0]], np.float32)
    expected = [[0.5, 1, 1.5, 3], [0, -1, 0, -3]]
    np.testing.assert_array_equal(preprocessor.transform_batch(batch_of_two), expected)
    np.testing.assert_array_equal(preprocessor.transform_batch(list(batch_of_two)), expected)
    array = np.full(6, 7.0)
    preprocessor.write(batch_of_two[0], array, 1)
    np.testing.assert_array_equal(array, [7, 0.5, 1, 1.5, 3, 7])
    assert preprocessor.observation_space.shape == (4,)
    assert preprocessor.observation_space.original_space is BOX
    # A Box observation stays as the preprocessor made it.
    flat = np.zeros((2, 4))
    assert restore_original_dimensions(flat, preprocessor.observation_space) is flat


def test_a_custom_preprocessor_with_a_constructor_in_rllibs_form(default):
    class WithConstructor(Preprocessor):
        def __init__(self, obs_space, options=None):
            super().__init__(obs_space, options)
            self.ready = True

        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            self.check_shape(observation)
            return np.array([observation.sum()])

    with pytest.warns(DeprecationWarning, match="custom_preprocessor"):
        preprocessor = ModelCatalog.get_preprocessor_for_space(
            BOX, {"custom_preprocessor": WithConstructor, "check_observations": "always"}
        )
    assert preprocessor.ready
    np.testing.assert_array_equal(preprocessor.transform_batch([np.array([0.25, 0.5], np.float32)]), [[0.75]])
    with pytest.raises(ObservationError, match=r"obs: expected a value of Box\(2,\) float32"):
        preprocessor.transform(np.array([2.0, 0.0]))


def test_a_custom_preprocessor_takes_what_the_built_in_one_takes(default):
    # Many environments declare float32 and emit float64, or Python's lists.
    with pytest.warns(DeprecationWarning, match="custom_preprocessor"):
        custom = ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": MyPreprocessorClass})
    for row in (np.array([0.25, 0.5]), [0.25, 0.5], np.array([0, 1])):
        built_in = ModelCatalog.get_preprocessor_for_space(BOX).transform_batch([row])
        custom.set_check("always")
        np.testing.assert_array_equal(custom.transform_batch([row])[:, :2], built_in)


def test_a_custom_preprocessor_serves_a_space_that_has_no_codec(default):
    class Length(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            return [len(observation)]

    with pytest.warns(DeprecationWarning, match="custom_preprocessor"):
        preprocessor = ModelCatalog.get_preprocessor_for_space(spaces.Text(9), {"custom_preprocessor": Length})
    np.testing.assert_array_equal(preprocessor.transform_batch(["ab", "abcd"]), [[2], [4]])


class Forgetful(Preprocessor):
    def _init_shape(self, obs_space, options):
        pass


class OneTooFew(Preprocessor):
    def _init_shape(self, obs_space, options):
        return (3,)

    def transform(self, observation):
        return observation[:1]


@pytest.mark.filterwarnings("ignore:custom_preprocessor is deprecated:DeprecationWarning")
def test_a_custom_preprocessor_that_breaks_its_contract(default):
    with pytest.raises(ModelContractError, match="must be a registered name or a subclass"):
        ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": dict})
    with pytest.raises(ModelContractError, match=r"Forgetful\._init_shape\(\) must return a shape, found None"):
        ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": Forgetful})
    preprocessor = ModelCatalog.get_preprocessor_for_space(BOX, {"custom_preprocessor": OneTooFew})
    with pytest.raises((ModelContractError, ObservationError)):  # one value must not be spread over three
        preprocessor.transform_batch([np.zeros(2, np.float32)])


class Doubled(NoPreprocessor):
    """A codec of Box of somebody else's."""

    def writer(self, start):
        write = super().writer(start)
        return lambda obs, out: write(2 * obs, out)


def test_the_children_of_a_composite_are_the_catalogs(monkeypatch):
    module = ModuleType("made_up_codecs")
    module.Doubled = Doubled
    monkeypatch.setitem(sys.modules, "made_up_codecs", module)
    catalog = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})
    spec = PreprocessorSpec("doubled", {"numpy": "made_up_codecs:Doubled"}, "", match=_boxes_of_two)
    catalog.register(spec)
    space = spaces.Dict({"a": BOX, "b": spaces.Tuple([BOX, spaces.Box(-1, 1, (1,), np.float32)])})
    found = catalog.preprocessor_for(space).transform({"a": np.ones(2), "b": (np.ones(2), np.ones(1))})
    np.testing.assert_array_equal(found, [2, 2, 2, 2, 1])


def _boxes_of_two(request):
    return Match(Rank.SPECIFIC, "two values") if request.obs.shape == (2,) else NoMatch("another shape")


# --- real environments -----------------------------------------------------------------------------------------------

ENVS = ["CartPole-v1", "Pendulum-v1", "Taxi-v3", "FrozenLake-v1", "Blackjack-v1"]


@pytest.mark.parametrize("env_id", ENVS)
def test_observations_of_a_real_environment(env_id):
    env = gym.make(env_id)
    preprocessor = ModelCatalog.get_preprocessor(env, {"check_observations": "always"})
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(200):
        found = preprocessor.transform(obs)
        np.testing.assert_array_equal(found.ravel(), encoded(env.observation_space, obs))
        assert preprocessor.observation_space.contains(found)
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()


@pytest.mark.parametrize("env_id", ENVS)
def test_observations_of_a_real_vector_environment(env_id):
    envs = gym.make_vec(env_id, num_envs=3, vectorization_mode="sync")
    single = envs.single_observation_space
    preprocessor = ModelCatalog.get_preprocessor_for_space(single, {"check_observations": "always"})
    envs.action_space.seed(0)
    obs, _ = envs.reset(seed=0)
    for _ in range(100):
        found = preprocessor.transform_batch(obs)
        expected = [encoded(single, row) for row in iterate(envs.observation_space, obs)]
        np.testing.assert_array_equal(found.reshape(3, -1), expected)
        obs, *_ = envs.step(envs.action_space.sample())
    envs.close()
