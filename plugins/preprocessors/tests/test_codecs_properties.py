"""Codecs of every kind of space against a slow reference that reads the Gymnasium
space by itself.
"""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, strategies as st
from random_spaces import Case, any_space, bounded, cases, mixed_space, seeds, vector_batch, walk
from slow_codec import encoded, size

from rlcatalog import restore_original_dimensions

#: Spaces that stay what they are at the root.
RAW = (spaces.Box,)
RAW_AS_INTEGERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)


def assert_encoded(case, found, obs, raw=RAW):
    """The reference's values, in float32; a root that is handed on as it is keeps its own dtype."""
    if isinstance(case.space, raw):
        assert found.dtype == case.space.dtype
        assert found.shape == case.space.shape
        np.testing.assert_array_equal(found, obs)
    else:
        assert found.dtype == np.float32
        np.testing.assert_array_equal(
            found.ravel(), np.array(encoded(case.space, obs, case.options, case.root), "f4")
        )


@bounded(60)
@given(cases(), seeds)
def test_what_is_drawn_lies_in_its_space(case, seed):
    # The truth about the sampler itself, by Gymnasium's own judgement.
    for obs in case.samples(2, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns about scalars that are no arrays
            assert case.space.contains(obs)


@bounded(120)
@given(cases(), seeds)
def test_an_observation_is_encoded_as_the_reference_does(case, seed):
    preprocessor = case.make()
    for obs in case.samples(3, seed):
        found = preprocessor.transform(obs)
        assert found.shape == preprocessor.shape
        assert found.size == preprocessor.size == size(case.space, case.options)
        assert_encoded(case, found, obs)


@bounded(60)
@given(cases(), seeds)
def test_the_encoded_observation_lies_in_the_encoded_space(case, seed):
    preprocessor = case.make()
    processed = preprocessor.observation_space
    assert processed.shape == preprocessor.shape
    for obs in case.samples(4, seed):
        found = preprocessor.transform(obs)
        assert processed.contains(found)
    if not isinstance(case.space, RAW):
        assert processed.original_space is case.space
        assert processed.dtype == np.float32


@bounded(50)
@given(cases(), seeds)
def test_each_array_is_fresh(case, seed):
    preprocessor, (obs, other) = case.make(), case.samples(2, seed)
    kept = copy.deepcopy(obs)
    for encode in (preprocessor.transform, lambda one: preprocessor.transform_batch([one])):
        found = encode(obs)
        before = found.copy()
        encode(other)
        np.testing.assert_array_equal(found, before)  # no buffer is used again
        found[...] = 1
        np.testing.assert_array_equal(encode(obs), before)  # and the observation is not written to
        np.testing.assert_array_equal(preprocessor.transform(kept), preprocessor.transform(obs))
    batch = vector_batch(case.space, [obs, other])
    before = preprocessor.transform_batch(batch)
    preprocessor.transform_batch(batch)[...] = 1
    np.testing.assert_array_equal(preprocessor.transform_batch(batch), before)


@bounded(60)
@given(cases(), seeds, st.integers(0, 3))
def test_write_fills_its_slice_and_nothing_else(case, seed, offset):
    preprocessor, (obs, other) = case.make(), case.samples(2, seed)
    array = np.full(offset + preprocessor.size + 2, 7.0, np.float32)
    end = offset + preprocessor.size
    for one in (other, obs):  # what an earlier observation left behind is gone
        preprocessor.write(one, array, offset)
        np.testing.assert_array_equal(
            array[offset:end], np.array(encoded(case.space, one, case.options), np.float32)
        )
    np.testing.assert_array_equal(array[:offset], 7)
    np.testing.assert_array_equal(array[end:], 7)


@bounded(30)
@given(cases(mixed_space), seeds)
def test_write_fills_a_column_of_another_array(case, seed):
    # A slice whose values do not lie side by side.
    preprocessor, obs = case.make(), case.samples(1, seed)[0]
    table = np.full((preprocessor.size + 3, 2), 7.0, np.float32)
    preprocessor.write(obs, table[:, 1], 2)
    np.testing.assert_array_equal(
        table[2:-1, 1], np.array(encoded(case.space, obs, case.options), np.float32)
    )
    np.testing.assert_array_equal(table[:, 0], 7)


@bounded(80)
@given(cases(), seeds, st.integers(1, 3))
def test_a_batch_is_encoded_row_by_row(case, seed, n):
    preprocessor, rows = case.make(), case.samples(n, seed)
    expected = [preprocessor.transform(row) for row in rows]
    for batch in (list(rows), vector_batch(case.space, rows)):
        found = preprocessor.transform_batch(batch)
        assert found.shape == (n, *preprocessor.shape)
        assert found.dtype == expected[0].dtype
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(preprocessor.encode_batch(batch), expected)


def reordered(space, obs, rng):
    """The same observation, with the keys of each dict in another order."""
    if isinstance(space, spaces.Dict):
        keys = [list(space.spaces)[i] for i in rng.permutation(len(space.spaces))]
        return {key: reordered(space.spaces[key], obs[key], rng) for key in keys}
    if isinstance(space, spaces.Tuple):
        return tuple(
            reordered(child, part, rng) for child, part in zip(space.spaces, obs, strict=True)
        )
    if isinstance(space, spaces.OneOf):
        return obs[0], reordered(space.spaces[obs[0]], obs[1], rng)
    if hasattr(space, "child_space"):
        return [reordered(space.child_space, item, rng) for item in obs]
    if isinstance(space, spaces.Sequence):
        if space.stack:
            return (
                reordered(space.feature_space, obs, rng)
                if isinstance(space.feature_space, spaces.Dict)
                else obs
            )
        return tuple(reordered(space.feature_space, item, rng) for item in obs)
    return obs


def of_columns(space):
    """Whether a stacked Sequence of Dict holds kinds that are no columns, which `reordered` does
    not follow.
    """
    return any(isinstance(node, spaces.Sequence) and node.stack for _, node in walk(space, "obs"))


@bounded(60)
@given(cases(mixed_space.filter(lambda space: not of_columns(space))), seeds)
def test_the_order_of_keys_means_nothing(case, seed):
    preprocessor, rows, rng = case.make(), case.samples(3, seed), np.random.default_rng(seed)
    expected = [encoded(case.space, row, case.options) for row in rows]
    mixed = [reordered(case.space, row, rng) for row in rows]
    for row, values in zip(mixed, expected, strict=True):
        np.testing.assert_array_equal(preprocessor.transform(row), np.array(values, np.float32))
    np.testing.assert_array_equal(
        preprocessor.transform_batch(mixed), np.array(expected, np.float32)
    )
    batch = vector_batch(case.space, rows)
    if isinstance(case.space, spaces.Dict):
        batch = {key: batch[key] for key in reversed(batch)}
    np.testing.assert_array_equal(
        preprocessor.transform_batch(batch), np.array(expected, np.float32)
    )


@pytest.mark.parametrize("stacked", [False, True])
def test_the_order_of_keys_in_the_items_of_a_sequence_means_nothing(stacked):
    item = spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Box(-9, 9, (1,), np.float32))])
    preprocessor = Case(spaces.Sequence(item, stack=stacked), {"sequence_max_len": 2}).make()
    column = {"a": np.array([[5.0]], np.float32), "z": np.array([1])}
    obs = column if stacked else ({"a": column["a"][0], "z": column["z"][0]},)
    np.testing.assert_array_equal(preprocessor.transform(obs), [1, 0, 1, 5, 0, 0, 0])


