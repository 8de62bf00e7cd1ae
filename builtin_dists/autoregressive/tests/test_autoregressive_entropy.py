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
from rlcatalog.errors import ModelContractError, NoClosedFormError, StaleOutputError

pytestmark = pytest.mark.twins

#: Three choices.
TRIPLE = Tuple([Discrete(3), Discrete(2), Discrete(3)])
#: Spaces, and the paths of the parts that are drawn first.
each_space = pytest.mark.parametrize(
    ("space", "order"),
    [
        (TRIPLE, []),
        (
            Dict(
                {
                    "keys": MultiBinary(2),
                    "more": Tuple([Discrete(2, start=4), MultiDiscrete([3, 2])]),
                }
            ),
            ["action['more'][1][0]", "action['more'][0]"],
        ),
        (MultiDiscrete([[2, 3], [2, 2]]), ["action[1, 1]"]),
    ],
    ids=["Tuple", "nested", "MultiDiscrete"],
)


# --- draws ----------------------------------------------------------------------------------------


def draw_many(policy, obs, actions, draws=20_000):
    """Draw actions for one observation, and return the index of each among all actions."""
    step = policy.act(np.repeat(obs, draws, axis=0))
    is_equal = (step.raw_action[:, None] == actions).all(axis=2)
    assert is_equal.any(axis=1).all()
    return step, is_equal.argmax(axis=1)


def pvalue_of_fit(counts, probabilities):
    """Return the p-value of a chi-squared test; rare actions count as one."""
    expected = counts.sum() * probabilities
    is_rare = expected <= 5
    counts = np.append(counts[~is_rare], counts[is_rare].sum())
    expected = np.append(expected[~is_rare], expected[is_rare].sum())
    return stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue


@pytest.mark.grid
@each_space
def test_draws_are_as_frequent_as_probable(framework, space, order):
    policy = build_policy(space, framework, autoregressive_order=order)
    obs = random_observations(rows=1)
    actions, probabilities = exact_probabilities(policy, space, obs, order)

    _, drawn = draw_many(policy, obs, actions)

    counts = np.bincount(drawn, minlength=len(actions))
    assert pvalue_of_fit(counts, probabilities) > 1e-3
    # The test can tell: independent parts with the same frequencies do not fit.
    independent = np.ones(len(actions))
    for column in range(actions.shape[1]):
        for value in np.unique(actions[:, column]):
            has_value = actions[:, column] == value
            independent[has_value] *= probabilities[has_value].sum()
    assert pvalue_of_fit(counts, independent) < 1e-6


@pytest.mark.grid
@each_space
def test_logp_of_draws_is_that_of_equations(framework, space, order):
    policy = build_policy(space, framework, autoregressive_order=order)
    obs = random_observations(rows=1)
    actions, probabilities = exact_probabilities(policy, space, obs, order)

    step, drawn = draw_many(policy, obs, actions, draws=1000)

    np.testing.assert_allclose(np.exp(step.logp), probabilities[drawn], rtol=1e-3)


def most_likely_part_by_part(actions, probabilities):
    """Return the action whose every part is the most likely one, given the parts before."""
    is_possible = np.ones(len(actions), bool)
    for part in range(actions.shape[1]):
        totals = np.bincount(actions[:, part], weights=probabilities * is_possible)
        is_possible &= actions[:, part] == totals.argmax()
    return actions[is_possible][0]


def test_deterministic_sample_is_most_likely_part_by_part(framework):
    policy = build_policy(TRIPLE, framework, seed=5, scale=1.5)
    obs = random_observations(rows=60)

    chosen = policy.act(obs, explore=False).raw_action

    is_not_most_likely = 0
    for row in range(60):
        actions, probabilities = exact_probabilities(policy, TRIPLE, obs[row : row + 1])
        np.testing.assert_array_equal(chosen[row], most_likely_part_by_part(actions, probabilities))
        is_not_most_likely += (chosen[row] != actions[probabilities.argmax()]).any()
    # As the docstring says, the most likely action is sometimes another one.
    assert 0 < is_not_most_likely < 30


