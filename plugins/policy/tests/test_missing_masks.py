"""Calls without a mask, though the observation space has one: they are an error, unless the mask is
None.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog.errors import ActionMaskError, MissingColumnError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

ROWS = 64
#: In each row, the actions 2 and 3 are forbidden.
MASK = np.array([[1, 1, 0, 0]] * ROWS, np.int8)
OBS = {"action_mask": MASK, "state": np.zeros((ROWS, 3), np.float32)}


@pytest.fixture(params=["torch", "tf"])
def policy(request):
    """A policy for four actions, whose observations have a mask; its actions are equally likely,
    because it is not trained.
    """
    space = Dict({"action_mask": MultiBinary(4), "state": Box(-1, 1, (3,), np.float32)})
    return rlcatalog.build(space, Discrete(4), {"fcnet_hiddens": [8]}, request.param)


@pytest.fixture(params=["policy", "frozen"])
def acting_policy(request, policy):
    if request.param == "policy":
        return policy
    return policy.freeze(ROWS, seed=0)


def taken_actions(step):
    return set(step.raw_action[:, 0].tolist())


def logp_of(policy, batch):
    logp = policy.evaluate(batch).logp
    if policy.framework == "torch":
        logp = logp.detach()
    return np.asarray(logp)


# --- acting ---------------------------------------------------------------------------------------


def test_act_reads_the_mask_of_the_observation(acting_policy):
    assert taken_actions(acting_policy.act(OBS)) == {0, 1}


def test_act_with_mask_none_allows_everything(acting_policy):
    assert taken_actions(acting_policy.act(OBS, mask=None)) == {0, 1, 2, 3}


def test_act_encoded_without_mask_is_an_error(acting_policy):
    encoded = acting_policy.preprocess(OBS)

    with pytest.raises(ActionMaskError, match="has an action mask under 'action_mask'") as caught:
        acting_policy.act_encoded(encoded)

    assert " or mask=None to allow" in str(caught.value)


def test_act_encoded_obeys_a_mask(acting_policy):
    step = acting_policy.act_encoded(acting_policy.preprocess(OBS), mask=MASK)

    assert taken_actions(step) == {0, 1}


def test_act_encoded_with_mask_none_allows_everything(acting_policy):
    step = acting_policy.act_encoded(acting_policy.preprocess(OBS), mask=None)

    assert taken_actions(step) == {0, 1, 2, 3}


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_stepper_reads_the_mask_of_the_observation(policy, autoreset):
    assert taken_actions(policy.stepper(ROWS, autoreset).step(OBS)) == {0, 1}


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_stepper_with_mask_none_allows_everything(policy, autoreset):
    stepper = policy.stepper(ROWS, autoreset)
    stepper.step(OBS)

    assert taken_actions(stepper.step(OBS, mask=None)) == {0, 1, 2, 3}


# --- evaluating -----------------------------------------------------------------------------------


def test_evaluate_without_mask_is_an_error(policy):
    batch = {"obs": policy.preprocess(OBS), "raw_action": policy.act(OBS).raw_action}

    with pytest.raises(MissingColumnError, match="lacks 'mask'") as caught:
        policy.evaluate(batch)

    assert "'action_mask'" in str(caught.value)
    assert "['mask'] = None" in str(caught.value)


def test_evaluate_with_the_mask_returns_the_same_logp(policy):
    step = policy.act(OBS)
    batch = {"obs": policy.preprocess(OBS), "raw_action": step.raw_action, "mask": MASK}

    np.testing.assert_allclose(logp_of(policy, batch), step.logp, atol=1e-5)


def test_evaluate_with_mask_none_allows_everything(policy):
    step = policy.act(OBS)
    batch = {"obs": policy.preprocess(OBS), "raw_action": step.raw_action, "mask": None}

    # The four actions are about equally likely, though two of them were forbidden.
    np.testing.assert_allclose(logp_of(policy, batch), np.log(1 / 4), atol=0.1)


def test_values_needs_no_mask(policy):
    assert policy.values(policy.preprocess(OBS)).shape == (ROWS,)


def test_policy_without_masks_needs_none():
    policy = rlcatalog.build(Box(-1, 1, (3,)), Discrete(4), {"fcnet_hiddens": [8]})
    encoded = policy.preprocess(np.zeros((2, 3), np.float32))

    step = policy.act_encoded(encoded)
    evaluation = policy.evaluate({"obs": encoded, "raw_action": step.raw_action})

    assert evaluation.logp.shape == (2,)
