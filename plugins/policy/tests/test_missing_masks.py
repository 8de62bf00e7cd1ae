"""A mask that the observation space has, and the call does not pass."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import rlcatalog
from rlcatalog.errors import ActionMaskError, MissingColumnError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

ROWS = 64
SPACE = Dict({"action_mask": MultiBinary(4), "state": Box(-1, 1, (3,), np.float32)})
#: Actions 2 and 3 are forbidden.
MASK = np.tile(np.array([1, 1, 0, 0], np.int8), (ROWS, 1))
OBS = {"action_mask": MASK, "state": np.zeros((ROWS, 3), np.float32)}


@pytest.fixture(params=["torch", "tf"])
def policy(request):
    return rlcatalog.build(SPACE, Discrete(4), {"fcnet_hiddens": [8]}, request.param)


@pytest.fixture(params=["itself", "frozen"])
def acting(request, policy):
    return policy if request.param == "itself" else policy.freeze(ROWS, seed=0)


def actions(step):
    return set(step.raw_action[:, 0].tolist())


def test_act_encoded_refuses_a_call_without_mask(acting):
    encoded = acting.preprocess(OBS)
    with pytest.raises(ActionMaskError, match=r"mask under 'action_mask'.* or mask=None to allow"):
        acting.act_encoded(encoded)
    assert actions(acting.act_encoded(encoded, mask=MASK)) == {0, 1}


def test_act_encoded_allows_everything_with_none(acting):
    assert actions(acting.act_encoded(acting.preprocess(OBS), mask=None)) == {0, 1, 2, 3}


def test_act_reads_the_observation_unless_mask_is_none(acting):
    assert actions(acting.act(OBS)) == {0, 1}
    assert actions(acting.act(OBS, mask=None)) == {0, 1, 2, 3}


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_stepper_passes_none_on(policy, autoreset):
    stepper = policy.stepper(ROWS, autoreset)
    assert actions(stepper.step(OBS)) == {0, 1}
    assert actions(stepper.step(OBS, mask=None)) == {0, 1, 2, 3}


def test_evaluate_refuses_a_batch_without_mask(policy):
    step = policy.act(OBS)
    batch = {"obs": policy.preprocess(OBS), "raw_action": step.raw_action}
    with pytest.raises(MissingColumnError, match=r"lacks 'mask'.*'action_mask'.*\['mask'\] = None"):
        policy.evaluate(batch)
    logp = policy.evaluate({**batch, "mask": MASK}).logp
    np.testing.assert_allclose(
        np.asarray(logp.detach() if policy.framework == "torch" else logp), step.logp, atol=1e-5
    )


def test_evaluate_scores_unmasked_with_none(policy):
    # The net is new, so its four logits are nearly equal: a quarter each, not a half.
    step = policy.act(OBS)
    batch = {"obs": policy.preprocess(OBS), "raw_action": step.raw_action, "mask": None}
    logp = policy.evaluate(batch).logp
    logp = np.asarray(logp.detach() if policy.framework == "torch" else logp)
    np.testing.assert_allclose(logp, np.log(1 / 4), atol=0.1)


def test_values_need_no_mask(policy):
    assert policy.values(policy.preprocess(OBS)).shape == (ROWS,)


def test_policies_without_masked_space_need_none():
    policy = rlcatalog.build(Box(-1, 1, (3,)), Discrete(4), {"fcnet_hiddens": [8]})
    encoded = policy.preprocess(np.zeros((2, 3), np.float32))
    step = policy.act_encoded(encoded)
    assert policy.evaluate({"obs": encoded, "raw_action": step.raw_action}).logp.shape == (2,)
