"""What is no number is never acted upon in silence: a model's outputs that are NaN are an error
that names the row.
"""

from __future__ import annotations

import numpy as np
import pytest
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import CatalogError, NonFiniteError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS = spaces.Box(-1, 1, (2,), np.float32)
KINDS = {**ACTIONS, **DEPENDENT, "deterministic": (OBS, {"custom_action_dist": "deterministic"})}
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def observations(rows, bad=()):
    obs = np.random.default_rng(0).uniform(-1, 1, (rows, 2)).astype(np.float32)
    for row, value in bad:
        obs[row, 1] = value
    return obs


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(("space", "config"), KINDS.values(), ids=KINDS)
def test_an_observation_that_is_no_number_is_no_action(framework, space, config):
    policy = rlcatalog.build(OBS, space, {"fcnet_hiddens": [4], **config}, framework)
    policy.preprocessor.set_check("never")
    good = policy.act(observations(6))
    assert np.isfinite(good.logp).all()
    says = (
        r"row 3 of 6: the log density of its action is NaN.*its observation contains values"
        r" that are not finite"
    )
    for explore in (True, False):
        with pytest.raises(NonFiniteError, match=says):
            policy.act(observations(6, [(3, np.nan), (5, np.nan)]), explore=explore)
    assert np.isfinite(policy.act(observations(6)).logp).all()


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize(
    "config",
    [{}, {"use_lstm": True, "lstm_use_prev_action": True}, {"use_attention": True}],
    ids=str,
)
def test_weights_that_are_no_numbers_are_named(framework, config):
    policy = rlcatalog.build(OBS, spaces.Discrete(3), {"fcnet_hiddens": [4], **config}, framework)
    weights = policy.model.get_weights()
    policy.model.set_weights(
        {name: np.full_like(weight, np.nan) for name, weight in weights.items()}
    )
    says = (
        r"row 0 of 2: the log density of its action is NaN; the parameters.*\[nan, nan,"
        r" nan\].*weights"
    )
    with pytest.raises(NonFiniteError, match=says):
        policy.act(observations(2))
    stepper = policy.stepper(2)
    with pytest.raises(FloatingPointError):  # what NumPy would raise
        stepper.step(observations(2))
    assert issubclass(NonFiniteError, CatalogError)


@frameworks
def test_masks_and_impossible_actions_are_numbers(framework):
    policy = rlcatalog.build(OBS, spaces.MultiDiscrete([3, 3]), {"fcnet_hiddens": [4]}, framework)
    mask = (np.tile([True, False, False], (2, 1)), np.tile([False, True, False], (2, 1)))
    step = policy.act(observations(2), mask=mask)
    assert step.action.tolist() == [[0, 1], [0, 1]]