# --- exact sums -----------------------------------------------------------------------------------


@pytest.mark.grid
@each_space
def test_entropy_is_sum_over_all_actions(framework, space, order):
    policy = build_policy(space, framework, autoregressive_order=order)
    obs = random_observations(rows=5)

    dist = distribution(policy, obs)
    entropy = to_numpy(dist.entropy())

    assert dist.entropy_kind == "exact"
    for row in range(5):
        _, p = exact_probabilities(policy, space, obs[row : row + 1], order)
        assert entropy[row] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-4)


@pytest.mark.grid
@each_space
def test_kl_is_sum_over_all_actions(framework, space, order):
    policy = build_policy(space, framework, autoregressive_order=order, seed=0)
    other_policy = build_policy(space, framework, autoregressive_order=order, seed=1)
    obs = random_observations(rows=5)

    dist = distribution(policy, obs)
    other = distribution(other_policy, obs)
    kl = to_numpy(dist.kl(other))
    reverse_kl = to_numpy(other.kl(dist))

    for row in range(5):
        _, p = exact_probabilities(policy, space, obs[row : row + 1], order)
        _, q = exact_probabilities(other_policy, space, obs[row : row + 1], order)
        assert kl[row] == pytest.approx((p * np.log(p / q)).sum(), abs=1e-4)
        assert reverse_kl[row] == pytest.approx((q * np.log(q / p)).sum(), abs=1e-4)


@each_space
def test_kl_of_same_distribution_is_zero(framework, space, order):
    policy = build_policy(space, framework, autoregressive_order=order)
    dist = distribution(policy, random_observations(rows=5))

    np.testing.assert_allclose(to_numpy(dist.kl(dist)), 0, atol=1e-6)


def test_kl_of_another_order_is_an_error(framework):
    obs = random_observations(rows=2)
    dist = distribution(build_policy(TRIPLE, framework), obs)
    other = distribution(build_policy(TRIPLE, framework, autoregressive_order=[2]), obs)

    with pytest.raises(ModelContractError, match="same parts in the same order") as caught:
        dist.kl(other)

    assert "found action[0], action[1], action[2] here and" in str(caught.value)


def test_kl_with_independent_parts_is_an_error(framework):
    dist = distribution(build_policy(TRIPLE, framework), random_observations(rows=2))
    independent = dist.layout.plain(dist.inputs[:, : dist.layout.params], None)

    with pytest.raises(ModelContractError, match="expects another AutoregressiveDistribution"):
        dist.kl(independent)


# --- estimates ------------------------------------------------------------------------------------

#: Has 3 · 2 combinations of all parts but the last.
SIX_PREFIXES = Tuple([Discrete(3), Discrete(2), Discrete(100)])


@pytest.mark.parametrize(("limit", "kind"), [(6, "exact"), (5, "estimate")])
def test_entropy_of_more_than_autoregressive_exact_is_estimated(framework, limit, kind):
    policy = build_policy(SIX_PREFIXES, framework, autoregressive_exact=limit)
    obs = random_observations(rows=4)
    step = policy.act(obs)

    evaluation = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )

    assert distribution(policy, obs).entropy_kind == kind
    assert evaluation.entropy_kind == kind
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-5)


def test_entropy_and_kl_have_no_closed_form_above_the_limit(framework):
    policy = build_policy(SIX_PREFIXES, framework, autoregressive_exact=5)
    dist = distribution(policy, random_observations(rows=4))

    with pytest.raises(NoClosedFormError, match=r"action: entropy .* entropy_estimate\(\)"):
        dist.entropy()
    with pytest.raises(NoClosedFormError, match=r"action: kl .* stored_dist\(params\)\.kl over"):
        dist.kl(dist)


