"""Codecs by known values: bounds, spaces and restoring."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import Catalog, restore_original_dimensions
from rlcatalog.errors import ModelContractError, ObservationError
from rlcatalog.plugins.discovery import scan

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})


def make(space, check="always"):
    return CATALOG.preprocessor_for(space, {}, check=check)


def samples(space, n, seed):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


def test_start_is_honoured():
    preprocessor = make(spaces.Discrete(3, start=2))
    np.testing.assert_array_equal(preprocessor.transform(3), [0, 1, 0])
    np.testing.assert_array_equal(
        preprocessor.transform_batch(np.array([4, 2])), [[0, 0, 1], [1, 0, 0]]
    )


@pytest.mark.parametrize("check", ["always", "never"])
def test_a_batch_is_counted_behind_empty_parts(check):
    space = spaces.Dict(
        a=spaces.Dict(), b=spaces.Tuple((spaces.Tuple(()), spaces.Box(0, 9, (2,), np.float32)))
    )
    batch = {"a": {}, "b": ((), np.arange(6, dtype=np.float32).reshape(3, 2))}
    np.testing.assert_array_equal(
        make(space, check).transform_batch(batch), [[0, 1], [2, 3], [4, 5]]
    )


def test_a_dict_whose_keys_are_not_in_alphabetical_order(assert_same, permuted):
    # RLlib matched such observations by position, and swapped their fields silently.
    space = spaces.Dict(
        [("z", spaces.Box(0, 9, (1,), np.float32)), ("a", spaces.Box(0, 9, (1,), np.float32))]
    )
    preprocessor = make(space)
    obs = {"a": np.array([1.0]), "z": np.array([2.0])}
    np.testing.assert_array_equal(preprocessor.transform(obs), [2, 1])
    np.testing.assert_array_equal(
        preprocessor.transform_batch([obs, permuted(obs)]), [[2, 1], [2, 1]]
    )
    assert_same(
        restore_original_dimensions(
            np.array([[2.0, 1.0]], np.float32), preprocessor.observation_space
        ),
        {"z": np.array([[2.0]], np.float32), "a": np.array([[1.0]], np.float32)},
    )


def test_the_encoded_bounds_are_the_leaves_own():
    space = spaces.Tuple(
        [spaces.Box(np.array([-2, 0]), np.array([3, 7]), dtype=np.float32), spaces.Discrete(2)]
    )
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


def test_transform_never_hands_out_what_it_was_given():
    for space in (
        spaces.Box(-1, 1, (3,), np.float32),
        spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32)}),
    ):
        preprocessor, obs = make(space), samples(space, 1, 0)[0]
        found = preprocessor.transform(obs)
        found[:] = 9
        assert space.contains(obs)
        batch = np.zeros((2, 3), np.float32)
        preprocessor.transform_batch(batch if isinstance(space, spaces.Box) else {"a": batch})[
            :
        ] = 9
        np.testing.assert_array_equal(batch, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_a_list_of_numbers_is_taken_for_an_array(dtype):
    preprocessor = make(spaces.Box(0, 9, (3,), dtype))
    found = preprocessor.transform([1, 2, 3])
    np.testing.assert_array_equal(found, [1, 2, 3])
    assert found.dtype == dtype


def test_a_processed_space_from_elsewhere_is_restored_too(assert_same):
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
        with pytest.raises(
            ObservationError, match=r"expected encoded observations of shape \[\.\.\., 2\]"
        ):
            restore_original_dimensions(wrong, processed)
    with pytest.raises(ModelContractError, match="tensorlib must be"):
        restore_original_dimensions(np.zeros((1, 2)), processed, "jax")
