"""Columns of actions: what later parts see of earlier ones, and the dtypes of drawn actions."""

from __future__ import annotations

import numpy as np
import pytest
from autoregressive_policies import (
    build_policy,
    random_observations,
    to_numpy,
    to_tensor,
)
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.frameworks import tensor_ops
from rlcatalog_autoregressive.joint import weighted
from rlcatalog_autoregressive.part_columns import _columns


def encode(space, raw, raw_kind="values", action_bounds="clip", first=0):
    """Return what later parts see of raw values, which begin at column `first`.

    A column is 1 or 0 for one value of a choice, or a shifted and scaled number.
    """
    codec = action_codec(SpaceInfo.read(space, "action"), action_bounds, {"action": raw_kind})
    encoded = []
    for column in _columns(codec, first):
        if column.value >= 0:
            encoded.append(float(raw[column.raw] == column.value))
        else:
            encoded.append((raw[column.raw] - column.shift) * column.scale)
    return encoded


# --- choices and bits -----------------------------------------------------------------------------


def test_discrete_is_encoded_as_one_hot():
    assert encode(Discrete(4), raw=[2]) == [0, 0, 1, 0]


def test_multi_discrete_is_encoded_as_one_hot_per_choice():
    assert encode(MultiDiscrete([2, 3]), raw=[1, 2]) == [0, 1, 0, 0, 1]


def test_encoding_begins_at_the_first_column_of_the_part():
    # Column 0 belongs to another part.
    assert encode(MultiDiscrete([2, 3]), raw=[9, 0, 1], first=1) == [1, 0, 0, 1, 0]


def test_bits_are_encoded_as_they_are():
    assert encode(MultiBinary(3), raw=[1, 0, 1]) == [1, 0, 1]


def test_tuple_is_encoded_part_by_part():
    nested = Tuple([MultiDiscrete([2, 3]), Discrete(2), Box(0.0, 4.0, (1,))])

    encoded = encode(nested, raw=[0, 1, 1, 4.0])

    # One-hots of 0, 1 and 1; then the upper bound of the Box.
    assert encoded == [1, 0, 0, 1, 0, 0, 1, 1]


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "encoded"), [([4, 0], [1, 0]), ([1, 0], [0.25, 0])], ids=str)
def test_integer_box_is_encoded_as_fraction_of_its_range(raw, encoded):
    # Raw values count from 0: the first from 0 to 4, the second is always 0.
    box = Box(np.array([-3, 5]), np.array([1, 5]), dtype=np.int64)

    assert encode(box, raw) == encoded


def test_clipped_box_is_encoded_from_minus_1_to_1():
    assert encode(Box(-2.0, 6.0, (3,)), raw=[-2.0, 2.0, 6.0]) == [-1, 0, 1]


def test_affine_box_is_encoded_as_it_is():
    # Its raw values are from -1 to 1 already.
    assert encode(Box(-2.0, 6.0, (2,)), raw=[-2.0, 0.5], action_bounds="affine") == [-2, 0.5]


def test_bounded_values_are_encoded_from_minus_1_to_1():
    box = Box(-2.0, 6.0, (1,))

    assert encode(box, raw=[6.0], raw_kind="bounded", action_bounds="affine") == [1]


def test_box_with_an_infinite_bound_is_encoded_as_it_is():
    box = Box(np.array([-np.inf, 0], np.float32), np.array([3, np.inf], np.float32))

    assert encode(box, raw=[2.5, 7.0]) == [2.5, 7.0]


# --- in a policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (MultiDiscrete([2, 3]), np.int64),
        (Tuple([Discrete(3), MultiBinary(2)]), np.int64),
        (Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)]), np.float32),
    ],
    ids=["choices", "choice and bits", "choice and floats"],
)
def test_raw_actions_are_integers_unless_a_part_has_floats(framework, space, dtype):
    policy = build_policy(space, framework)

    assert policy.act(random_observations(rows=4)).raw_action.dtype == dtype


def test_state_dict_has_weights_but_no_masks_or_columns():
    policy = build_policy(MultiDiscrete([2, 3, 2]), "torch", autoregressive_hiddens=[4, 5])

    assert set(policy.model.state_dict()) == set(policy.model.get_weights())


def test_weighted_sum_ignores_values_with_weight_zero(framework):
    weights = to_tensor(np.float32([[0.25, 0, 0.75], [1, 0, 0]]), framework)
    values = to_tensor(np.float32([2, np.inf, 4, 3, np.nan, -np.inf]), framework)

    sums = weighted(weights, values, tensor_ops(framework))

    np.testing.assert_allclose(to_numpy(sums), [0.25 * 2 + 0.75 * 4, 3])
