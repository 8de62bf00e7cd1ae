"""Codecs by known values: encodings, bounds, and restoring."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from rlcatalog import Catalog, restore_original_dimensions
from rlcatalog.errors import ModelContractError, ObservationError
from rlcatalog.plugins.discovery import scan

CATALOG = Catalog([point for point in scan() if point.name == "preprocessors"], environ={})


def make_preprocessor(space, check="always"):
    return CATALOG.preprocessor_for(space, {}, check=check)


# --- encodings ------------------------------------------------------------------------------------


def test_discrete_is_counted_from_its_start():
    preprocessor = make_preprocessor(Discrete(3, start=2))

    batch = preprocessor.transform_batch(np.array([4, 2]))

    np.testing.assert_array_equal(preprocessor.transform(3), [0, 1, 0])
    np.testing.assert_array_equal(batch, [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize("check", ["always", "never"])
def test_batch_is_counted_although_its_first_parts_are_empty(check):
    space = Dict(a=Dict(), b=Tuple((Tuple(()), Box(0, 9, (2,), np.float32))))
    three_rows = {"a": {}, "b": ((), np.arange(6, dtype=np.float32).reshape(3, 2))}

    encoded = make_preprocessor(space, check).transform_batch(three_rows)

    np.testing.assert_array_equal(encoded, [[0, 1], [2, 3], [4, 5]])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_list_of_numbers_is_taken_for_an_array(dtype):
    encoded = make_preprocessor(Box(0, 9, (3,), dtype)).transform([1, 2, 3])

    np.testing.assert_array_equal(encoded, [1, 2, 3])
    assert encoded.dtype == dtype


# --- the space of encoded observations ------------------------------------------------------------


def test_encoded_space_of_a_box_is_the_box():
    space = Box(0, 255, (4, 4, 3), np.uint8)

    assert make_preprocessor(space).observation_space is space


def test_encoded_space_may_have_bounds_beyond_float32():
    preprocessor = make_preprocessor(Dict({"x": Box(-1e300, 1e300, (2,), np.float64)}))

    encoded = preprocessor.transform({"x": np.array([-3.0, 4.0])})

    assert preprocessor.observation_space.contains(encoded)


# --- restoring ------------------------------------------------------------------------------------


def test_restored_dict_has_the_order_of_its_space():
    one_number = Box(0, 9, (1,), np.float32)
    encoded_space = make_preprocessor(
        Dict([("z", one_number), ("a", one_number)])
    ).observation_space

    restored = restore_original_dimensions(np.array([[2.0, 1.0]], np.float32), encoded_space)

    assert list(restored) == ["z", "a"]
    assert restored["z"].tolist() == [[2]]
    assert restored["a"].tolist() == [[1]]


def test_encoded_space_of_another_process_is_restored():
    # Another process, or RLlib, passes a flat Box that only knows its original space.
    foreign_space = Box(-1, 1, (4,), np.float32)
    foreign_space.original_space = Dict({"a": Box(-1, 1, (2,), np.float32), "b": Discrete(2)})

    restored = restore_original_dimensions(np.array([[1, 2, 0, 1]], np.float32), foreign_space)

    assert restored["a"].tolist() == [[1, 2]]
    assert restored["b"].tolist() == [[0, 1]]


@pytest.fixture
def encoded_space():
    """The encoded space of a Dict with one Box of two values."""
    return make_preprocessor(Dict({"a": Box(-1, 1, (2,), np.float32)})).observation_space


def test_restored_observation_is_not_restored_again(encoded_space):
    restored = {"a": np.zeros((1, 2))}

    assert restore_original_dimensions(restored, encoded_space) is restored


def test_observation_of_a_box_is_not_restored():
    obs = np.zeros((1, 2))

    assert restore_original_dimensions(obs, Box(-1, 1, (2,))) is obs


@pytest.mark.parametrize("shape", [(1, 3), (2,)], ids=["another-width", "no-batch"])
def test_encoded_observation_of_wrong_shape_is_not_restored(encoded_space, shape):
    with pytest.raises(ObservationError, match=r"observations of shape \[\.\.\., 2\]"):
        restore_original_dimensions(np.zeros(shape), encoded_space)


def test_restoring_with_an_unknown_library_is_an_error(encoded_space):
    with pytest.raises(ModelContractError, match="tensorlib must be"):
        restore_original_dimensions(np.zeros((1, 2)), encoded_space, "jax")
