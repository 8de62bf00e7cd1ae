"""Action masks in `Policy.act`, and outputs of the model that contain the whole distribution."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete

import rlcatalog
from rlcatalog.errors import NotServedError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

FOUR_NUMBERS = spaces.Box(-1, 1, (4,), np.float32)
#: The actions 2 to 6. Masks count from 0, so that the first column of a mask is action 2.
FIVE_FROM_TWO = Discrete(5, start=2)
SMALL = {"fcnet_hiddens": [8]}


def sample_observations(*, rows):
    FOUR_NUMBERS.seed(0)
    return np.stack([FOUR_NUMBERS.sample() for _ in range(rows)])


def random_mask(*, rows):
    """Return a mask that allows about half of five actions, and at least one in each row."""
    random = np.random.default_rng(0)
    mask = random.random((rows, 5)) < 0.4
    mask[np.arange(rows), random.integers(5, size=rows)] = True
    return mask


def logp_from_dist_inputs(policy, step):
    """Return the log densities of a step's raw actions from its `dist_inputs` alone, without the
    model and the mask.
    """
    if policy.framework == "torch":
        dist = policy.dist_class(torch.from_numpy(step.dist_inputs.copy()), None)
        return dist.logp(torch.from_numpy(step.raw_action.copy())).numpy()
    dist = policy.dist_class(tf.constant(step.dist_inputs), None)
    return dist.logp(tf.constant(step.raw_action)).numpy()


@both_frameworks
@pytest.mark.parametrize(
    "space", [FIVE_FROM_TWO, spaces.Box(-1, 1, (3,), np.float32)], ids=["discrete", "box"]
)
def test_logp_follows_from_dist_inputs_after_weights_change(catalog, framework, space):
    policy = rlcatalog.build(FOUR_NUMBERS, space, SMALL, framework, catalog=catalog)
    step = policy.act(sample_observations(rows=50))

    weights = policy.model.get_weights()
    policy.model.set_weights({name: array + 1 for name, array in weights.items()})

    logp = logp_from_dist_inputs(policy, step)
    np.testing.assert_allclose(logp, step.logp, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["torch", "tf"])
def policy_of_five_actions(request, catalog):
    return rlcatalog.build(FOUR_NUMBERS, FIVE_FROM_TWO, SMALL, request.param, catalog=catalog)


@pytest.fixture(params=[True, False], ids=["explore", "greedy"])
def explore(request):
    return request.param


ROWS = 3000


def test_masked_actions_are_not_taken(policy_of_five_actions, explore):
    mask = random_mask(rows=ROWS)

    step = policy_of_five_actions.act(sample_observations(rows=ROWS), mask=mask, explore=explore)

    chosen = step.action - 2  # the mask counts from 0
    assert mask[np.arange(ROWS), chosen].all()


def test_dist_inputs_contain_the_mask(policy_of_five_actions, explore):
    mask = random_mask(rows=ROWS)

    step = policy_of_five_actions.act(sample_observations(rows=ROWS), mask=mask, explore=explore)

    lowest_float = np.finfo(np.float32).min
    np.testing.assert_array_equal(step.dist_inputs[~mask], lowest_float)
    logp = logp_from_dist_inputs(policy_of_five_actions, step)
    np.testing.assert_allclose(logp, step.logp, rtol=1e-5, atol=1e-6)


@both_frameworks
def test_masked_logp_is_a_softmax_of_the_allowed_logits(catalog, framework):
    policy = rlcatalog.build(FOUR_NUMBERS, Discrete(3), framework=framework, catalog=catalog)
    obs = np.ones((1, 4), np.float32)
    [logits] = policy.act(obs, explore=False).dist_inputs
    allows_0_and_2 = np.array([[True, False, True]])

    step = policy.act(obs, mask=allows_0_and_2)

    weights = np.exp(logits)
    expected = np.log(weights[step.action] / (weights[0] + weights[2]))
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4)


def test_mask_for_a_box_is_an_error(catalog):
    policy = rlcatalog.build(FOUR_NUMBERS, spaces.Box(-1, 1, (2,)), SMALL, catalog=catalog)

    with pytest.raises(NotServedError, match="no values that a mask could forbid") as caught:
        policy.act(sample_observations(rows=1), mask=np.ones((1, 2)))

    assert "action: Box(2,) float32 has no values" in str(caught.value)
