"""Forms of action masks: tuples, bits, numbers of rows, and masks inside observations."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError, ObservationError

PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
MASK_OF_2 = np.ones((1, 2))
MASK_OF_3 = np.ones((1, 3))


def make_masks(space, key=None):
    return ActionMasks(SpaceInfo.read(space, "action"), key)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param({0: MASK_OF_2, 1: MASK_OF_3}, id="dict"),
        pytest.param((MASK_OF_2,), id="too-few"),
        pytest.param((MASK_OF_2, MASK_OF_3, MASK_OF_3), id="too-many"),
        pytest.param({}, id="empty-dict"),
    ],
)
def test_mask_of_a_tuple_has_to_be_a_tuple_of_equal_length(mask):
    with pytest.raises(ActionMaskError, match="action: expected a tuple of 2 masks"):
        make_masks(PAIR).matrix(mask)


@pytest.mark.parametrize("shape", [(3,), (2, 2)], ids=["one-axis", "two-axes"])
def test_mask_of_bits_has_two_columns_for_each_bit(shape):
    masks = make_masks(spaces.MultiBinary(shape))
    # Gymnasium's values: 0 allows only 0, 1 allows only 1, and 2 allows both.
    bits = np.random.default_rng(0).integers(0, 3, (4, *shape))
    expected = []
    for row in bits:
        columns = []
        for bit in row.ravel():
            columns += [bit != 1, bit != 0]  # is 0 allowed, is 1 allowed
        expected.append(columns)

    np.testing.assert_array_equal(masks.matrix(bits), expected)
    np.testing.assert_array_equal(masks.matrix(np.array(expected), 4), expected)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param((np.ones((2, 2)), None), id="tuple"),
        pytest.param(np.ones((2, 5)), id="matrix"),
    ],
)
def test_mask_with_another_number_of_rows_is_rejected(mask):
    masks = make_masks(PAIR)

    assert masks.matrix(mask, 2).shape == (2, 5)
    with pytest.raises(ActionMaskError, match=r"expected shape \(3, \d\)") as caught:
        masks.matrix(mask, 3)
    assert "found shape (2, " in str(caught.value)


#: Two observations, as a list of rows and as a dict of columns.
OBS_ROWS = [
    {"allowed": np.array([1, 0, 1], np.int8), "x": 0.5},
    {"allowed": np.array([0, 1, 0], np.int8), "x": 1.5},
]
OBS_COLUMNS = {"allowed": np.array([[1, 0, 1], [0, 1, 0]], np.int8), "x": np.array([0.5, 1.5])}


@pytest.mark.parametrize("obs", [OBS_ROWS, OBS_COLUMNS], ids=["rows", "columns"])
def test_mask_is_read_from_observations(obs):
    masks = make_masks(spaces.Discrete(3), "allowed")

    np.testing.assert_array_equal(masks.of(obs), [[True, False, True], [False, True, False]])


def test_mask_is_removed_from_observations():
    masks = make_masks(spaces.Discrete(3), "allowed")

    assert masks.without(OBS_ROWS) == [{"x": 0.5}, {"x": 1.5}]
    assert list(masks.without(OBS_COLUMNS)) == ["x"]


def test_mask_without_a_key_is_none():
    assert make_masks(spaces.Discrete(3)).of(OBS_ROWS) is None


@pytest.mark.parametrize("obs", [[{"x": 0.5}], {"x": np.zeros(2)}], ids=["rows", "columns"])
def test_mask_missing_from_observations_is_an_error(obs):
    with pytest.raises(ObservationError, match="the action mask under 'allowed'"):
        make_masks(spaces.Discrete(3), "allowed").of(obs)
