"""Frozen policies, which act as the policies that they were made of, with their present weights."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.plugins import install_hint

pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")

import torch
from export_cases import built as build_case, cases
from frozen_policies import (
    ROWS,
    VECTOR,
    same as assert_same_step,
    user_policy as build_computing,
    walk as assert_act_alike,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from scipy.stats import chisquare, kstest

import rlcatalog
from rlcatalog.errors import (
    ActionMaskError,
    CatalogWarning,
    NonFiniteError,
    ObservationError,
)
from rlcatalog.plugins import FrameworkSpec
from rlcatalog_export import observations

#: Policies in TensorFlow are not frozen.
NAMES = [name for name, case in cases().items() if case.framework == "torch"]


def draw_inputs(policy, seed, rows=ROWS):
    """Return observations, and a mask or None."""
    return observations(policy, rows, np.random.default_rng(seed))


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:custom_preprocessor")
@pytest.mark.parametrize("name", NAMES)
def test_frozen_policy_acts_as_the_policy(name):
    case = cases()[name]
    policy = build_case(case)

    frozen = policy.freeze(ROWS, seed=0)

    assert frozen.reason is None  # a graph was recorded
    assert_act_alike(policy, [frozen], 20 if case.recurrent else 4, case.tolerance)
    assert frozen.reason is None


@pytest.mark.filterwarnings("ignore:custom_preprocessor")
@pytest.mark.parametrize("name", NAMES)
def test_frozen_policy_scores_what_it_draws(name):
    policy = build_case(cases()[name])
    frozen = policy.freeze(ROWS, seed=0)
    obs, mask = draw_inputs(policy, seed=3)

    step = frozen.act(obs, prev_reward=np.zeros(ROWS, np.float32), mask=mask)

    np.testing.assert_allclose(step.logp, log_density(policy, step), rtol=1e-5, atol=1e-5)
    assert frozen.reason is None


def log_density(policy, step):
    """Return the log density of a step's raw actions under its distribution."""
    dist = policy.stored_dist(torch.from_numpy(step.dist_inputs), policy.model)
    raw_action = torch.from_numpy(step.raw_action)
    if policy.action_codec.scalar:  # a Discrete action has no axis of its own
        raw_action = raw_action[:, 0]
    with torch.no_grad():
        return dist.logp(raw_action).numpy()


def test_frozen_policy_records_every_way_of_writing_in_place():
    def compute(model, x):
        # `first` and `last` share memory with `numbers`; methods with an underscore write in place.
        numbers = torch.zeros(len(x), 4)
        first, last = numbers.split([1, 3], 1)
        last.copy_(x)
        first.add_(x[:, :1])
        numbers[:, 1] += 1
        hidden = model.layer(numbers[:, :3] + last).relu_()
        hidden[:, 0].mul_(2)
        return hidden.sub_(numbers[:, 3:])

    policy = build_computing(compute)

    frozen = policy.freeze(ROWS)

    assert frozen.reason is None  # a graph was recorded
    assert_act_alike(policy, [frozen], steps=4, tolerance=1e-5)


# --- weights --------------------------------------------------------------------------------------


def change(tensor, by):
    with torch.no_grad():
        tensor.add_(by)


@pytest.mark.parametrize(
    "name",
    [
        "choices, attention",
        "parts, lstm",
        "complex inputs",
        "autoregressive",
        "parametric",
        "a user's model",
        "squashed gaussian, choices",
    ],
)
def test_update_copies_every_weight(name):
    policy = build_case(cases()[name])
    frozen = policy.freeze(ROWS)
    for tensor in [*policy.model.parameters(), *policy.model.buffers()]:
        if tensor.is_floating_point():
            change(tensor, by=0.1 + 0.2 * torch.rand_like(tensor))

    frozen.update()

    assert_act_alike(policy, [frozen], steps=3, tolerance=1e-4)
    assert frozen.reason is None


def test_update_follows_assigned_tensors():
    policy = rlcatalog.build(VECTOR, Discrete(3), {"fcnet_hiddens": [8]}, "torch")
    frozen = policy.freeze(ROWS)
    weights = {name: value + 0.5 for name, value in policy.model.state_dict().items()}
    policy.model.load_state_dict(weights, assign=True)

    frozen.update()

    assert_act_alike(policy, [frozen], steps=3, tolerance=1e-5)
    assert frozen.reason is None


def test_update_follows_another_precision():
    policy = rlcatalog.build(VECTOR, Discrete(3), {"fcnet_hiddens": [8]}, "torch")
    frozen = policy.freeze(ROWS)
    policy.model.double()

    frozen.update()

    assert_act_alike(policy, [frozen], steps=3, tolerance=1e-5)
    assert frozen.reason is None


# --- draws ----------------------------------------------------------------------------------------


def freeze_with_probabilities(probabilities, rows):
    """Freeze a policy that has the same probabilities of actions for every observation."""
    policy = rlcatalog.build(VECTOR, Discrete(4), {"fcnet_hiddens": []}, "torch")
    logits = np.log(np.float32(probabilities))
    weights = {}
    for name, array in policy.model.get_weights().items():
        weights[name] = logits if array.shape == (4,) else array * 0  # the bias is the logits
    policy.model.set_weights(weights)
    return policy.freeze(rows, seed=1)


