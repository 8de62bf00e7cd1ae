"""Models of other precisions in PyTorch, converted or built under another default dtype: every two
parts that meet.

Double precision is compared with differences 1e-7 apart, which agree with a gradient only if
nothing passes through float32; half precision with the same weights in float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from action_kinds import ACTIONS as EVERY_ACTION
from builders import sample_observations
from gymnasium.spaces import Discrete
from pairwise import pairwise
from precisions import (
    ACTIONS,
    DTYPES,
    MEMORIES,
    MODEL_OF,
    OBS,
    VECTOR,
    act_steps,
    assert_step_in,
    build_in,
    make_batch,
)

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

FACTORS = {
    "obs": list(OBS),
    "action": list(ACTIONS),
    "memory": list(MEMORIES),
    "share": [True, False],
    "dtype": DTYPES,
    "way": ["converted", "default"],
}


def label(case):
    return "-".join(str(case[name]).removeprefix("torch.") for name in FACTORS)


# --- pairs of parts -------------------------------------------------------------------------------


class Rollout:
    """A policy of a case, three steps that it did with four observations, and a batch of them."""

    def __init__(self, case):
        space, dist_config = ACTIONS[case["action"]]
        config = {
            **MODEL_OF.get(case["obs"], {}),
            **MEMORIES[case["memory"]],
            **dist_config,
            "vf_share_layers": case["share"],
        }
        self.dtype = case["dtype"]
        self.policy = build_in(OBS[case["obs"]], space, config, self.dtype, case["way"])
        obs = sample_observations(OBS[case["obs"]], 4)
        self.policy.act(obs)
        self.encoded, self.steps = act_steps(self.policy, obs, 3)
        self.batch = make_batch(self.policy, self.encoded, self.steps)

    def assert_close_to_acting(self, column, name):
        """Compare a column of an evaluation with what acting computed."""
        acting = np.stack([getattr(step, name) for step in self.steps], 1).ravel()
        if self.dtype is torch.float64:
            tolerance = {"rtol": 1e-10, "atol": 1e-10}
        else:
            tolerance = {"rtol": 0.05, "atol": 0.1}
        np.testing.assert_allclose(column.detach().numpy(), acting, **tolerance)


@pytest.fixture
def rollout(case):
    return Rollout(case)


#: Cases in which every two values of two factors meet.
each_case = pytest.mark.parametrize("case", pairwise(FACTORS, lambda case: True), ids=label)


@each_case
def test_weights_and_steps_have_the_precision(rollout):
    assert {weight.dtype for weight in rollout.policy.model.parameters()} == {rollout.dtype}
    for step in rollout.steps:
        assert_step_in(step, rollout.dtype)


@each_case
def test_values_are_those_of_the_first_step(rollout):
    values = rollout.policy.values(rollout.encoded)
    np.testing.assert_array_equal(values, rollout.steps[0].value)


@each_case
def test_evaluate_agrees_with_acting(rollout):
    evaluation = rollout.policy.evaluate(rollout.batch)

    rollout.assert_close_to_acting(evaluation.logp, "logp")
    rollout.assert_close_to_acting(evaluation.value, "value")
    # The divergence of a distribution from itself, up to rounding.
    assert abs(evaluation.kl).max() <= (1e-10 if rollout.dtype is torch.float64 else 0.1)


@each_case
def test_gradients_are_finite_and_of_the_precision(rollout):
    evaluation = rollout.policy.evaluate(rollout.batch)

    loss = evaluation.logp.sum() + evaluation.entropy.sum() + evaluation.value.sum()
    loss.backward()

    weights = rollout.policy.model.parameters()
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    assert gradients
    for gradient in gradients:
        assert gradient.dtype is rollout.dtype
        assert gradient.isfinite().all()


DOUBLE = {**FACTORS, "dtype": [torch.float64]}


@pytest.mark.parametrize("case", pairwise(DOUBLE, valid=lambda case: True), ids=label)
def test_gradient_in_double_precision_is_a_difference_quotient(rollout):
    model = rollout.policy.model
    torch.manual_seed(1)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    direction = {name: torch.randn_like(weight) for name, weight in weights.items()}

    def compute_loss_at(t):
        """Return a loss after a step of size t in the direction."""
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights[name] + t * direction[name])
        evaluation = rollout.policy.evaluate(rollout.batch)
        return evaluation.logp.sum() + evaluation.value.sum()

    # Not at 0: biases are zero there, so that a ReLU may stand on its kink.
    compute_loss_at(0.01).backward()
    slope = 0.0
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            slope += (weight.grad * direction[name]).sum()

    difference = compute_loss_at(0.01 + 1e-7) - compute_loss_at(0.01 - 1e-7)
    torch.testing.assert_close(difference / 2e-7, slope, rtol=1e-5, atol=1e-5)


# --- distributions --------------------------------------------------------------------------------


each_action = pytest.mark.parametrize("kind", list(EVERY_ACTION))
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.grid
@each_dtype
@each_action
def test_distributions_draw_in_every_precision(kind, dtype):
    space, config = EVERY_ACTION[kind]
    policy = build_in(VECTOR, space, config, dtype)

    _, (step,) = act_steps(policy, sample_observations(VECTOR, 6), 1)

    assert_step_in(step, dtype)


@pytest.mark.grid
@each_dtype
@each_action
def test_distributions_agree_with_those_in_float32(kind, dtype):
    space, config = EVERY_ACTION[kind]
    policy = build_in(VECTOR, space, config, dtype)
    float32_policy = build_in(VECTOR, space, config, torch.float32)
    float32_policy.model.set_weights(policy.model.get_weights())
    encoded, (step,) = act_steps(float32_policy, sample_observations(VECTOR, 6), steps=1)
    batch = {"obs": encoded, "raw_action": step.raw_action}

    actual = policy.evaluate(batch)

    expected = float32_policy.evaluate(batch)
    assert_close_to_float32(dtype, actual.logp, expected.logp)
    assert_close_to_float32(dtype, actual.value, expected.value)
    if actual.entropy_kind == "exact":  # an estimate is drawn at random
        assert_close_to_float32(dtype, actual.entropy, expected.entropy)


def assert_close_to_float32(dtype, actual, expected):
    if dtype is torch.float64:
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
    else:
        tolerance = {"rtol": 0.05, "atol": 0.15}
    np.testing.assert_allclose(actual.detach(), expected.detach(), **tolerance)


# --- lists ---------------------------------------------------------------------------------------


def test_lengths_of_lists_are_double():
    policy = build_in(OBS["lists"], Discrete(3), MODEL_OF["lists"], torch.float64)
    one_item = [np.zeros(2, np.float32)]
    two_items = [1, 2]
    own = np.zeros(3, np.float32)

    policy.act([{"seen": one_item, "hand": two_items, "own": own}])

    # The model sees a list's length as a share of 3, the largest length in the space.
    features = policy.model._features[0]
    assert abs(features - 1 / 3).min() < 1e-15  # float32 would be 1e-8 away
    assert abs(features - 2 / 3).min() < 1e-15
