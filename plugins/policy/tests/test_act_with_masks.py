"""The contract on paper: action masks, and model outputs that carry everything."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete
from scipy import special

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

BOX = spaces.Box(-1, 1, (4,), np.float32)
SMALL = {"fcnet_hiddens": [8]}


def observations(space=BOX, n=6, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


FIVE = Discrete(5, start=2)


def rebuilt_logp(policy, step):
    """The log densities of a step's raw actions from its inputs alone: without model,
    without mask.
    """
    if policy.framework == "torch":
        dist = policy.dist_class(torch.from_numpy(step.dist_inputs.copy()), None)
        return dist.logp(torch.from_numpy(step.raw_action.copy())).numpy()
    dist = policy.dist_class(tf.constant(step.dist_inputs), None)
    return dist.logp(tf.constant(step.raw_action)).numpy()


def masks(rows, n=5, seed=0):
    random = np.random.default_rng(seed)
    mask = random.random((rows, n)) < 0.4
    mask[np.arange(rows), random.integers(n, size=rows)] = True
    return mask


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("space", [FIVE, spaces.Box(-1, 1, (3,), np.float32)], ids=str)
def test_a_distribution_can_be_rebuilt_from_its_inputs(catalog, framework, space):
    policy = rlcatalog.build(BOX, space, SMALL, framework, catalog=catalog)
    step = policy.act(observations(n=50))
    policy.model.set_weights(
        {name: array + 1 for name, array in policy.model.get_weights().items()}
    )
    np.testing.assert_allclose(rebuilt_logp(policy, step), step.logp, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_mask_stands_in_the_inputs(catalog, framework):
    policy, rows = rlcatalog.build(BOX, FIVE, SMALL, framework, catalog=catalog), 3000
    obs, mask = np.stack(observations(n=rows)), masks(rows)
    for step in (
        policy.act(obs, mask=mask),
        policy.act(obs, mask=mask.astype(np.int8), explore=False),
    ):
        chosen = step.action - 2
        assert mask[np.arange(rows), chosen].all()
        np.testing.assert_allclose(rebuilt_logp(policy, step), step.logp, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(step.dist_inputs[~mask], np.finfo(np.float32).min)
        # By hand: a softmax over the allowed logits.
        free = policy.act(obs, explore=False).dist_inputs
        expected = special.log_softmax(np.where(mask, free, -np.inf), axis=1)[
            np.arange(rows), chosen
        ]
        np.testing.assert_allclose(step.logp, expected, rtol=1e-4, atol=1e-5)
        batch = {"obs": policy.preprocess(obs), "raw_action": step.raw_action}
        found, blind = policy.evaluate({**batch, "mask": mask}), policy.evaluate(batch)
        logp, other = (
            (x.logp.detach() if framework == "torch" else x.logp) for x in (found, blind)
        )
        np.testing.assert_allclose(logp, step.logp, rtol=1e-4, atol=1e-5)
        assert not np.allclose(other, step.logp, atol=1e-3)  # the control
        assert np.isfinite(
            np.asarray(found.entropy.detach() if framework == "torch" else found.entropy)
        ).all()


def test_masks_in_any_form(catalog):
    policy, obs, mask = (
        rlcatalog.build(BOX, FIVE, SMALL, catalog=catalog),
        observations(n=4),
        masks(4),
    )
    for form in (mask, mask.astype(np.int8), mask.astype(np.float32), mask.tolist()):
        step = policy.act(obs, mask=form)
        assert mask[np.arange(4), step.action - 2].all()


def test_a_row_that_allows_nothing_is_named(catalog):
    policy, mask = rlcatalog.build(BOX, FIVE, SMALL, catalog=catalog), masks(4)
    mask[2] = False
    with pytest.raises(
        ActionMaskError, match="mask: row 2 allows no action; each row must allow at least one"
    ):
        policy.act(observations(n=4), mask=mask)


@pytest.mark.parametrize("shape", [(5,), (4, 4), (3, 5), (4, 5, 1)])
def test_a_mask_of_the_wrong_shape_is_refused(catalog, shape):
    with pytest.raises(
        ActionMaskError, match=r"mask: action: expected shape \(4, 5\); found shape"
    ):
        rlcatalog.build(BOX, FIVE, SMALL, catalog=catalog).act(
            observations(n=4), mask=np.ones(shape, bool)
        )


def test_a_mask_for_a_box_is_refused(catalog):
    with pytest.raises(
        NotServedError, match=r"action: Box\(2,\) float32 has no values that a mask could forbid"
    ):
        rlcatalog.build(BOX, spaces.Box(-1, 1, (2,)), SMALL, catalog=catalog).act(
            observations(n=1), mask=np.ones((1, 2))
        )
