"""Forms of action masks that are none, beside those of `test_masks.py`."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks
from rlcatalog.errors import ActionMaskError, ObservationError

PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
TWO, THREE = np.ones((1, 2)), np.ones((1, 3))


@pytest.mark.parametrize("mask", [{0: TWO, 1: THREE}, (TWO,), (TWO, THREE, THREE), {}])
def test_a_tuples_mask_is_a_tuple_of_as_many(mask):
    with pytest.raises(
        ActionMaskError, match=r"mask: action: expected a tuple of 2 masks, one for each.*; found"
    ):
        ActionMasks(SpaceInfo.read(PAIR, "action")).matrix(mask)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_bits_are_laid_out_in_c_order_two_columns_each(shape):
    masks = ActionMasks(SpaceInfo.read(spaces.MultiBinary(shape), "action"))
    bits = np.random.default_rng(0).integers(0, 3, (4, *shape))  # 0: only 0, 1: only 1, 2: either
    expected = [[value for bit in row.ravel() for value in (bit != 1, bit != 0)] for row in bits]
    np.testing.assert_array_equal(masks.matrix(bits), expected)
    np.testing.assert_array_equal(masks.matrix(np.array(expected), 4), expected)


def test_masks_of_another_number_of_rows_are_refused():
    masks = ActionMasks(SpaceInfo.read(PAIR, "action"))
    for mask in ((np.ones((2, 2)), None), np.ones((2, 5))):
        assert masks.matrix(mask, 2).shape == (2, 5)
        with pytest.raises(
            ActionMaskError, match=r"expected shape \(3, \d\); found shape \(2, \d\)"
        ):
            masks.matrix(mask, 3)


def test_masks_are_read_out_of_observations_in_rows_or_columns():
    masks = ActionMasks(SpaceInfo.read(spaces.Discrete(3), "action"), "allowed")
    rows = [
        {"allowed": np.array([1, 0, 1], np.int8), "x": 0.5},
        {"allowed": np.array([0, 1, 0], np.int8), "x": 1.5},
    ]
    columns = {"allowed": np.stack([row["allowed"] for row in rows]), "x": np.array([0.5, 1.5])}
    expected = [[True, False, True], [False, True, False]]
    for obs in (rows, columns):
        np.testing.assert_array_equal(masks.of(obs), expected)
    assert masks.without(rows) == [{"x": 0.5}, {"x": 1.5}]
    assert list(masks.without(columns)) == ["x"]
    assert ActionMasks(SpaceInfo.read(spaces.Discrete(3), "action")).of(rows) is None
    for obs in ([{"x": 0.5}], {"x": np.zeros(2)}):
        with pytest.raises(
            ObservationError, match="expected a dict with the action mask under 'allowed'"
        ):
            masks.of(obs)