def mean_and_gradient(policy, compute):
    """Return the mean of `compute()`, and its gradient by all weights but the value's, as one
    vector.
    """
    variables = policy.model.trainable_variables(as_dict=True)
    variables = [variable for name, variable in variables.items() if "value" not in name]
    if policy.framework == "torch":
        mean = compute().mean()
        gradients = torch.autograd.grad(mean, variables, allow_unused=True)
    else:
        with tf.GradientTape() as tape:
            mean = tf.reduce_mean(compute())
        gradients = tape.gradient(mean, variables)
    flat = []
    for gradient, variable in zip(gradients, variables, strict=True):
        flat.append(np.zeros(variable.shape) if gradient is None else to_numpy(gradient))
    return float(to_numpy(mean)), np.concatenate([np.ravel(gradient) for gradient in flat])


each_last_part = pytest.mark.parametrize(
    "last_part", [Discrete(3), Box(-1, 1, (1,))], ids=["choices", "mixed"]
)


@pytest.mark.grid
@each_last_part
def test_entropy_estimate_is_unbiased(framework, last_part):
    space = Tuple([Discrete(3), Discrete(2), last_part])
    policy = build_policy(space, framework, seed=7, scale=1.3)
    obs = random_observations(rows=1)
    many_obs = np.repeat(obs, 6000, axis=0)

    exact = float(to_numpy(distribution(policy, obs).entropy())[0])
    estimates = [
        to_numpy(distribution(policy, many_obs).entropy_estimate()).mean() for _ in range(8)
    ]

    standard_error = np.std(estimates, ddof=1) / np.sqrt(8)
    assert standard_error < 0.02
    assert exact == pytest.approx(np.mean(estimates), abs=max(5 * standard_error, 1e-4))


@pytest.mark.grid
@each_last_part
def test_gradient_of_entropy_estimate_is_unbiased(framework, last_part):
    space = Tuple([Discrete(3), Discrete(2), last_part])
    policy = build_policy(space, framework, seed=7, scale=1.3)
    obs = random_observations(rows=1)
    many_obs = np.repeat(obs, 6000, axis=0)

    def estimate():
        return distribution(policy, many_obs).entropy_estimate()

    def sum_along_draws():
        # Forgets the effect of a draw on the entropies of later parts.
        dist = distribution(policy, many_obs)
        return policy.stored_dist(dist.params_given(dist.sample())).entropy()

    _, exact = mean_and_gradient(policy, lambda: distribution(policy, obs).entropy())
    estimates = [mean_and_gradient(policy, estimate)[1] for _ in range(8)]
    _, naive = mean_and_gradient(policy, sum_along_draws)

    error = np.linalg.norm(np.mean(estimates, axis=0) - exact) / np.linalg.norm(exact)
    naive_error = np.linalg.norm(naive - exact) / np.linalg.norm(exact)
    assert error < 0.06
    assert naive_error > 0.2


def test_sampled_action_logp_needs_a_sample(framework):
    dist = distribution(build_policy(TRIPLE, framework), random_observations(rows=50))

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before"):
        dist.sampled_action_logp()


def test_entropy_estimate_keeps_the_last_sample(framework):
    dist = distribution(build_policy(TRIPLE, framework), random_observations(rows=50))
    sample = dist.sample()
    logp = to_numpy(dist.sampled_action_logp())

    dist.entropy_estimate()  # draws as well

    assert dist.last_sample is sample
    np.testing.assert_array_equal(to_numpy(dist.sampled_action_logp()), logp)


def test_samples_are_new(framework):
    dist = distribution(build_policy(TRIPLE, framework), random_observations(rows=50))

    samples = zip(dist.sample(), dist.sample(), strict=True)

    assert any((to_numpy(first) != to_numpy(second)).any() for first, second in samples)


# --- stored actions -------------------------------------------------------------------------------


@pytest.fixture
def old_and_new(framework):
    """A policy that acted, and one in which the parts depend otherwise on earlier ones."""
    space = Tuple([Discrete(3), Discrete(2), Discrete(4)])
    old = build_policy(space, framework)
    new = build_policy(space, framework)
    rng = np.random.default_rng(5)
    weights = old.model.get_weights()
    for name, weight in weights.items():
        if name.startswith("conditionals"):
            weights[name] = weight + rng.normal(0, 0.5, weight.shape).astype(weight.dtype)
    new.model.set_weights(weights)
    return old, new


