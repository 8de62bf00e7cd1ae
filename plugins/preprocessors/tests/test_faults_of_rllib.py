"""Faults of RLlib's preprocessors and spaces that ours do not have.

Those of its pixel preprocessor and its filter are tested with ours.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rlcatalog import ModelCatalog
from rlcatalog.errors import ObservationError
from rlcatalog.spaces import Repeated, Simplex


def make_preprocessor(space, **config):
    return ModelCatalog.get_preprocessor_for_space(space, config)


# --- shapes and bounds ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, (128,), np.float32),
        Box(0, 255, (128,), np.uint8),
        Box(0, 255, (210, 160, 3), np.uint8),
        Box(0, 1, (210, 160, 3), np.float32),
    ],
    ids=str,
)
def test_box_with_the_shape_of_a_game_is_not_rescaled(space):
    # RLlib takes any Box of these two shapes for an Atari game, and rescales it.
    obs = space.sample()
    preprocessor = make_preprocessor(space)

    encoded = preprocessor.transform(obs)

    assert type(preprocessor).__name__ == "NoPreprocessor"
    assert encoded.dtype == space.dtype
    np.testing.assert_array_equal(encoded, obs)


def test_encoded_space_has_the_real_bounds():
    # RLlib's has the bounds -1 and 1, whatever the range.
    space = Dict(
        {
            "far": Box(-300, 500, (2,), np.float32),
            "free": Box(-np.inf, np.inf, (1,), np.float32),
            "n": Discrete(2),
        }
    )

    encoded_space = make_preprocessor(space).observation_space

    np.testing.assert_array_equal(encoded_space.low, [-300, -300, -np.inf, 0, 0])
    np.testing.assert_array_equal(encoded_space.high, [500, 500, np.inf, 1, 1])
    assert encoded_space.dtype == np.float32
    assert encoded_space.original_space is space


# --- keys -----------------------------------------------------------------------------------------

NUMBERS = {"a": 0.0, "b": 1.0, "c": 2.0}


def make_dict_space(keys):
    return Dict([(key, Box(0, 9, (1,), np.float32)) for key in keys])


def make_obs(keys, dict_class=dict):
    """Return an observation with the keys in this order."""
    return dict_class((key, np.array([NUMBERS[key]], np.float32)) for key in keys)


@pytest.mark.parametrize("keys_of_obs", list(itertools.permutations("abc")), ids="".join)
@pytest.mark.parametrize("dict_class", [dict, OrderedDict])
def test_dict_entries_are_never_swapped(keys_of_obs, dict_class):
    # RLlib matches entries by position: it sorts a dict by key, but not an OrderedDict.
    preprocessor = make_preprocessor(make_dict_space("bca"))
    obs = make_obs(keys_of_obs, dict_class)

    encoded = preprocessor.transform(obs)

    np.testing.assert_array_equal(encoded, [1, 2, 0])  # the numbers of b, c and a
    np.testing.assert_array_equal(preprocessor.transform_batch([obs, obs]), [encoded, encoded])


def test_key_added_to_a_space_later_is_matched_by_key():
    space = make_dict_space("bc")
    space.spaces["a"] = Box(0, 9, (1,), np.float32)

    encoded = make_preprocessor(space).transform(make_obs("abc"))

    np.testing.assert_array_equal(encoded, [1.0, 2.0, 0.0])  # b, c, a


# --- checks and casts -----------------------------------------------------------------------------


def test_every_observation_is_checked_on_request():
    # RLlib checks every hundredth.
    preprocessor = make_preprocessor(Box(-1, 1, (1,), np.float32), check_observations="always")

    for _ in range(3):
        preprocessor.transform(np.zeros(1, np.float32))
        with pytest.raises(ObservationError, match=r"within \[-1.0, 1.0\] at \[0\]; found 2.0"):
            preprocessor.transform(np.full(1, 2.0, np.float32))


@pytest.mark.parametrize(
    "obs",
    [
        pytest.param([0.5, 1.0], id="list"),
        pytest.param((0.5, 1.0), id="tuple"),
        pytest.param(np.array([0.5, 1.0]), id="float64"),
    ],
)
def test_observation_is_cast_to_the_dtype_of_its_space(obs):
    # RLlib casts for its check only: a list stays a list, and float64 stays float64.
    encoded = make_preprocessor(Box(-1, 1, (2,), np.float32)).transform(obs)

    assert isinstance(encoded, np.ndarray)
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded, [0.5, 1.0])


# --- lists ----------------------------------------------------------------------------------------

UP_TO_4_ITEMS = Repeated(Box(-1, 1, (2,), np.float32), 4)

each_list = pytest.mark.parametrize("make_list", [list, tuple, np.array])
each_length = pytest.mark.parametrize("length", range(5))


def make_items(make_list, length):
    return make_list([np.ones(2, np.float32)] * length)


def encode_items(length):
    """Return the encoding of a list of pairs of ones: its length, the items, and padding."""
    ones = [1.0] * 2 * length
    zeros = [0.0] * 2 * (4 - length)
    return [length, *ones, *zeros]


# RLlib compares a list with a stored one of a random length, and accepts lists and arrays only.
@each_list
@each_length
def test_list_may_have_any_length_up_to_the_longest(make_list, length):
    preprocessor = make_preprocessor(UP_TO_4_ITEMS, check_observations="always")

    encoded = preprocessor.transform(make_items(make_list, length))

    assert encoded.dtype == np.float32  # RLlib returns float64
    # Its length, the items, and zeros in the empty places.
    np.testing.assert_array_equal(encoded, encode_items(length))


@each_list
@each_length
def test_list_in_a_dict_may_have_any_length(make_list, length):
    preprocessor = make_preprocessor(Dict({"a": UP_TO_4_ITEMS}), check_observations="always")

    encoded = preprocessor.transform({"a": make_items(make_list, length)})

    assert encoded.dtype == np.float32
    # Its length, the items, and zeros in the empty places.
    np.testing.assert_array_equal(encoded, encode_items(length))


def test_repeated_space_draws_lists_of_each_length():
    # RLlib's never draws an empty one.
    space = Repeated(Box(-1, 1, (2,), np.float32), 4, seed=0)

    lengths = {len(space.sample()) for _ in range(200)}

    assert lengths == {0, 1, 2, 3, 4}


# --- simplexes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
def test_simplex_has_one_concentration_per_component(shape):
    # RLlib's has one per row.
    space = Simplex(shape, concentration=[1.0, 2.0, 300.0], seed=0)

    samples = np.array([space.sample() for _ in range(200)])

    np.testing.assert_allclose(samples.sum(axis=-1), 1.0, atol=1e-5)
    assert samples[..., 2].mean() > 0.95  # 300 of 303 on average


def test_simplex_rejects_another_number_of_concentrations():
    with pytest.raises(ValueError, match=r"expected shape \(3,\), found \(2,\)"):
        Simplex((2, 3), concentration=[1.0, 2.0])


def test_simplex_is_encoded_as_it_is():
    space = Simplex((2, 3), seed=0)
    obs = space.sample()

    np.testing.assert_allclose(make_preprocessor(space).transform(obs), obs)
