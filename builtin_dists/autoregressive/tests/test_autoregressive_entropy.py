"""Frequencies of draws, entropy and KL divergence against sums over all actions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from autoregressive_policies import (
    SMALL_MODEL,
    build_policy,
    distribution,
    exact_probabilities,
    random_observations,
    to_numpy,
    to_tensor,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import stats

import rlcatalog
from rlcatalog.errors import ModelContractError, NoClosedFormError

pytestmark = pytest.mark.twins


# --- draws ----------------------------------------------------------------------------------------


def test_draws_follow_the_exact_probabilities(framework):
    space = MultiDiscrete([3, 2])
    policy = build_policy(space, framework)
    obs = random_observations(rows=1)

    actions = policy.act(np.repeat(obs, 20_000, axis=0)).raw_action

    # Of the six actions (0, 0), (0, 1), (1, 0), (1, 1), (2, 0) and (2, 1).
    counts = np.bincount(2 * actions[:, 0] + actions[:, 1], minlength=6)
    _, probabilities = exact_probabilities(policy, space, obs)
    assert stats.chisquare(counts, 20_000 * probabilities).pvalue > 1e-3
    # The test can tell: independent choices with the same frequencies do not fit.
    assert stats.chi2_contingency(counts.reshape(3, 2)).pvalue < 1e-6


def test_deterministic_sample_is_most_likely_part_by_part(framework):
    space = MultiDiscrete([3, 2])
    policy = build_policy(space, framework)
    obs = random_observations(rows=60)

    chosen = policy.act(obs, explore=False).raw_action

    expected = []
    for row in range(60):
        _, probabilities = exact_probabilities(policy, space, obs[row : row + 1])
        table = probabilities.reshape(3, 2)  # rows are values of the first choice
        first = table.sum(axis=1).argmax()
        second = table[first].argmax()
        expected.append([first, second])
    np.testing.assert_array_equal(chosen, expected)


# --- exact sums -----------------------------------------------------------------------------------


def test_entropy_is_sum_over_all_actions(framework):
    space = Tuple([Discrete(3), MultiBinary(2), Discrete(2)])
    policy = build_policy(space, framework, autoregressive_order=["action[2]"])
    obs = random_observations(rows=1)

    dist = distribution(policy, obs)

    _, p = exact_probabilities(policy, space, obs, order=["action[2]"])
    assert dist.entropy_kind == "exact"
    np.testing.assert_allclose(to_numpy(dist.entropy()), [-(p * np.log(p)).sum()], atol=1e-4)


def test_kl_is_sum_over_all_actions(framework):
    space = Tuple([Discrete(3), MultiBinary(2), Discrete(2)])
    policy = build_policy(space, framework, autoregressive_order=["action[2]"], seed=0)
    other_policy = build_policy(space, framework, autoregressive_order=["action[2]"], seed=1)
    obs = random_observations(rows=1)

    kl = distribution(policy, obs).kl(distribution(other_policy, obs))

    _, p = exact_probabilities(policy, space, obs, order=["action[2]"])
    _, q = exact_probabilities(other_policy, space, obs, order=["action[2]"])
    np.testing.assert_allclose(to_numpy(kl), [(p * np.log(p / q)).sum()], atol=1e-4)


def test_kl_of_another_order_is_an_error(framework):
    space = MultiDiscrete([3, 2])
    obs = random_observations(rows=2)
    dist = distribution(build_policy(space, framework), obs)
    second_part_first = build_policy(space, framework, autoregressive_order=[1])

    with pytest.raises(ModelContractError, match="same parts in the same order") as caught:
        dist.kl(distribution(second_part_first, obs))

    assert "found action[0], action[1] here and action[1], action[0]" in str(caught.value)


def test_kl_with_independent_parts_is_an_error(framework):
    dist = distribution(build_policy(MultiDiscrete([3, 2]), framework), random_observations(rows=2))
    independent = dist.layout.independent_dist(dist.inputs[:, : 3 + 2], None)

    with pytest.raises(ModelContractError, match="expects another Autoregressive"):
        dist.kl(independent)


# --- estimates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "kind"), [(3 * 2, "exact"), (3 * 2 - 1, "estimate")])
def test_entropy_of_more_than_autoregressive_exact_is_estimated(framework, limit, kind):
    # There are 3 · 2 combinations of all parts but the last.
    policy = build_policy(MultiDiscrete([3, 2, 100]), framework, autoregressive_exact=limit)
    obs = random_observations(rows=4)

    evaluation = policy.evaluate({"obs": obs, "raw_action": policy.act(obs).raw_action})

    assert distribution(policy, obs).entropy_kind == kind
    assert evaluation.entropy_kind == kind


def test_entropy_and_kl_have_no_closed_form_above_the_limit(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework, autoregressive_exact=1)
    dist = distribution(policy, random_observations(rows=4))

    with pytest.raises(NoClosedFormError, match=r"action: entropy .* entropy_estimate\(\)"):
        dist.entropy()
    with pytest.raises(NoClosedFormError, match=r"stored_dist\(params\)\.kl over"):
        dist.kl(dist)


each_last_part = pytest.mark.parametrize(
    "last_part", [Discrete(3), Box(-1, 1, (1,))], ids=["choice", "float"]
)


@each_last_part
def test_entropy_estimate_is_unbiased(framework, last_part):
    policy = build_policy(Tuple([Discrete(3), Discrete(2), last_part]), framework)
    obs = random_observations(rows=1)

    exact = to_numpy(distribution(policy, obs).entropy())[0]
    many_obs = np.repeat(obs, 20_000, axis=0)
    estimates = to_numpy(distribution(policy, many_obs).entropy_estimate())

    standard_error = estimates.std() / np.sqrt(20_000)
    assert abs(estimates.mean() - exact) < 4 * standard_error + 1e-4


def gradient_of_mean(policy, compute):
    """Return the gradient of the mean of `compute()` by all weights but the value's, as one
    vector.
    """
    variables = policy.model.trainable_variables(as_dict=True)
    variables = [variable for name, variable in variables.items() if "value" not in name]
    if policy.framework == "torch":
        gradients = torch.autograd.grad(compute().mean(), variables)
    else:
        with tf.GradientTape() as tape:
            mean = tf.reduce_mean(compute())
        gradients = tape.gradient(mean, variables)
    return np.concatenate([np.ravel(gradient) for gradient in gradients])


@each_last_part
def test_gradient_of_entropy_estimate_is_unbiased(framework, last_part):
    space = Tuple([Discrete(3), Discrete(2), last_part])
    # Weights with which later parts depend much on earlier ones.
    policy = build_policy(space, framework, seed=7, scale=1.3)
    obs = random_observations(rows=1)
    many_obs = np.repeat(obs, 50_000, axis=0)

    exact = gradient_of_mean(policy, lambda: distribution(policy, obs).entropy())
    estimate = gradient_of_mean(policy, lambda: distribution(policy, many_obs).entropy_estimate())

    # It would be 20 % off if the estimate forgot how draws change the entropies of later parts.
    assert np.linalg.norm(estimate - exact) < 0.06 * np.linalg.norm(exact)


def test_entropy_estimate_keeps_the_last_sample(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework)
    dist = distribution(policy, random_observations(rows=50))
    sample = dist.sample()
    logp = to_numpy(dist.sampled_action_logp())

    dist.entropy_estimate()  # draws as well

    assert dist.last_sample is sample
    np.testing.assert_array_equal(to_numpy(dist.sampled_action_logp()), logp)


# --- stored actions -------------------------------------------------------------------------------


@pytest.fixture
def old_and_new(framework):
    """A policy that acted, and one in which the parts depend otherwise on earlier ones."""
    old = build_policy(MultiDiscrete([3, 2, 4]), framework)
    new = build_policy(MultiDiscrete([3, 2, 4]), framework)
    rng = np.random.default_rng(5)
    weights = old.model.get_weights()
    for name, weight in weights.items():
        if name.startswith("conditionals"):
            weights[name] = weight + rng.normal(0, 0.5, weight.shape).astype(weight.dtype)
    new.model.set_weights(weights)
    return old, new


def evaluate_old_actions(old, new, obs):
    """Return the old policy's step, and the new policy's evaluation of it."""
    step = old.act(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    return step, new.evaluate(batch)


def test_evaluate_estimates_kl_from_the_old_policy(old_and_new):
    old, new = old_and_new
    obs = random_observations(rows=1)

    _, evaluation = evaluate_old_actions(old, new, np.repeat(obs, 20_000, axis=0))

    kl = to_numpy(evaluation.kl)
    _, p = exact_probabilities(old, old.action_space, obs)
    _, q = exact_probabilities(new, new.action_space, obs)
    exact = (p * np.log(p / q)).sum()
    standard_error = kl.std() / np.sqrt(20_000)
    assert exact > 20 * standard_error  # so that the policies differ enough for this test
    assert abs(kl.mean() - exact) < 4 * standard_error


def test_probability_ratios_have_mean_one(old_and_new):
    old, new = old_and_new
    obs = np.repeat(random_observations(rows=1), 20_000, axis=0)

    step, evaluation = evaluate_old_actions(old, new, obs)

    ratio = np.exp(to_numpy(evaluation.logp) - step.logp)
    standard_error = ratio.std() / np.sqrt(20_000)
    assert ratio.mean() == pytest.approx(1.0, abs=4 * standard_error)


# --- gradients of sampled actions -----------------------------------------------------------------


@pytest.mark.parametrize("records", [True, False], ids=["recorded", "not recorded"])
def test_logp_of_sample_has_gradient_of_stored_action_in_torch(records):
    policy = build_policy(Tuple([Discrete(3), Discrete(2)]), "torch")
    obs = random_observations(rows=6)
    weights = policy.model.trainable_variables(as_dict=True)
    weight = weights["conditionals.actions"]  # connects the second choice with the first

    dist = distribution(policy, obs)
    with torch.set_grad_enabled(records):  # while drawing only
        sample = dist.sample()
    stored_action = torch.stack(sample, dim=1)

    [actual] = torch.autograd.grad(dist.logp(sample).sum(), [weight])
    new_logp = distribution(policy, obs).logp(stored_action)
    [expected] = torch.autograd.grad(new_logp.sum(), [weight])
    assert expected.any()  # so that 0 would not pass
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("records", [True, False], ids=["recorded", "not recorded"])
def test_logp_of_sample_has_gradient_of_stored_action_in_tf(records):
    policy = build_policy(Tuple([Discrete(3), Discrete(2)]), "tf")
    obs = random_observations(rows=6)
    weights = policy.model.trainable_variables(as_dict=True)
    weight = weights["conditionals.actions"]  # connects the second choice with the first

    with tf.GradientTape() as tape:
        dist = distribution(policy, obs)
        if records:
            sample = dist.sample()
        else:
            with tape.stop_recording():  # while drawing only
                sample = dist.sample()
        logp = dist.logp(sample)
    stored_action = tf.stack(sample, axis=1)
    with tf.GradientTape() as new_tape:
        new_logp = distribution(policy, obs).logp(stored_action)

    expected = new_tape.gradient(new_logp, weight)
    assert to_numpy(expected).any()  # so that 0 would not pass
    np.testing.assert_allclose(tape.gradient(logp, weight), expected, rtol=1e-4, atol=1e-5)


# --- forms of actions -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["array", "tensor", "dict in another order"])
def test_action_has_the_same_logp_in_any_form(framework, form):
    space = Dict({"aim": Box(-1, 1, (1,)), "go": Discrete(3)})
    dist = distribution(build_policy(space, framework), random_observations(rows=5))
    sample = dist.sample()
    flat = np.column_stack([to_numpy(sample["aim"]), to_numpy(sample["go"])])
    forms = {
        "array": flat,
        "tensor": to_tensor(flat, framework),
        "dict in another order": {"go": sample["go"], "aim": sample["aim"]},
    }

    logp = to_numpy(dist.logp(forms[form]))

    np.testing.assert_allclose(logp, to_numpy(dist.sampled_action_logp()), rtol=1e-5)


def test_logp_of_action_with_missing_column_is_an_error(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework)
    dist = distribution(policy, random_observations(rows=5))

    with pytest.raises(ModelContractError, match=r"shape \(5, 2\), found \(5, 1\)"):
        dist.logp(to_tensor(np.zeros((5, 1), np.int64), framework))


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "lowest_loss"),
    [(SMALL_MODEL, np.log(3)), ({"fcnet_hiddens": [6]}, 2 * np.log(3))],
    ids=["autoregressive", "independent"],
)
def test_equal_pairs_are_learned_if_parts_depend_on_each_other(config, lowest_loss):
    # 120 pairs (0, 0), (1, 1) or (2, 2), each with probability 1/3: the lowest loss is log 3.
    # Independent choices give each pair only 1/3 · 1/3, and the loss 2 log 3.
    pairs = np.repeat([[0, 0], [1, 1], [2, 2]], 40, axis=0)
    obs_space = Box(-1, 1, (3,), np.float32)
    policy = rlcatalog.build(obs_space, Tuple([Discrete(3), Discrete(3)]), config, "torch")
    optimiser = torch.optim.Adam(policy.model.parameters(), lr=0.08)

    for _ in range(80):
        batch = {"obs": np.zeros((120, 3), np.float32), "raw_action": pairs}
        loss = -policy.evaluate(batch).logp.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    assert loss.item() == pytest.approx(lowest_loss, abs=0.05)