def exact_kl(policy, other_policy, obs):
    space = policy.action_space
    _, p = exact_probabilities(policy, space, obs)
    _, q = exact_probabilities(other_policy, space, obs)
    return (p * np.log(p / q)).sum()


def evaluate_old_actions(old, new, obs):
    """Return the old policy's step, and the new policy's evaluation of it."""
    step = old.act(obs)
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    return step, new.evaluate(batch)


def test_stored_parameters_score_the_stored_action(framework, old_and_new):
    old, _ = old_and_new
    step = old.act(random_observations(rows=100))

    stored = old.stored_dist(to_tensor(step.dist_inputs, framework))
    logp = stored.logp(to_tensor(step.raw_action, framework))

    np.testing.assert_allclose(to_numpy(logp), step.logp, atol=1e-5)


def test_evaluate_estimates_kl_from_the_old_policy(old_and_new):
    old, new = old_and_new
    obs = random_observations(rows=1)

    _, evaluation = evaluate_old_actions(old, new, np.repeat(obs, 20_000, axis=0))

    kl = to_numpy(evaluation.kl)
    expected = exact_kl(old, new, obs)
    standard_error = kl.std() / np.sqrt(20_000)
    assert expected > 0.05
    assert standard_error < 0.05 * expected
    assert kl.mean() == pytest.approx(expected, abs=4 * standard_error)
    assert kl.min() >= -1e-6


def test_old_inputs_under_new_weights_would_hide_the_kl(old_and_new):
    # Only the conditionals have changed, which such a distribution takes from the new model.
    old, new = old_and_new
    obs = random_observations(rows=1)

    old_inputs = distribution(old, obs).inputs
    naive_kl = new.dist_class(old_inputs, new.model).kl(distribution(new, obs))

    assert abs(float(to_numpy(naive_kl)[0])) < 1e-6
    assert exact_kl(old, new, obs) > 0.05


def test_probability_ratios_have_mean_one(old_and_new):
    old, new = old_and_new
    obs = np.repeat(random_observations(rows=1), 20_000, axis=0)

    step, evaluation = evaluate_old_actions(old, new, obs)

    ratio = np.exp(to_numpy(evaluation.logp) - step.logp)
    standard_error = ratio.std() / np.sqrt(20_000)
    assert ratio.mean() == pytest.approx(1.0, abs=4 * standard_error)


def test_stored_parameters_are_not_its_inputs(framework):
    policy = build_policy(TRIPLE, framework)
    step = policy.act(random_observations(rows=3))

    # 3 + 2 + 3 logits, without the context of 3 · 4 hidden units.
    with pytest.raises(ModelContractError, match=r"takes inputs \[B, 20\], found shape \(3, 8\)"):
        policy.dist_class(to_tensor(step.dist_inputs, framework), policy.model)


# --- gradients of sampled actions -----------------------------------------------------------------


def flatten_sample(sample, framework):
    return to_tensor(np.stack([to_numpy(part) for part in sample], axis=1), framework)


@pytest.mark.parametrize("records", [True, False], ids=["recorded", "not recorded"])
def test_logp_of_sample_has_gradient_of_stored_action_in_torch(records):
    policy = build_policy(TRIPLE, "torch")
    obs = random_observations(rows=6)
    weights = dict(policy.model.named_parameters())

    dist = distribution(policy, obs)
    with torch.set_grad_enabled(records):
        sample = dist.sample()
    logp = dist.logp(sample)
    stored_logp = distribution(policy, obs).logp(flatten_sample(sample, "torch"))

    assert logp.requires_grad
    gradients = torch.autograd.grad(logp.sum(), list(weights.values()), allow_unused=True)
    expected = torch.autograd.grad(stored_logp.sum(), list(weights.values()), allow_unused=True)
    check_equal_gradients(list(weights), gradients, expected)