@bounded(60)
@given(cases(), seeds)
def test_the_plan_covers_the_vector_once_and_in_order(case, seed):
    preprocessor = case.make()
    for start in (0, 5):
        end = start
        for leaf in preprocessor.leaves(start):
            assert leaf.start == end
            assert leaf.stop - leaf.start == int(np.prod(leaf.shape))
            assert leaf.path.startswith("obs")
            end = leaf.stop
        assert end == start + preprocessor.size
    # Quantities are the values of Boxes that stand by themselves, bool aside.
    flat = preprocessor.transform(case.samples(1, seed)[0]).ravel()
    boxes = {
        path: space for path, space in walk(case.space, "obs") if isinstance(space, spaces.Box)
    }
    for leaf in preprocessor.leaves():
        assert leaf.numeric == (leaf.kind == "box" and boxes[leaf.path].dtype != bool)
        if leaf.kind in ("mask", "tag", "discrete", "multi_discrete", "multi_binary"):
            assert set(flat[leaf.start : leaf.stop]) <= {0, 1}


@bounded(40)
@given(cases(), seeds)
def test_a_pickled_copy_works_like_the_original(case, seed):
    preprocessor, rows = case.make(), case.samples(2, seed)
    expected = [preprocessor.transform(row) for row in rows]
    preprocessor.transform_batch(rows)
    for other in (pickle.loads(pickle.dumps(preprocessor)), copy.deepcopy(preprocessor)):
        np.testing.assert_array_equal([other.transform(row) for row in rows], expected)
        np.testing.assert_array_equal(other.transform_batch(rows), expected)
        assert other.observation_space == preprocessor.observation_space
        assert other.leaves() == preprocessor.leaves()
        restore_original_dimensions(other.transform_batch(rows), other.observation_space)


@bounded(50)
@given(cases(root="action"), seeds)
def test_actions_are_encoded_by_the_same_codecs(case, seed):
    preprocessor, rows = case.make(), case.samples(2, seed)
    for row in rows:
        assert_encoded(case, preprocessor.transform(row), row)
    np.testing.assert_array_equal(
        preprocessor.transform_batch(rows), [preprocessor.transform(row) for row in rows]
    )
    assert all(leaf.path.startswith("action") for leaf in preprocessor.leaves())


@bounded(80)
@given(cases().map(lambda case: case.with_options(_disable_preprocessor_api=True)), seeds)
def test_integers_stay_integers_on_request(case, seed):
    preprocessor, rows = case.make(), case.samples(2, seed)
    expected = [preprocessor.transform(row) for row in rows]
    for row, found in zip(rows, expected, strict=True):
        assert_encoded(case, found, row, RAW_AS_INTEGERS)
        assert preprocessor.observation_space.contains(found)
        array = np.zeros(preprocessor.size, np.float32)
        preprocessor.write(row, array, 0)
        np.testing.assert_array_equal(
            array, np.array(encoded(case.space, row, case.options), np.float32)
        )
    for batch in (list(rows), vector_batch(case.space, rows)):
        found = preprocessor.transform_batch(batch)
        assert found.dtype == expected[0].dtype
        np.testing.assert_array_equal(found, expected)


@bounded(30)
@given(cases(any_space), seeds)
def test_how_observations_are_checked_does_not_change_them(case, seed):
    rows = case.samples(3, seed)
    always, first, never = (case.make(check) for check in ("always", "first", "never"))
    expected = [always.transform(row) for row in rows]
    for other in (first, never):
        np.testing.assert_array_equal([other.transform(row) for row in rows], expected)
        np.testing.assert_array_equal(
            other.transform_batch(vector_batch(case.space, rows)), expected
        )