def test_draws_follow_the_probabilities():
    frozen = freeze_with_probabilities([0.4, 0.3, 0.2, 0.1], rows=4000)

    actions = frozen.act(np.zeros((4000, 3), np.float32)).action

    assert chisquare(np.bincount(actions), [1600, 1200, 800, 400]).pvalue > 0.001


def test_masked_draws_follow_the_probabilities_of_the_others():
    frozen = freeze_with_probabilities([0.4, 0.3, 0.2, 0.1], rows=4000)
    forbids_action_1 = np.array([[True, False, True, True]] * 4000)

    actions = frozen.act(np.zeros((4000, 3), np.float32), mask=forbids_action_1).action

    count_0, count_1, count_2, count_3 = np.bincount(actions)
    assert count_1 == 0
    # The probabilities of the others are 0.4, 0.2 and 0.1 of their sum, 0.7.
    expected = [4000 * 4 / 7, 4000 * 2 / 7, 4000 * 1 / 7]
    assert chisquare([count_0, count_2, count_3], expected).pvalue > 0.001


def test_draws_of_a_gaussian_are_normal():
    policy = rlcatalog.build(VECTOR, Box(-1, 1, (2,), np.float32), {"fcnet_hiddens": []}, "torch")
    frozen = policy.freeze(4000, seed=1)

    step = frozen.act(np.zeros((4000, 3), np.float32))

    mean, log_std = np.split(step.dist_inputs, 2, axis=1)
    noise = (step.raw_action - mean) / np.exp(log_std)
    assert kstest(noise.ravel(), "norm").pvalue > 0.001
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.05  # the two parts are independent


@pytest.fixture
def box_policy():
    return rlcatalog.build(VECTOR, Box(-1, 1, (2,), np.float32), {"fcnet_hiddens": [4]}, "torch")


def draw(frozen, times):
    obs = np.zeros((ROWS, 3), np.float32)
    return [frozen.act(obs).raw_action for _ in range(times)]


def test_equal_seeds_draw_the_same(box_policy):
    expected = draw(box_policy.freeze(seed=3), times=5)
    np.testing.assert_array_equal(draw(box_policy.freeze(seed=3), times=5), expected)


def test_other_seeds_draw_something_else(box_policy):
    first = draw(box_policy.freeze(seed=3), times=1)
    assert not np.array_equal(draw(box_policy.freeze(seed=4), times=1), first)


def test_random_state_restores_draws(box_policy):
    frozen = box_policy.freeze(seed=3)
    other = box_policy.freeze(seed=4)

    # Numbers are drawn in blocks; in 3,000 draws, some states are near the end of a block.
    for _ in range(300):
        state = frozen.random_state()
        expected = draw(frozen, times=10)

        other.set_random_state(state)

        np.testing.assert_array_equal(draw(other, times=10), expected)


# --- the policy itself ----------------------------------------------------------------------------


def test_freezing_draws_nothing_from_the_global_generator():
    policy = build_case(cases()["choices, attention"])
    obs, _ = draw_inputs(policy, seed=0)
    torch.manual_seed(0)
    before = torch.get_rng_state()

    frozen = policy.freeze(ROWS)
    frozen.act(obs, prev_reward=np.zeros(ROWS, np.float32))

    assert torch.equal(before, torch.get_rng_state())


def test_backward_pass_does_not_change_how_a_frozen_policy_acts():
    policy = build_case(cases()["choices, attention"])
    frozen = policy.freeze(ROWS)
    obs, _ = draw_inputs(policy, seed=0)
    step = policy.act(obs, prev_reward=np.zeros(ROWS, np.float32))
    batch = {
        "obs": policy.preprocess(obs),
        "raw_action": step.raw_action,
        "views": step.state.views,
        "seq_lens": np.ones(ROWS, np.int32),  # each row is a sequence of one step
    }

    frozen.evaluate(batch).logp.sum().backward()
    frozen.update()

    assert_act_alike(policy, [frozen], steps=3, tolerance=1e-5)


# --- other methods of a policy --------------------------------------------------------------------


@pytest.fixture
def lstm_policy():
    return build_case(cases()["bernoulli, lstm"])


@pytest.fixture
def frozen_lstm(lstm_policy):
    return lstm_policy.freeze(2, seed=0)


def test_stepper_of_a_frozen_policy_steps_as_that_of_the_policy(lstm_policy, frozen_lstm):
    frozen_stepper = frozen_lstm.stepper(2)
    stepper = lstm_policy.stepper(2)
    for t in range(6):
        obs, _ = draw_inputs(lstm_policy, seed=t, rows=2)
        first_episode_ends = t == 3
        options = {
            "done": np.array([first_episode_ends, False]),
            "prev_reward": np.ones(2, np.float32),
            "explore": False,
        }

        step = frozen_stepper.step(obs, **options)

        assert_same_step(step, stepper.step(obs, **options), tolerance=1e-5)


