"""Codecs against a slow reference and Gymnasium's own flattening, on any space and in real environments."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlcatalog import Catalog, ModelCatalog, restore_original_dimensions
from rlcatalog.discovery import scan

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
def test_the_structure_comes_back(assert_same, space, seed):
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
def test_the_structure_comes_back_in_tensorflow(assert_same, space, seed):
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
def test_the_order_of_an_observations_keys_means_nothing(permuted, space, seed):
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
def test_a_copy_works_like_the_original(assert_same, space, seed):
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
