"""Models of other precisions in PyTorch, converted or built under another default dtype: every two
parts that meet.

Double precision is compared with NumPy, and with differences 1e-7 apart, which only agree with a
gradient if nothing passes through float32; half precision with the same weights in float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from action_kinds import ACTIONS as EVERY_ACTION
from gymnasium.spaces import Box, Discrete
from pairwise import pairwise
from precisions import (
    ACTIONS,
    DTYPES,
    MEMORIES,
    MODEL_OF,
    OBS,
    VECTOR,
    acted as act_steps,
    batch_of as make_batch,
    check_step as assert_step_in,
    drawn as draw_observations,
    made as build_in,
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
        obs = draw_observations(OBS[case["obs"]], 4)
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

    (evaluation.logp.sum() + evaluation.entropy.sum() + evaluation.value.sum()).backward()

    weights = rollout.policy.model.parameters()
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    assert gradients
    for gradient in gradients:
        assert gradient.dtype is rollout.dtype
        assert gradient.isfinite().all()


DOUBLE = {**FACTORS, "dtype": [torch.float64]}


@pytest.mark.parametrize("case", pairwise(DOUBLE, lambda case: True), ids=label)
def test_gradient_in_double_precision_is_a_difference_quotient(rollout):
    model = rollout.policy.model
    torch.manual_seed(1)
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    direction = {name: torch.randn_like(weight) for name, weight in start.items()}

    def sum_at(t):
        """Return the sum of logp and values after a step of size t in the direction."""
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(start[name] + t * direction[name])
        evaluation = rollout.policy.evaluate(rollout.batch)
        return evaluation.logp.sum() + evaluation.value.sum()

    # Not at 0: biases are zero there, so that a ReLU may stand on its kink.
    sum_at(0.01).backward()
    slope = 0.0
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            slope += (weight.grad * direction[name]).sum()

    quotient = (sum_at(0.01 + 1e-7) - sum_at(0.01 - 1e-7)) / 2e-7
    torch.testing.assert_close(quotient, slope, rtol=1e-5, atol=1e-5)


# --- distributions --------------------------------------------------------------------------------


each_action = pytest.mark.parametrize("kind", list(EVERY_ACTION))
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.grid
@each_dtype
@each_action
def test_distributions_draw_in_every_precision(kind, dtype):
    space, config = EVERY_ACTION[kind]
    policy = build_in(VECTOR, space, config, dtype)

    _, (step,) = act_steps(policy, draw_observations(VECTOR, 6), 1)

    assert_step_in(step, dtype)


@pytest.mark.grid
@each_dtype
@each_action
def test_distributions_agree_with_those_in_float32(kind, dtype):
    space, config = EVERY_ACTION[kind]
    policy = build_in(VECTOR, space, config, dtype)
    float32_policy = build_in(VECTOR, space, config, torch.float32)
    float32_policy.model.set_weights(policy.model.get_weights())
    torch.manual_seed(2)
    encoded, (step,) = act_steps(float32_policy, draw_observations(VECTOR, 6), 1)
    batch = {"obs": encoded, "raw_action": step.raw_action}

    evaluation = policy.evaluate(batch)

    expected = float32_policy.evaluate(batch)
    if dtype is torch.float64:
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
    else:
        tolerance = {"rtol": 0.05, "atol": 0.15}
    names = ["logp", "value"]
    if evaluation.entropy_kind == "exact":  # an estimate is drawn at random
        names.append("entropy")
    for name in names:
        column = getattr(evaluation, name).detach()
        expected_column = getattr(expected, name).detach()
        np.testing.assert_allclose(column, expected_column, **tolerance, err_msg=name)


# --- against NumPy in double precision ------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def compute_in_numpy(weights, obs, use_lstm):
    """Return the outputs `[T, B, …]` and values `[T, B]` for observations `[T, B, n]`.

    The model has a tanh layer, then an LSTM of 6 cells or none, then linear outputs.
    """
    trunk = "trunk." if use_lstm else ""
    kernel = weights[f"{trunk}hidden.layers.0.weight"]
    bias = weights[f"{trunk}hidden.layers.0.bias"]
    outputs, values = [], []
    h, c = np.zeros((2, obs.shape[1], 6))
    for row in obs:
        x = np.tanh(row @ kernel.T + bias)
        if use_lstm:
            from_input = x @ weights["cell.weight_ih"].T
            from_state = h @ weights["cell.weight_hh"].T
            gates = from_input + from_state + weights["cell.bias"]
            i, f, g, o = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            x = h
        outputs.append(x @ weights["outputs.logits.weight"].T + weights["outputs.logits.bias"])
        value = x @ weights["outputs.value.weight"].T + weights["outputs.value.bias"]
        values.append(value[:, 0])
    return np.stack(outputs), np.stack(values)


def normal_logp(outputs, raw_action):
    """Return the log density of a diagonal Gaussian, summed over the parts of an action."""
    mean, log_std = np.split(outputs, 2, axis=2)
    deviations = (raw_action - mean) / np.exp(log_std)
    return -(deviations**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(axis=2)


def categorical_logp(outputs, raw_action):
    """Return the log probability of the chosen actions."""
    centred = outputs - outputs.max(axis=2, keepdims=True)
    log_probs = centred - np.log(np.exp(centred).sum(axis=2, keepdims=True))
    return np.take_along_axis(log_probs, raw_action, axis=2)[..., 0]


class DoubleRollout:
    """A policy in double precision, and four steps of five rows beside what NumPy computes."""

    def __init__(self, use_lstm, way, dist):
        if dist == "normal":
            space = Box(-9, 9, (2,), np.float64)
            logp = normal_logp
        else:
            space = Discrete(3)
            logp = categorical_logp
        config = {"use_lstm": True, "lstm_cell_size": 6} if use_lstm else {}
        obs_space = Box(-1, 1, (3,), np.float64)
        self.policy = build_in(obs_space, space, config, torch.float64, way)
        # Numbers that float32 holds, because observations are encoded as float32.
        obs = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(np.float32)
        self.obs = obs.astype(np.float64)
        self.steps = []
        state = None
        for row in self.obs:
            self.steps.append(self.policy.act(row, state))
            state = self.steps[-1].state
        self.raw_action = np.stack([step.raw_action for step in self.steps])
        weights = self.policy.model.get_weights()
        outputs, self.value = compute_in_numpy(weights, self.obs, use_lstm)
        self.logp = logp(outputs, self.raw_action)


@pytest.fixture
def double_rollout(use_lstm, way, dist):
    return DoubleRollout(use_lstm, way, dist)


def each_double_case(test):
    """Run a test for each model, way to double precision, and distribution."""
    test = pytest.mark.parametrize("use_lstm", [False, True], ids=["fcnet", "lstm"])(test)
    test = pytest.mark.parametrize("way", ["converted", "default"])(test)
    return pytest.mark.parametrize("dist", ["categorical", "normal"])(test)


def by_sequence(columns):
    """Return `[T, B, …]` as rows, one sequence behind the other."""
    return columns.swapaxes(0, 1).reshape(20, -1)


@each_double_case
def test_weights_in_double_precision_are_float64(double_rollout):
    weights = double_rollout.policy.model.get_weights()
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float64)}


@each_double_case
def test_acting_in_double_precision_agrees_with_numpy(double_rollout):
    logp = np.stack([step.logp for step in double_rollout.steps])
    value = np.stack([step.value for step in double_rollout.steps])
    np.testing.assert_allclose(logp, double_rollout.logp, rtol=0, atol=1e-10)
    np.testing.assert_allclose(value, double_rollout.value, rtol=0, atol=1e-10)


@each_double_case
def test_training_in_double_precision_agrees_with_numpy(double_rollout):
    policy = double_rollout.policy
    batch = {
        "obs": by_sequence(double_rollout.obs),
        "raw_action": by_sequence(double_rollout.raw_action),
    }
    if policy.memory:
        batch["seq_lens"] = np.full(5, 4)

    evaluation = policy.evaluate(batch)

    logp = by_sequence(double_rollout.logp)[:, 0]
    value = by_sequence(double_rollout.value)[:, 0]
    np.testing.assert_allclose(evaluation.logp.detach(), logp, rtol=0, atol=1e-10)
    np.testing.assert_allclose(evaluation.value.detach(), value, rtol=0, atol=1e-10)


def test_lengths_of_lists_are_double():
    policy = build_in(OBS["lists"], Discrete(3), MODEL_OF["lists"], torch.float64)
    (obs,) = draw_observations(OBS["lists"], 1)
    # One of at most three items, and two of three.
    obs = {**obs, "seen": [np.zeros(2, np.float32)], "hand": [1, 2]}

    policy.act([obs])

    features = policy.model._features[0]  # a list is shown with its length as a share of three
    for share in (1 / 3, 2 / 3):
        assert abs(features - share).min() < 1e-15  # float32 would be 1e-8 away
