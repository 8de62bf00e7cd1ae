"""What RLlib's preprocessors and spaces get wrong, and what ours do; its pixel and filter faults
stand elsewhere.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import ModelCatalog
from rlcatalog.errors import ObservationError
from rlcatalog.spaces import Repeated, Simplex

FLOAT = np.float32


def make(space, **options):
    return ModelCatalog.get_preprocessor_for_space(space, options)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (128,), FLOAT),
        spaces.Box(0, 255, (128,), np.uint8),
        spaces.Box(0, 255, (210, 160, 3), np.uint8),
        spaces.Box(0, 1, (210, 160, 3), FLOAT),
    ],
    ids=str,
)
def test_a_shape_is_no_reason_to_rescale(space):
    """RLlib takes any Box of these two shapes for Atari and rescales it."""
    space.seed(0)
    preprocessor, obs = make(space), space.sample()
    found = preprocessor.transform(obs)
    assert (type(preprocessor).__name__, found.dtype) == ("NoPreprocessor", space.dtype)
    np.testing.assert_array_equal(found, obs)
    np.testing.assert_array_equal(preprocessor.transform_batch(obs[None])[0], obs)


FAR, FREE = spaces.Box(-300, 500, (2,), FLOAT), spaces.Box(-np.inf, np.inf, (1,), FLOAT)
BOUNDED = spaces.Dict({"far": FAR, "free": FREE, "n": spaces.Discrete(2)})


def test_the_processed_space_has_the_real_bounds():
    """RLlib says Box(-1, 1) whatever the range."""
    processed = make(BOUNDED).observation_space
    np.testing.assert_array_equal(processed.low, [-300, -300, -np.inf, 0, 0])
    np.testing.assert_array_equal(processed.high, [500, 500, np.inf, 1, 1])
    assert processed.dtype == FLOAT
    assert processed.original_space is BOUNDED


def keyed(keys):
    """A Dict space with its keys in this order, and the value each key has in the observations
    below.
    """
    space = spaces.Dict([(key, spaces.Box(0, 9, (1,), FLOAT)) for key in keys])
    return space, {key: np.array([float(ord(key) - ord("a"))], FLOAT) for key in keys}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_dict_fields_are_never_swapped(order, kind):
    """RLlib matches by position: sorted for a dict, as it comes for an OrderedDict."""
    space, values = keyed(order)
    expected = np.concatenate([values[key] for key in order])
    for shown in itertools.permutations("abc"):
        obs = kind((key, values[key]) for key in shown)
        np.testing.assert_array_equal(make(space).transform(obs), expected)
        np.testing.assert_array_equal(make(space).transform_batch([obs, obs])[1], expected)


def test_a_key_added_to_a_space_later_is_matched_by_key():
    space, values = keyed("bc")
    space.spaces["a"] = spaces.Box(0, 9, (1,), FLOAT)
    obs = {"a": np.array([0.0], FLOAT), **values}
    np.testing.assert_array_equal(make(space).transform(obs), [1, 2, 0])


def test_every_observation_is_checked_on_request():
    """RLlib looks at every hundredth."""
    preprocessor = make(spaces.Box(-1, 1, (1,), FLOAT), check_observations="always")
    for _ in range(3):
        preprocessor.transform(np.zeros(1, FLOAT))
        with pytest.raises(ObservationError, match=r"within \[-1.0, 1.0\] at \[0\]; found 2.0"):
            preprocessor.transform(np.full(1, 2.0, FLOAT))


@pytest.mark.parametrize("given", [[0.5, 1.0], (0.5, 1.0), np.array([0.5, 1.0])], ids=str)
def test_what_can_be_cast_is_cast_and_the_cast_is_kept(given):
    """RLlib casts for its check alone: a list stays a list, float64 stays float64."""
    found = make(spaces.Box(-1, 1, (2,), FLOAT)).transform(given)
    assert isinstance(found, np.ndarray)
    assert found.dtype == FLOAT
    np.testing.assert_array_equal(found, [0.5, 1.0])


LIST = Repeated(spaces.Box(-1, 1, (2,), FLOAT), 4)


@pytest.mark.parametrize(
    "space", [LIST, spaces.Tuple([LIST, LIST]), spaces.Dict({"a": LIST})], ids=str
)
def test_lists_may_have_any_length_up_to_the_longest(space):
    """RLlib compares with a stored sample of a random length, and accepts lists and arrays only."""
    value = np.ones(2, FLOAT)
    for length, kind in itertools.product(range(5), (list, tuple, np.array)):
        one = kind([value] * length)
        obs = {"dict": {"a": one}, "tuple": (one, one)}.get(type(space).__name__.lower(), one)
        preprocessor = make(space, check_observations="always")
        found = preprocessor.transform(obs)
        assert found.dtype == FLOAT  # float64 at the top level there
        np.testing.assert_array_equal(
            found[:9], [length, *[1.0] * 2 * length, *[0.0] * 2 * (4 - length)]
        )


def test_a_list_that_is_too_long_is_refused():
    with pytest.raises(
        ObservationError, match=r"obs: expected Repeated\(.*at most 4 items; found '5 items'"
    ):
        make(LIST).transform([np.ones(2, FLOAT)] * 5)


def test_a_repeated_space_draws_empty_lists_too():
    """RLlib's never does."""
    LIST.seed(0)
    assert {len(LIST.sample()) for _ in range(200)} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_a_simplex_takes_one_concentration_per_component(shape):
    """RLlib takes one per row, which is a slip."""
    space = Simplex(shape, concentration=[1.0, 2.0, 300.0], seed=0)
    drawn = np.array([space.sample() for _ in range(200)])
    np.testing.assert_allclose(drawn.sum(-1), 1.0, atol=1e-5)
    assert drawn[..., 2].mean() > 0.95
    with pytest.raises(ValueError, match=r"concentration: expected shape \(3,\), found \(2,\)"):
        Simplex((2, 3), concentration=[1.0, 2.0])
    np.testing.assert_allclose(make(space).transform(drawn[0]), drawn[0])