@pytest.mark.parametrize("records", [True, False], ids=["recorded", "not recorded"])
def test_logp_of_sample_has_gradient_of_stored_action_in_tf(records):
    policy = build_policy(TRIPLE, "tf")
    obs = random_observations(rows=6)
    weights = policy.model.trainable_variables(as_dict=True)

    with tf.GradientTape() as tape:
        dist = distribution(policy, obs)
        if records:
            sample = dist.sample()
        else:
            with tape.stop_recording():
                sample = dist.sample()
        logp = dist.logp(sample)
    with tf.GradientTape() as stored_tape:
        stored_logp = distribution(policy, obs).logp(flatten_sample(sample, "tf"))

    gradients = tape.gradient(logp, list(weights.values()))
    expected = stored_tape.gradient(stored_logp, list(weights.values()))
    check_equal_gradients(list(weights), gradients, expected)


def check_equal_gradients(names, gradients, expected):
    """Check that all weights but the value's have the expected gradient, seven of them not zero."""
    nonzero = 0
    for name, gradient, expected_gradient in zip(names, gradients, expected, strict=True):
        if "value" in name:
            assert gradient is None, name
            assert expected_gradient is None, name
            continue
        expected_array = to_numpy(expected_gradient)
        np.testing.assert_allclose(
            to_numpy(gradient), expected_array, rtol=1e-4, atol=1e-5, err_msg=name
        )
        nonzero += expected_array.any()
    assert nonzero >= 7


# --- forms of actions -----------------------------------------------------------------------------


@pytest.fixture
def nested_policy(framework):
    """A policy over a Dict of a Box `aim`, a choice `go` and a Tuple `pair` of choices."""
    pair = Tuple([Discrete(2), MultiDiscrete([2, 2])])
    return build_policy(Dict({"go": Discrete(3), "aim": Box(-1, 1, (2,)), "pair": pair}), framework)


def flatten_nested(sample):
    parts = [sample["aim"], sample["go"], *sample["pair"]]  # keys in alphabetical order
    return np.concatenate([to_numpy(part).reshape(5, -1) for part in parts], axis=1)


@pytest.mark.parametrize("form", ["array", "tensor", "dict in another order"])
def test_action_has_the_same_logp_in_any_form(framework, nested_policy, form):
    obs = random_observations(rows=5)
    dist = distribution(nested_policy, obs)
    sample = dist.sample()
    flat = flatten_nested(sample)
    forms = {
        "array": flat,
        "tensor": to_tensor(flat, framework),
        "dict in another order": {key: sample[key] for key in ("pair", "go", "aim")},
    }

    new_dist = distribution(nested_policy, obs)
    logp = to_numpy(new_dist.logp(forms[form]))
    params = to_numpy(new_dist.params_given(forms[form]))

    assert set(sample) == {"go", "aim", "pair"}
    np.testing.assert_allclose(logp, to_numpy(dist.logp(sample)), rtol=1e-5)
    np.testing.assert_allclose(params, to_numpy(dist.params_given(sample)), rtol=1e-5)


def test_logp_of_action_with_missing_column_is_an_error(framework, nested_policy):
    dist = distribution(nested_policy, random_observations(rows=5))

    with pytest.raises(ModelContractError, match=r"actions of shape \(5, 6\), found \(5, 5\)"):
        dist.logp(to_tensor(np.zeros((5, 5), np.float32), framework))


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [(SMALL_MODEL, np.log(3)), ({"fcnet_hiddens": [6]}, 2 * np.log(3))],
    ids=["autoregressive", "independent"],
)
def test_equal_pairs_are_learned_if_parts_depend_on_each_other(config, expected):
    # 120 pairs (0, 0), (1, 1) or (2, 2): together log 3 nats, as independent choices 2 log 3.
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

    assert loss.item() == pytest.approx(expected, abs=0.05)