def test_values_of_a_frozen_policy_are_those_of_the_policy(lstm_policy, frozen_lstm):
    obs, _ = draw_inputs(lstm_policy, seed=0, rows=2)
    encoded = lstm_policy.preprocess(obs)
    reward = np.zeros(2, np.float32)

    values = frozen_lstm.values(encoded, prev_reward=reward)

    np.testing.assert_array_equal(values, lstm_policy.values(encoded, prev_reward=reward))


def test_saved_frozen_policy_is_loaded_as_a_plain_policy(frozen_lstm, tmp_path):
    frozen_lstm.save(tmp_path)
    assert type(rlcatalog.load(tmp_path)) is rlcatalog.Policy


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture
def masked_policy():
    space = Dict(obs=VECTOR, action_mask=MultiBinary(3))
    return rlcatalog.build(space, Discrete(3), {}, "torch")


VALID = {"obs": np.zeros((1, 3), np.float32), "action_mask": np.ones((1, 3), np.int8)}


@pytest.mark.parametrize(
    ("invalid", "error", "message"),
    [
        ({"obs": np.zeros((1, 4), np.float32)}, ObservationError, r"shape \(4,\)"),
        ({"action_mask": np.zeros((1, 3), np.int8)}, ActionMaskError, "row 0"),
        ({"obs": np.full((1, 3), np.nan, np.float32)}, NonFiniteError, r"NaN at obs\['obs'\]"),
    ],
    ids=["shape", "nothing allowed", "NaN"],
)
def test_frozen_policy_rejects_invalid_observations(masked_policy, invalid, error, message):
    frozen = masked_policy.freeze()
    frozen.act(VALID)  # records the graph

    with pytest.raises(error, match=message):
        frozen.act({**VALID, **invalid})


def test_frozen_policy_rejects_infinite_weights(masked_policy):
    frozen = masked_policy.freeze()
    frozen.act(VALID)  # records the graph
    with torch.no_grad():
        next(masked_policy.model.parameters()).fill_(np.inf)

    frozen.update()

    with pytest.raises(NonFiniteError, match="row 0 of 1"):
        frozen.act(VALID)


# --- models that cannot be recorded ---------------------------------------------------------------


def branch_on_data(model, x):
    return model.layer(x if x.sum() > 9 else -x)


def convert_to_python(model, x):
    return model.layer(x * float(x[0, 0]))


def call_unknown_operation(model, x):
    return torch.linalg.pinv(model.layer(x)).T.clone()


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (branch_on_data, "data-dependent if"),
        (convert_to_python, "into Python"),
        (call_unknown_operation, "the operation"),
    ],
)
def test_unrecordable_model_acts_unrecorded(compute, reason):
    policy = build_computing(compute)
    obs = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)

    frozen = policy.freeze(2)

    assert_same_step(frozen.act(obs, explore=False), policy.act(obs, explore=False), 0)
    assert reason in frozen.reason
    assert "no faster" in repr(frozen)


def test_model_that_computes_in_numpy_warns_and_acts_unrecorded():
    def compute_in_numpy(model, x):
        return model.layer(torch.from_numpy(np.tanh(x.numpy())))

    policy = build_computing(compute_in_numpy)
    obs = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    frozen = policy.freeze(rows=2)

    # NumPy's results have become constants of the graph, and are wrong for other observations.
    with pytest.warns(CatalogWarning, match="no longer matches the policy") as warned:
        frozen.act(obs)

    assert warned[0].filename == __file__
    found = frozen.act(obs, explore=False)  # from now on, by the policy itself
    assert_same_step(found, policy.act(obs, explore=False), tolerance=0)
    assert "update" in frozen.reason
    assert "no faster" in repr(frozen)


def act_often(policy, obs, times):
    for _ in range(times):
        policy.act(obs)


def test_model_that_counts_calls_in_python_is_noticed():
    def double_after_60_calls(model, x):
        factor = 2.0 if model.calls > 60 else 1.0
        return model.layer(x) * factor

    policy = build_computing(double_after_60_calls)
    frozen = policy.freeze(rows=2)  # the graph has the factor 1
    obs = np.ones((2, 3), np.float32)
    act_often(policy, obs, times=62)  # from now on, the policy has the factor 2

    # The frozen policy compares its graph with the policy now and then.
    with pytest.warns(CatalogWarning, match="acts from now on"):
        act_often(frozen, obs, times=200)

    found = frozen.act(obs, explore=False)
    assert_same_step(found, policy.act(obs, explore=False), tolerance=0)


@pytest.fixture
def without_freezing_package():
    """Unregister the code that freezes policies in PyTorch."""
    FrameworkSpec.table.specs["torch: freeze"].leave()


def test_freezing_without_its_package_names_it(without_freezing_package):
    frozen = rlcatalog.build(VECTOR, Discrete(2), {}, "torch").freeze(2)

    assert install_hint("rlcatalog-export[torch]") in frozen.reason
    assert frozen.reason in frozen.explain().as_dict()["frozen"]
