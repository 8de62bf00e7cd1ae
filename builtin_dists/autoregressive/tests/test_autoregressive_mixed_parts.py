"""Actions of mixed parts: densities and bounds, saving, acting step by step, config errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from autoregressive_policies import (
    OBS_SPACE,
    build_policy,
    compute_params,
    exact_logp,
    random_observations,
    to_numpy,
    to_tensor,
    without_tracing,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import special, stats

import rlcatalog
from rlcatalog.errors import ActionRangeWarning, ConfigError, SavedPolicyError
from rlcatalog.spaces import Simplex

pytestmark = pytest.mark.twins

#: Bounds of two values.
LOW = np.array([-2.0, 0.5], np.float32)
HIGH = np.array([3.0, 20.0], np.float32)
#: Thirteen parts, with 41 parameters and 20 raw values.
SPACE = Tuple(
    [
        Discrete(3, start=-1),
        Box(-1, 1, (2,), np.float32),
        Box(LOW, HIGH, dtype=np.float32),
        Box(LOW, HIGH, dtype=np.float32),
        MultiBinary(3),
        MultiDiscrete([2, 4], start=[1, -1]),
        Box(-3, -1, (2,), np.int16),
        Dict({"b": Discrete(2), "a": Tuple([Box(-np.inf, np.inf, (1,), np.float32), Discrete(4)])}),
        Simplex((3,)),
    ]
)
CONFIG = {"custom_action_dist": {"action[2]": "beta", "action[3]": "squashed_gaussian"}}


def contains(space, action, rows):
    """Return whether each row of a batch of actions lies in a space."""
    if isinstance(space, Tuple):
        parts = zip(space.spaces, action, strict=True)
        return all(contains(child, part, rows) for child, part in parts)
    if isinstance(space, Dict):
        return all(contains(child, action[key], rows) for key, child in space.spaces.items())
    if isinstance(space, Box):
        return all(space.contains(np.asarray(action[row])) for row in range(rows))
    return all(space.contains(action[row]) for row in range(rows))


# --- densities ------------------------------------------------------------------------------------


def logp_of_choice(params, value):
    logp = special.log_softmax(params, axis=1)
    return logp[np.arange(len(value)), value[:, 0].astype(int)]


def logp_of_bits(params, value):
    return stats.bernoulli.logpmf(value, special.expit(params)).sum(axis=1)


def logp_of_gaussian(params, value):
    mean, log_std = np.split(params, 2, axis=1)
    return stats.norm.logpdf(value, mean, np.exp(log_std)).sum(axis=1)


def logp_of_beta(params, value):
    """Return log densities of a Beta distribution between LOW and HIGH."""
    first, second = np.split(1 + np.log1p(np.exp(params)), 2, axis=1)
    return stats.beta.logpdf(value, first, second, loc=LOW, scale=HIGH - LOW).sum(axis=1)


def logp_of_squashed(params, value):
    """Return log densities of a squashed Gaussian between LOW and HIGH."""
    mean, log_std = np.split(params, 2, axis=1)
    half = (HIGH - LOW) / 2
    tanh = np.clip((value - (HIGH + LOW) / 2) / half, -1 + 1e-6, 1 - 1e-6)
    normal_logp = stats.norm.logpdf(np.arctanh(tanh), mean, np.exp(log_std))
    return (normal_logp - np.log(half * (1 - tanh**2))).sum(axis=1)


def logp_of_dirichlet(params, value):
    concentration = torch.from_numpy(np.exp(params) + 1e-7)
    value = np.maximum(value, np.finfo(np.float32).tiny)  # a share of 0 is scored as this
    point = torch.from_numpy(value / value.sum(axis=1, keepdims=True))
    return torch.distributions.Dirichlet(concentration).log_prob(point).numpy()


#: Exact density, number of parameters and number of raw values of each part of SPACE. In the Dict,
#: "a" is before "b".
EXACT_PARTS = [
    (logp_of_choice, 3, 1),
    (logp_of_gaussian, 4, 2),
    (logp_of_beta, 4, 2),
    (logp_of_squashed, 4, 2),
    (logp_of_bits, 3, 3),
    (logp_of_choice, 2, 1),
    (logp_of_choice, 4, 1),
    (logp_of_choice, 3, 1),
    (logp_of_choice, 3, 1),
    (logp_of_gaussian, 2, 1),
    (logp_of_choice, 4, 1),
    (logp_of_choice, 2, 1),
    (logp_of_dirichlet, 3, 3),
]


def split_step(step):
    """Return the parameters and the raw values of each part, in float64."""
    param_ends = np.cumsum([params for _, params, _ in EXACT_PARTS])[:-1]
    value_ends = np.cumsum([values for _, _, values in EXACT_PARTS])[:-1]
    params = np.split(step.dist_inputs.astype(np.float64), param_ends, axis=1)
    return params, np.split(step.raw_action.astype(np.float64), value_ends, axis=1)


def test_logp_of_each_part_matches_scipy(framework):
    policy = build_policy(SPACE, framework, scale=0.4, **CONFIG)
    params, values = split_step(policy.act(random_observations(rows=30)))

    for i, part in enumerate(policy.dist_class.options["layout"].in_space):
        dist = part.dist(to_tensor(params[i].astype(np.float32), framework), None)
        value = to_tensor(values[i].astype(np.float32), framework)
        logp = dist.logp(value[:, 0] if part.single else value)

        exact, _, _ = EXACT_PARTS[i]
        expected = exact(params[i], values[i])
        np.testing.assert_allclose(
            to_numpy(logp), expected, rtol=2e-3, atol=2e-3, err_msg=part.path
        )


def test_logp_is_sum_over_parts_given_their_parameters(framework):
    policy = build_policy(SPACE, framework, scale=0.4, **CONFIG)

    step = policy.act(random_observations(rows=30))

    params, values = split_step(step)
    expected = 0
    for i, part in enumerate(policy.dist_class.options["layout"].in_space):
        dist = part.dist(to_tensor(params[i].astype(np.float32), framework), None)
        value = to_tensor(values[i].astype(np.float32), framework)
        expected = expected + to_numpy(dist.logp(value[:, 0] if part.single else value))
    np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.grid
@pytest.mark.parametrize("bounds", ["clip", "affine"])
@pytest.mark.parametrize("explore", [True, False])
def test_actions_of_mixed_parts_are_in_the_space(framework, bounds, explore):
    policy = build_policy(SPACE, framework, scale=1.5, action_bounds=bounds, **CONFIG)

    with without_tracing(policy):
        step = policy.act(random_observations(rows=200), explore=explore)

    assert contains(SPACE, step.action, rows=200)
    assert np.isfinite(step.logp).all()
    assert step.raw_action.shape == (200, 20)
    assert step.dist_inputs.shape == (200, 41)


def test_later_parts_see_a_box_relative_to_its_bounds(framework):
    # Two spaces, one with bounds a thousand times as wide; policies with the same weights.
    space = Tuple([Box(LOW, HIGH, dtype=np.float32), Discrete(3)])
    wide_space = Tuple([Box(LOW * 1000, HIGH * 1000, dtype=np.float32), Discrete(3)])
    policy = build_policy(space, framework, action_bounds="clip")
    with warnings.catch_warnings():
        # A new policy hardly reaches the bounds of the wide Box.
        warnings.simplefilter("ignore", ActionRangeWarning)
        wide_policy = build_policy(wide_space, framework, action_bounds="clip")
    wide_policy.model.set_weights(policy.model.get_weights())
    obs = random_observations(rows=4)

    params = compute_params(policy, obs, np.float32([[0.5, 1, 2]] * 4))
    wide_params = compute_params(wide_policy, obs, np.float32([[500, 1000, 2]] * 4))

    np.testing.assert_allclose(wide_params, params, rtol=1e-5, atol=1e-6)


def test_logp_of_twenty_choices_follows_equations(framework):
    space = MultiDiscrete([3] * 20)
    policy = build_policy(space, framework)
    obs = random_observations(rows=5)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    expected = exact_logp(policy, space, obs, step.raw_action)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-4)
    assert evaluation.entropy_kind == "estimate"  # 3^19 combinations are too many to sum


# --- distributions by path ------------------------------------------------------------------------

each_first_part = pytest.mark.parametrize(
    ("first_part", "name", "params"),
    [
        (MultiDiscrete([3, 3]), "slate_multi_categorical", 6),
        (Discrete(3), "gumbel_softmax", 3),
    ],
    ids=["slates", "gumbel"],
)


def build_with_first_part(first_part, name, framework):
    space = Tuple([first_part, Discrete(4), Box(-1, 1, (1,))])
    return build_policy(space, framework, custom_action_dist={"action[0]": name})


@each_first_part
def test_part_may_have_any_distribution_by_path(framework, first_part, name, params):
    policy = build_with_first_part(first_part, name, framework)
    obs = random_observations(rows=50)
    step = policy.act(obs)

    evaluation = policy.evaluate({"obs": obs, "raw_action": step.raw_action})

    assert contains(policy.action_space, step.action, rows=50)
    np.testing.assert_allclose(to_numpy(evaluation.logp), step.logp, rtol=1e-3, atol=1e-3)


@each_first_part
def test_second_part_sees_first_part_of_any_distribution(framework, first_part, name, params):
    policy = build_with_first_part(first_part, name, framework)
    obs = random_observations(rows=50)
    raw_actions = policy.act(obs).raw_action
    with_other_first_part = raw_actions.copy()
    with_other_first_part[:, :-2] = raw_actions[::-1, :-2]

    before = compute_params(policy, obs, raw_actions)
    after = compute_params(policy, obs, with_other_first_part)

    np.testing.assert_array_equal(after[:, :params], before[:, :params])
    of_second_part = slice(params, params + 4)
    assert np.abs(after - before)[:, of_second_part].max() > 0.05


# --- saving ---------------------------------------------------------------------------------------


def test_loaded_policy_acts_alike(framework, tmp_path):
    space = Tuple([Discrete(3, start=-1), Box(LOW, HIGH, dtype=np.float32), MultiBinary(3)])
    policy = build_policy(
        space,
        framework,
        custom_action_dist={"action[1]": "beta"},
        autoregressive_order=["action[2]"],
    )
    obs = random_observations(rows=9)

    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)

    before = policy.act(obs, explore=False)
    after = loaded.act(obs, explore=False)
    np.testing.assert_array_equal(before.raw_action, after.raw_action)
    np.testing.assert_array_equal(before.dist_inputs, after.dist_inputs)
    assert loaded.config["autoregressive_order"] == ["action[2]"]
    assert loaded.dist_class.options["layout"].parts[0].path == "action[2]"


def test_saving_a_mask_function_is_an_error(tmp_path):
    policy = build_policy(SPACE, autoregressive_mask=lambda path, earlier: None, **CONFIG)

    with pytest.raises(SavedPolicyError, match="autoregressive_mask"):
        policy.save(tmp_path)


# --- acting step by step --------------------------------------------------------------------------


def test_stepper_restarts_rows_that_are_done(framework):
    policy = build_policy(SPACE, framework, use_lstm=True, lstm_cell_size=4, **CONFIG)
    stepper = policy.stepper(3)
    obs = random_observations(rows=3)

    first = stepper.step(obs)
    second = stepper.step(obs)
    third = stepper.step(obs, done=[True, False, True])

    # The value depends on the LSTM's state.
    np.testing.assert_allclose(third.value[[0, 2]], first.value[[0, 2]], rtol=1e-5)
    assert np.abs(second.value - first.value).max() > 1e-4
    assert abs(third.value[1] - first.value[1]) > 1e-5
    assert contains(SPACE, third.action, rows=3)


# --- config ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("autoregressive_hiddens", [], "autoregressive_hiddens"),
        ("autoregressive_hiddens", [0], "autoregressive_hiddens"),
        ("autoregressive_activation", "tanhh", "autoregressive_activation.*tanh"),
        ("autoregressive_exact", -1, "autoregressive_exact"),
        ("autoregressive_mask", "never", r"autoregressive_mask: expected a function"),
    ],
)
def test_wrong_config_value_is_an_error(key, value, message):
    with pytest.raises(ConfigError, match=message):
        rlcatalog.explain(OBS_SPACE, SPACE, {"use_autoregressive": True, key: value})


def test_wrong_mask_error_names_the_parameters():
    config = {"use_autoregressive": True, "autoregressive_mask": "never"}

    with pytest.raises(ConfigError, match=r"expected a function \(path, earlier\)"):
        rlcatalog.explain(OBS_SPACE, SPACE, config)
