"""Outputs of a model that are NaN: acting on them is an error that names the row."""

from __future__ import annotations

import numpy as np
import pytest
from action_kinds import ACTIONS, DEPENDENT
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import NonFiniteError

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])

TWO_FEATURES = spaces.Box(-1, 1, (2,), np.float32)
#: Name → (action space, config), one for each kind of action.
KINDS = {
    **ACTIONS,
    **DEPENDENT,
    "deterministic": (TWO_FEATURES, {"custom_action_dist": "deterministic"}),
}


def random_observations(*, rows, nan_rows=()):
    """Return observations of two numbers; the second is NaN in some rows."""
    obs = np.random.default_rng(0).uniform(-1, 1, (rows, 2)).astype(np.float32)
    for row in nan_rows:
        obs[row, 1] = np.nan
    return obs


@pytest.mark.grid
@both_frameworks
@pytest.mark.parametrize(("space", "config"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("explore", [True, False])
def test_error_for_a_nan_observation_names_the_first_row(framework, space, config, explore):
    policy = rlcatalog.build(TWO_FEATURES, space, {"fcnet_hiddens": [4], **config}, framework)
    policy.preprocessor.set_check("never")  # otherwise it would reject the observation before

    with pytest.raises(NonFiniteError, match=r"^row 3 of 6: the log density") as caught:
        policy.act(random_observations(rows=6, nan_rows=[3, 5]), explore=explore)

    assert "its observation contains values that are not finite" in str(caught.value)


@both_frameworks
def test_finite_observations_have_finite_logp_after_an_error(framework):
    policy = rlcatalog.build(TWO_FEATURES, spaces.Discrete(3), framework=framework)
    policy.preprocessor.set_check("never")  # otherwise it would reject the observation before
    with pytest.raises(NonFiniteError):
        policy.act(random_observations(rows=6, nan_rows=[3]))

    after = policy.act(random_observations(rows=6))

    assert np.isfinite(after.logp).all()


@pytest.fixture(
    params=[{}, {"use_lstm": True, "lstm_use_prev_action": True}, {"use_attention": True}],
    ids=["fcnet", "lstm", "attention"],
)
def model_config(request):
    return {"fcnet_hiddens": [4], **request.param}


def build_policy_with_nan_weights(framework, config):
    policy = rlcatalog.build(TWO_FEATURES, spaces.Discrete(3), config, framework)
    weights = policy.model.get_weights()
    nan_weights = {name: np.full_like(array, np.nan) for name, array in weights.items()}
    policy.model.set_weights(nan_weights)
    return policy


@pytest.mark.grid
@both_frameworks
def test_error_for_nan_weights_names_the_weights(framework, model_config):
    policy = build_policy_with_nan_weights(framework, model_config)

    with pytest.raises(NonFiniteError, match="row 0 of 2: the log density of its a") as caught:
        policy.act(random_observations(rows=2))

    message = str(caught.value)
    assert "[nan, nan, nan]" in message
    assert "weights" in message.partition("[nan, nan, nan]")[2]


@both_frameworks
def test_masked_actions_raise_no_error(framework):
    space = spaces.MultiDiscrete([3, 3])
    policy = rlcatalog.build(TWO_FEATURES, space, {"fcnet_hiddens": [4]}, framework)
    first_choice_is_0 = np.array([[True, False, False], [True, False, False]])
    second_choice_is_1 = np.array([[False, True, False], [False, True, False]])

    step = policy.act(random_observations(rows=2), mask=(first_choice_is_0, second_choice_is_1))

    assert step.action.tolist() == [[0, 1], [0, 1]]
