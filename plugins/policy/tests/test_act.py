"""`Policy.act`: the arrays that it returns, and raw actions beside the environment's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

FOUR_NUMBERS = Box(-1, 1, (4,), np.float32)
TWO_ACTIONS = Discrete(2)


def sample_observations(*, rows):
    FOUR_NUMBERS.seed(0)
    return np.stack([FOUR_NUMBERS.sample() for _ in range(rows)])


# --- what act returns -----------------------------------------------------------------------------


@both_frameworks
def test_step_contains_arrays_with_a_row_for_each_observation(catalog, framework):
    four_numbers = Box(-1, 1, (4,), np.float32)
    policy = rlcatalog.build(four_numbers, Discrete(2), framework=framework, catalog=catalog)

    step = policy.act(np.zeros((6, 4), np.float32))

    assert step.action.shape == (6,)
    assert step.raw_action.shape == (6, 1)
    assert step.logp.shape == (6,)
    assert step.value.shape == (6,)
    assert step.dist_inputs.shape == (6, 2)  # a logit for each of the two actions
    for array in (step.action, step.raw_action, step.logp, step.value, step.dist_inputs):
        assert type(array) is np.ndarray
    for array in (step.logp, step.value, step.dist_inputs):
        assert array.dtype == np.float32
    assert step.state is None  # the model has no memory


def as_read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def with_gaps(array):
    """Return the same numbers as every second column of an array that is twice as wide."""
    wide = np.zeros((len(array), 2 * array.shape[1]), array.dtype)
    wide[:, ::2] = array
    return wide[:, ::2]


def with_negative_strides(array):
    return array[::-1].copy()[::-1]


@both_frameworks
@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(list, id="list-of-arrays"),
        pytest.param(lambda array: array.astype(np.float64), id="float64"),
        pytest.param(as_read_only, id="read-only"),
        pytest.param(np.asfortranarray, id="fortran-order"),
        pytest.param(with_gaps, id="gaps"),
        pytest.param(with_negative_strides, id="negative-strides"),
    ],
)
def test_observations_may_have_any_memory_layout(catalog, framework, convert):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, framework=framework, catalog=catalog)
    obs = sample_observations(rows=6)
    expected = policy.act(obs, explore=False).dist_inputs

    dist_inputs = policy.act(convert(obs), explore=False).dist_inputs

    np.testing.assert_allclose(dist_inputs, expected, rtol=1e-6)


@both_frameworks
def test_rows_of_a_batch_do_not_depend_on_one_another(catalog, framework):
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, framework=framework, catalog=catalog)
    obs = sample_observations(rows=6)
    expected = policy.act(obs, explore=False).dist_inputs

    reversed_rows = policy.act(obs[::-1], explore=False).dist_inputs
    first_row = policy.act(obs[:1], explore=False).dist_inputs

    np.testing.assert_allclose(reversed_rows, expected[::-1], rtol=1e-6)
    np.testing.assert_allclose(first_row, expected[:1], rtol=1e-5)


@both_frameworks
def test_step_does_not_change_with_later_observations_or_weights(catalog, framework):
    # Without hidden layers, outputs might share memory with inputs or weights.
    config = {"fcnet_hiddens": []}
    policy = rlcatalog.build(FOUR_NUMBERS, TWO_ACTIONS, config, framework, catalog=catalog)
    obs = sample_observations(rows=6)
    step = policy.act(obs)
    before = copy.deepcopy(step)

    obs += 1
    policy.act(obs)
    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 1 for name, array in weights.items()})
    policy.act(obs)

    np.testing.assert_array_equal(step.action, before.action)
    np.testing.assert_array_equal(step.raw_action, before.raw_action)
    np.testing.assert_array_equal(step.logp, before.logp)
    np.testing.assert_array_equal(step.value, before.value)
    np.testing.assert_array_equal(step.dist_inputs, before.dist_inputs)


@both_frameworks
@pytest.mark.parametrize(
    "action_space",
    [Discrete(2), Discrete(2, start=3), Box(-9, 9, (2,), np.float32)],
    ids=str,
)
def test_raw_action_does_not_share_memory_with_the_action(catalog, framework, action_space):
    policy = rlcatalog.build(FOUR_NUMBERS, action_space, framework=framework, catalog=catalog)
    step = policy.act(sample_observations(rows=6))
    raw_action_before = step.raw_action.copy()

    step.action[...] = 0  # as a caller that overrules the policy

    np.testing.assert_array_equal(step.raw_action, raw_action_before)


# --- raw and environment actions ------------------------------------------------------------------


@both_frameworks
def test_discrete_action_is_the_raw_action_plus_start(catalog, framework):
    three_from_ten = Discrete(3, start=10, dtype=np.int32)
    policy = rlcatalog.build(FOUR_NUMBERS, three_from_ten, framework=framework, catalog=catalog)

    step = policy.act(sample_observations(rows=300))

    np.testing.assert_array_equal(step.action, step.raw_action[:, 0] + 10)
    assert set(step.action) == {10, 11, 12}
    assert step.action.dtype == np.int32
