"""Codecs of random spaces, compared with a slow reference.

`slow_codec` is the reference: it reads the Gymnasium space itself, one value at a time.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, Sequence
from hypothesis import given, strategies as st
from properties import max_examples
from random_spaces import Case, any_space, cases, mixed_space, seeds, vector_batch, walk
from slow_codec import encoded as encode_slowly, size

from rlcatalog import restore_original_dimensions


def expect(case, obs):
    """Return the encoding of an observation by the reference."""
    return np.array(encode_slowly(case.space, obs, case.options, case.root), np.float32)


def assert_encoded(case, encoding, obs, kept=(Box,)):
    """Compare an encoding with the reference; spaces of the classes `kept` are not encoded."""
    if isinstance(case.space, kept):
        assert encoding.dtype == case.space.dtype
        assert encoding.shape == case.space.shape
        np.testing.assert_array_equal(encoding, obs)
    else:
        assert encoding.dtype == np.float32
        np.testing.assert_array_equal(encoding.ravel(), expect(case, obs))


# --- single observations --------------------------------------------------------------------------


@max_examples(120)
@given(cases(), seeds)
def test_transform_encodes_like_the_reference(case, seed):
    preprocessor = case.make_preprocessor()
    expected_size = size(case.space, case.options)  # that of the reference

    for obs in case.draw_observations(3, seed):
        encoding = preprocessor.transform(obs)

        assert encoding.shape == preprocessor.shape
        assert encoding.size == expected_size
        assert preprocessor.size == expected_size
        assert_encoded(case, encoding, obs)


@max_examples(60)
@given(cases(), seeds)
def test_encoded_observation_lies_in_the_encoded_space(case, seed):
    preprocessor = case.make_preprocessor()
    encoded_space = preprocessor.observation_space

    assert encoded_space.shape == preprocessor.shape
    for obs in case.draw_observations(4, seed):
        assert encoded_space.contains(preprocessor.transform(obs))


@max_examples(60)
@given(cases(any_space.filter(lambda space: not isinstance(space, Box))))
def test_encoded_space_is_float32_and_knows_the_original(case):
    encoded_space = case.make_preprocessor().observation_space

    assert encoded_space.original_space is case.space
    assert encoded_space.dtype == np.float32


@max_examples(50)
@given(cases(root="action"), seeds)
def test_actions_are_encoded_by_the_same_codecs(case, seed):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(2, seed)

    encoded_rows = [preprocessor.transform(row) for row in rows]

    for row, encoded_row in zip(rows, encoded_rows, strict=True):
        assert_encoded(case, encoded_row, row)
    np.testing.assert_array_equal(preprocessor.transform_batch(rows), encoded_rows)
    assert all(leaf.path.startswith("action") for leaf in preprocessor.leaves())


# --- arrays that do not share memory --------------------------------------------------------------


def encode_alone(preprocessor, obs):
    return preprocessor.transform(obs)


def encode_in_a_batch(preprocessor, obs):
    return preprocessor.transform_batch([obs])


@pytest.mark.parametrize("encode", [encode_alone, encode_in_a_batch])
@max_examples(50)
@given(case=cases(), seed=seeds)
def test_encodings_do_not_share_memory(encode, case, seed):
    preprocessor = case.make_preprocessor()
    obs, other_obs = case.draw_observations(2, seed)

    encoding = encode(preprocessor, obs)
    encoding_before = encoding.copy()
    encode(preprocessor, other_obs)

    np.testing.assert_array_equal(encoding, encoding_before)


@pytest.mark.parametrize("encode", [encode_alone, encode_in_a_batch])
@max_examples(50)
@given(case=cases(), seed=seeds)
def test_encoding_does_not_share_memory_with_the_observation(encode, case, seed):
    preprocessor = case.make_preprocessor()
    [obs] = case.draw_observations(1, seed)
    encoding = encode(preprocessor, obs)
    encoding_before = encoding.copy()

    encoding[...] = 1

    # The observation has not changed with it.
    np.testing.assert_array_equal(encode(preprocessor, obs), encoding_before)


@max_examples(50)
@given(cases(), seeds)
def test_encoding_does_not_share_memory_with_a_vector_batch(case, seed):
    preprocessor = case.make_preprocessor()
    batch = vector_batch(case.space, case.draw_observations(2, seed))
    before = preprocessor.transform_batch(batch)

    preprocessor.transform_batch(batch)[...] = 1

    np.testing.assert_array_equal(preprocessor.transform_batch(batch), before)


# --- writing into arrays --------------------------------------------------------------------------


@max_examples(60)
@given(cases(), seeds, st.integers(0, 3))
def test_write_fills_its_slice_and_nothing_else(case, seed, start):
    preprocessor = case.make_preprocessor()
    stop = start + preprocessor.size
    array = np.full(stop + 2, 7.0, np.float32)

    # The second observation replaces all values of the first.
    for obs in case.draw_observations(2, seed):
        preprocessor.write(obs, array, start)
        np.testing.assert_array_equal(array[start:stop], expect(case, obs))

    np.testing.assert_array_equal(array[:start], 7)
    np.testing.assert_array_equal(array[stop:], 7)


@max_examples(30)
@given(cases(mixed_space), seeds)
def test_write_fills_a_column_of_a_table(case, seed):
    # The values of a column do not lie side by side.
    preprocessor = case.make_preprocessor()
    [obs] = case.draw_observations(1, seed)
    table = np.full((preprocessor.size + 3, 2), 7.0, np.float32)

    preprocessor.write(obs, table[:, 1], 2)

    np.testing.assert_array_equal(table[2:-1, 1], expect(case, obs))
    np.testing.assert_array_equal(table[:, 0], 7)


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_list", [True, False], ids=["list", "vector-environment"])
@max_examples(80)
@given(case=cases(), seed=seeds, n=st.integers(1, 3))
def test_batch_is_encoded_row_by_row(is_list, case, seed, n):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(n, seed)
    encoded_rows = [preprocessor.transform(row) for row in rows]
    batch = rows if is_list else vector_batch(case.space, rows)

    encoded_batch = preprocessor.transform_batch(batch)

    assert encoded_batch.shape == (n, *preprocessor.shape)
    assert encoded_batch.dtype == encoded_rows[0].dtype
    np.testing.assert_array_equal(encoded_batch, encoded_rows)
    np.testing.assert_array_equal(preprocessor.encode_batch(batch), encoded_rows)


@max_examples(30)
@given(cases(any_space), seeds)
def test_check_mode_does_not_change_encodings(case, seed):
    rows = case.draw_observations(3, seed)
    batch = vector_batch(case.space, rows)
    checking = case.make_preprocessor("always")
    expected = [checking.transform(row) for row in rows]

    for mode in ["first", "never"]:
        preprocessor = case.make_preprocessor(mode)
        np.testing.assert_array_equal([preprocessor.transform(row) for row in rows], expected)
        np.testing.assert_array_equal(preprocessor.transform_batch(batch), expected)


# --- the order of keys ----------------------------------------------------------------------------


def shuffle_keys(space, obs, rng):
    """Return the same observation, with the keys of each dict in another order."""
    if isinstance(space, spaces.Dict):
        keys = [list(space.spaces)[i] for i in rng.permutation(len(space.spaces))]
        return {key: shuffle_keys(space.spaces[key], obs[key], rng) for key in keys}
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, obs, strict=True)
        return tuple(shuffle_keys(child, part, rng) for child, part in parts)
    if isinstance(space, spaces.OneOf):
        tag, value = obs
        return tag, shuffle_keys(space.spaces[tag], value, rng)
    if hasattr(space, "child_space"):
        return [shuffle_keys(space.child_space, item, rng) for item in obs]
    if isinstance(space, spaces.Sequence):
        return tuple(shuffle_keys(space.feature_space, item, rng) for item in obs)
    return obs


def has_stacked_sequence(space):
    """Return whether a space contains a stacked Sequence, which `shuffle_keys` does not follow."""
    return any(isinstance(node, Sequence) and node.stack for _, node in walk(space, "obs"))


cases_with_keys = cases(mixed_space.filter(lambda space: not has_stacked_sequence(space)))


@max_examples(60)
@given(cases_with_keys, seeds)
def test_order_of_keys_means_nothing(case, seed):
    preprocessor = case.make_preprocessor()
    rng = np.random.default_rng(seed)
    rows = case.draw_observations(3, seed)
    expected = [expect(case, row) for row in rows]

    shuffled = [shuffle_keys(case.space, row, rng) for row in rows]

    np.testing.assert_array_equal([preprocessor.transform(row) for row in shuffled], expected)
    np.testing.assert_array_equal(preprocessor.transform_batch(shuffled), expected)


@max_examples(60)
@given(cases_with_keys, seeds)
def test_order_of_keys_of_a_vector_batch_means_nothing(case, seed):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(3, seed)
    batch = vector_batch(case.space, rows)

    if isinstance(case.space, Dict):
        batch = {key: batch[key] for key in reversed(batch)}

    expected = [expect(case, row) for row in rows]
    np.testing.assert_array_equal(preprocessor.transform_batch(batch), expected)


@pytest.mark.parametrize("is_stacked", [False, True], ids=["items", "stacked-items"])
def test_order_of_keys_in_items_of_a_sequence_means_nothing(is_stacked):
    item_space = Dict([("z", Discrete(2)), ("a", Box(-9, 9, (1,), np.float32))])
    space = Sequence(item_space, stack=is_stacked)
    preprocessor = Case(space, {"sequence_max_len": 2}).make_preprocessor()
    if is_stacked:
        one_item = {"a": np.array([[5.0]], np.float32), "z": np.array([1])}
    else:
        one_item = ({"a": np.array([5.0], np.float32), "z": 1},)

    encoding = preprocessor.transform(one_item)

    # The length 1; the item, with "z" as a one-hot before "a"; and an empty place.
    np.testing.assert_array_equal(encoding, [1, 0, 1, 5, 0, 0, 0])


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 5])
@max_examples(60)
@given(case=cases())
def test_leaves_cover_the_vector_once_and_in_order(start, case):
    preprocessor = case.make_preprocessor()

    end = start
    for leaf in preprocessor.leaves(start):
        assert leaf.start == end
        assert leaf.stop - leaf.start == int(np.prod(leaf.shape))
        assert leaf.path.startswith("obs")
        end = leaf.stop

    assert end == start + preprocessor.size


@max_examples(60)
@given(cases())
def test_plan_says_which_leaves_are_quantities(case):
    boxes = {path: space for path, space in walk(case.space, "obs") if isinstance(space, Box)}

    for leaf in case.make_preprocessor().leaves():
        is_quantity = leaf.kind == "box" and boxes[leaf.path].dtype != bool
        assert leaf.numeric == is_quantity


@max_examples(60)
@given(cases(), seeds)
def test_leaves_that_are_choices_are_encoded_as_zeros_and_ones(case, seed):
    preprocessor = case.make_preprocessor()
    [obs] = case.draw_observations(1, seed)
    flat = preprocessor.transform(obs).ravel()

    for leaf in preprocessor.leaves():
        if leaf.kind in ("mask", "tag", "discrete", "multi_discrete", "multi_binary"):
            assert set(flat[leaf.start : leaf.stop]) <= {0, 1}


# --- copies, and integers that stay integers ------------------------------------------------------


def copy_by_pickle(preprocessor):
    return pickle.loads(pickle.dumps(preprocessor))


@pytest.mark.parametrize("make_copy", [copy_by_pickle, copy.deepcopy])
@max_examples(40)
@given(case=cases(), seed=seeds)
def test_copied_preprocessor_works_like_the_original(make_copy, case, seed):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(2, seed)
    expected = preprocessor.transform_batch(rows)  # from now on there is something cached to copy

    preprocessor_copy = make_copy(preprocessor)

    np.testing.assert_array_equal([preprocessor_copy.transform(row) for row in rows], expected)
    np.testing.assert_array_equal(preprocessor_copy.transform_batch(rows), expected)
    assert preprocessor_copy.observation_space == preprocessor.observation_space
    assert preprocessor_copy.leaves() == preprocessor.leaves()


@max_examples(20)
@given(cases(), seeds)
def test_copied_preprocessor_restores_observations(case, seed):
    preprocessor_copy = copy.deepcopy(case.make_preprocessor())
    encoded = preprocessor_copy.transform_batch(case.draw_observations(2, seed))
    restore_original_dimensions(encoded, preprocessor_copy.observation_space)  # without an error


cases_of_integers = cases().map(lambda case: case.with_options(_disable_preprocessor_api=True))


@max_examples(80)
@given(cases_of_integers, seeds)
def test_integers_stay_integers_on_request(case, seed):
    preprocessor = case.make_preprocessor()

    for row in case.draw_observations(2, seed):
        encoding = preprocessor.transform(row)

        kept = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)
        assert_encoded(case, encoding, row, kept)
        assert preprocessor.observation_space.contains(encoding)


@max_examples(80)
@given(cases_of_integers, seeds)
def test_integers_are_written_as_floats(case, seed):
    preprocessor = case.make_preprocessor()

    for row in case.draw_observations(2, seed):
        array = np.zeros(preprocessor.size, np.float32)
        preprocessor.write(row, array, 0)

        np.testing.assert_array_equal(array, expect(case, row))


@pytest.mark.parametrize("is_list", [True, False], ids=["list", "vector-environment"])
@max_examples(80)
@given(case=cases_of_integers, seed=seeds)
def test_batch_of_integers_is_encoded_row_by_row(is_list, case, seed):
    preprocessor = case.make_preprocessor()
    rows = case.draw_observations(2, seed)
    encoded_rows = [preprocessor.transform(row) for row in rows]
    batch = rows if is_list else vector_batch(case.space, rows)

    encoded_batch = preprocessor.transform_batch(batch)

    assert encoded_batch.dtype == encoded_rows[0].dtype
    np.testing.assert_array_equal(encoded_batch, encoded_rows)
