"""Draws, entropies and divergences against exhaustive sums; what is stored is scored under the
stored prefix.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import stats

import rlcatalog
from rlcatalog.errors import ModelContractError, NoClosedFormError, StaleOutputError

pytestmark = pytest.mark.twins

SPACES = {
    "tuple": (Tuple([Discrete(3), Discrete(2), Discrete(3)]), []),
    "nested": (
        Dict(
            {"keys": MultiBinary(2), "more": Tuple([Discrete(2, start=4), MultiDiscrete([3, 2])])}
        ),
        [2, 1],
    ),
    "multi_discrete": (MultiDiscrete([[2, 3], [2, 2]]), ["action[1, 1]"]),
}


def probabilities(ar, policy, space, obs, order):
    """The probability of every raw action, from the paper's equations."""
    raw, paths = ar.all_actions(space), [path for path, *_ in ar.leaves(space)]
    named = [paths[entry] if isinstance(entry, int) else entry for entry in order]
    reference = ar.Reference(policy.model.get_weights(), space, named)
    return raw, np.exp(reference.logp(np.repeat(obs, len(raw), axis=0), raw))


@pytest.mark.grid
@pytest.mark.parametrize("name", SPACES)
def test_draws_are_as_frequent_as_they_are_likely(ar, framework, name):
    space, order = SPACES[name]
    policy = ar.build(space, framework, {"autoregressive_order": order})
    obs, rows = ar.observations(1), 20_000
    raw, p = probabilities(ar, policy, space, obs, order)
    step = policy.act(np.repeat(obs, rows, axis=0))
    places = (step.raw_action[:, None] == raw).all(axis=2).argmax(axis=1)
    likely = p * rows > 5
    counts = np.append(np.bincount(places, minlength=len(raw))[likely], np.sum(~likely[places]))
    expected = np.append(p[likely], p[~likely].sum()) * rows
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-3
    np.testing.assert_allclose(np.exp(step.logp), p[places], rtol=1e-3)
    # Independent draws with the right marginals would be found out.
    marginals = np.prod(
        [[p[raw[:, c] == row[c]].sum() for c in range(raw.shape[1])] for row in raw], axis=1
    )
    assert (
        stats.chisquare(
            counts[:-1], marginals[likely] / marginals[likely].sum() * counts[:-1].sum()
        ).pvalue
        < 1e-6
    )


def test_the_deterministic_sample_is_the_likeliest_value_of_each_part_given_those_before(
    ar, framework
):
    space, order = SPACES["tuple"]
    policy, obs = ar.build(space, framework, seed=5, scale=1.5), ar.observations(60)
    found = policy.act(obs, explore=False).raw_action
    differs = 0
    for row, best in zip(obs, found, strict=True):
        raw, p = probabilities(ar, policy, space, row[None], order)
        greedy: list[int] = []
        for part in range(3):
            begins = (raw[:, :part] == greedy).all(axis=1)
            greedy.append(
                int(
                    np.argmax(
                        [p[begins & (raw[:, part] == v)].sum() for v in range(int(space[part].n))]
                    )
                )
            )
        np.testing.assert_array_equal(best, greedy)
        differs += bool(np.any(raw[p.argmax()] != greedy))
    assert 0 < differs < 30  # the likeliest action is sometimes another one, as the docstring says


@pytest.mark.grid
@pytest.mark.parametrize("name", SPACES)
def test_entropy_and_kl_are_the_sums_over_all_actions(ar, framework, name):
    space, order = SPACES[name]
    policies = [
        ar.build(space, framework, {"autoregressive_order": order}, seed=seed) for seed in (0, 1)
    ]
    obs = ar.observations(5)
    first, second = (ar.dist_of(policy, obs) for policy in policies)
    assert first.entropy_kind == "exact"
    entropy, kl, back = (ar.array(x) for x in (first.entropy(), first.kl(second), second.kl(first)))
    for row in range(5):
        (_, p), (_, q) = (
            probabilities(ar, policy, space, obs[row : row + 1], order) for policy in policies
        )
        assert entropy[row] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-4)
        assert kl[row] == pytest.approx((p * np.log(p / q)).sum(), abs=1e-4)
        assert back[row] == pytest.approx((q * np.log(q / p)).sum(), abs=1e-4)
    np.testing.assert_allclose(ar.array(first.kl(first)), 0, atol=1e-6)


def test_more_combinations_than_autoregressive_exact_are_estimated(ar, framework):
    space = Tuple([Discrete(3), Discrete(2), Discrete(100)])
    for exact, kind in ((6, "exact"), (5, "estimate")):
        policy, obs = (
            ar.build(space, framework, {"autoregressive_exact": exact}),
            ar.observations(4),
        )
        dist = ar.dist_of(policy, obs)
        assert dist.entropy_kind == kind
        step = policy.act(obs)
        batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
        found = policy.evaluate(batch)
        assert found.entropy_kind == kind
        np.testing.assert_allclose(ar.array(found.kl), 0, atol=1e-5)
        if kind == "exact":
            continue
        with pytest.raises(
            NoClosedFormError, match=r"action: entropy is summed over .*; use entropy_estimate\(\)"
        ):
            dist.entropy()
        with pytest.raises(
            NoClosedFormError, match=r"kl is summed over .* stored_dist\(params\)\.kl over drawn"
        ):
            dist.kl(dist)


def test_a_divergence_needs_the_same_parts_in_the_same_order(ar, framework):
    space, obs = SPACES["tuple"][0], ar.observations(2)
    one = ar.dist_of(ar.build(space, framework), obs)
    other = ar.dist_of(ar.build(space, framework, {"autoregressive_order": [2]}), obs)
    with pytest.raises(
        ModelContractError,
        match=r"same order, found action\[0\], action\[1\], action\[2\] here and",
    ):
        one.kl(other)
    with pytest.raises(ModelContractError, match="expects another AutoregressiveDistribution"):
        one.kl(one.layout.plain(one.inputs[:, : one.layout.params], None))


def gradient(policy, framework, value):
    """Return a mean, and its gradient with respect to all weights but the value's as one vector."""
    variables = {
        n: v for n, v in policy.model.trainable_variables(as_dict=True).items() if "value" not in n
    }
    if framework == "torch":
        mean = value().mean()
        found = torch.autograd.grad(mean, list(variables.values()), allow_unused=True)
    else:
        with tf.GradientTape() as tape:
            mean = tf.reduce_mean(value())
        found = tape.gradient(mean, list(variables.values()))
    pairs = zip(found, variables.values(), strict=True)
    vector = np.concatenate([np.ravel(np.zeros(v.shape) if g is None else g) for g, v in pairs])
    return float(mean.detach() if framework == "torch" else mean), vector


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["choices", "mixed"])
def test_the_estimated_entropy_is_unbiased_in_value_and_gradient(ar, framework, kind):
    """Against the exact one; an estimate that forgets what a draw does to later parts has another
    gradient.
    """
    space = Tuple(
        [Discrete(3), Discrete(2), Discrete(3) if kind == "choices" else Box(-1, 1, (1,))]
    )
    policy, rows = ar.build(space, framework, seed=7, scale=1.3), 6000
    one = ar.observations(1)
    exact, expected = gradient(policy, framework, lambda: ar.dist_of(policy, one).entropy())
    obs = np.repeat(one, rows, axis=0)

    def along_draws():
        dist = ar.dist_of(policy, obs)
        return policy.stored_dist(dist.params_given(dist.sample())).entropy()

    found = [
        gradient(policy, framework, lambda: ar.dist_of(policy, obs).entropy_estimate())
        for _ in range(8)
    ]
    estimates, gradients = zip(*found, strict=True)
    _, naive = gradient(policy, framework, along_draws)
    error = np.std(estimates, ddof=1) / np.sqrt(8)
    assert exact == pytest.approx(np.mean(estimates), abs=max(5 * error, 1e-4))
    assert error < 0.02
    scale = np.linalg.norm(expected)
    off = np.linalg.norm(np.mean(gradients, axis=0) - expected) / scale
    wrong = np.linalg.norm(naive - expected) / scale
    assert off < 0.06, off
    assert wrong > 0.2


def test_an_estimate_leaves_the_last_sample_as_it_was(ar, framework):
    policy = ar.build(SPACES["tuple"][0], framework)
    dist = ar.dist_of(policy, ar.observations(50))
    with pytest.raises(StaleOutputError, match=r"call sample\(\) before"):
        dist.sampled_action_logp()
    drawn = dist.sample()
    before = ar.array(dist.sampled_action_logp())
    dist.entropy_estimate()
    assert dist.last_sample is drawn
    np.testing.assert_array_equal(ar.array(dist.sampled_action_logp()), before)
    assert any(
        np.any(ar.array(a) != ar.array(b)) for a, b in zip(drawn, dist.sample(), strict=True)
    )


def test_a_stored_action_is_scored_under_the_stored_prefix(ar, framework):
    """KL(old || new) from what was stored, although the new model has other
    conditionals by then.
    """
    space, rows = Tuple([Discrete(3), Discrete(2), Discrete(4)]), 20_000
    old, new = ar.build(space, framework), ar.build(space, framework)
    rng = np.random.default_rng(5)
    weights = {
        n: w + rng.normal(0, 0.5, w.shape).astype(w.dtype) * n.startswith("conditionals")
        for n, w in old.model.get_weights().items()
    }
    new.model.set_weights(weights)
    one = ar.observations(1)
    obs = np.repeat(one, rows, axis=0)
    step = old.act(obs)
    stored = old.stored_dist(ar.tensor(step.dist_inputs, framework))
    np.testing.assert_allclose(
        ar.array(stored.logp(ar.tensor(step.raw_action, framework))), step.logp, atol=1e-5
    )
    found = new.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )
    kl = ar.array(found.kl)
    (_, p), (_, q) = (probabilities(ar, policy, space, one, []) for policy in (old, new))
    exact, error = (p * np.log(p / q)).sum(), kl.std() / np.sqrt(rows)
    assert exact > 0.05
    assert error < 0.05 * exact
    assert kl.mean() == pytest.approx(exact, abs=4 * error)
    assert kl.min() >= -1e-6
    # Rebuilt naively, from the inputs of the whole distribution under the weights of now, nothing
    # seems to have moved.
    inputs = ar.dist_of(old, one).inputs
    naive = new.dist_class(inputs, new.model).kl(ar.dist_of(new, one))
    assert abs(float(ar.array(naive)[0])) < 1e-6
    # Which the line above would not let pass.
    assert abs(float(ar.array(naive)[0]) - exact) > 4 * error
    # The ratio of probabilities, too, is that of old and new.
    ratio = np.exp(ar.array(found.logp) - step.logp)
    assert ratio.mean() == pytest.approx(1.0, abs=4 * ratio.std() / np.sqrt(rows))


def test_what_was_stored_is_not_scored_by_the_whole_distribution(ar, framework):
    policy = ar.build(SPACES["tuple"][0], framework)
    step = policy.act(ar.observations(3))
    with pytest.raises(ModelContractError, match=r"takes inputs \[B, 20\], found shape \(3, 8\)"):
        policy.dist_class(ar.tensor(step.dist_inputs, framework), policy.model)


# --- gradients through what was drawn -------------------------------------------------------------


@pytest.mark.parametrize("pause", [False, True], ids=["recorded", "not recorded"])
def test_a_sample_scored_at_once_has_the_gradient_of_a_stored_one(ar, framework, pause):
    policy, obs = ar.build(SPACES["tuple"][0], framework), ar.observations(6)
    if framework == "torch":
        dist = ar.dist_of(policy, obs)
        with torch.set_grad_enabled(not pause):
            drawn = dist.sample()
        logp = dist.logp(drawn)
        assert logp.requires_grad
        variables = dict(policy.model.named_parameters())
        found = torch.autograd.grad(logp.sum(), list(variables.values()), allow_unused=True)
    else:
        variables = policy.model.trainable_variables(as_dict=True)
        with tf.GradientTape() as tape:
            dist = ar.dist_of(policy, obs)
            if pause:
                with tape.stop_recording():
                    drawn = dist.sample()
            else:
                drawn = dist.sample()
            logp = dist.logp(drawn)
        found = tape.gradient(logp, list(variables.values()))
    raw = np.stack([ar.array(part) for part in drawn], axis=1)
    flat = ar.tensor(raw, framework)
    if framework == "torch":
        expected = torch.autograd.grad(
            ar.dist_of(policy, obs).logp(flat).sum(), list(variables.values()), allow_unused=True
        )
    else:
        with tf.GradientTape() as tape:
            logp = ar.dist_of(policy, obs).logp(flat)
        expected = tape.gradient(logp, list(variables.values()))
    seen = 0
    for name, ours, theirs in zip(variables, found, expected, strict=True):
        assert (ours is None) == (theirs is None) == ("value" in name), name
        if ours is not None:
            np.testing.assert_allclose(
                ar.array(ours), ar.array(theirs), rtol=1e-4, atol=1e-5, err_msg=name
            )
            seen += bool(np.any(ar.array(theirs)))
    assert seen >= 7


def test_all_forms_of_an_action_score_the_same(ar, framework):
    space = Dict(
        {
            "go": Discrete(3),
            "aim": Box(-1, 1, (2,)),
            "pair": Tuple([Discrete(2), MultiDiscrete([2, 2])]),
        }
    )
    policy, obs = ar.build(space, framework), ar.observations(5)
    dist = ar.dist_of(policy, obs)
    drawn = dist.sample()
    assert set(drawn) == {"go", "aim", "pair"}
    expected = ar.array(dist.logp(drawn))
    fresh = ar.dist_of(policy, obs)
    flat = np.concatenate(
        [ar.array(x).reshape(5, -1) for x in (drawn["aim"], drawn["go"], *drawn["pair"])], axis=1
    )
    shuffled = {"pair": drawn["pair"], "go": drawn["go"], "aim": drawn["aim"]}
    for form in (flat, ar.tensor(flat, framework), shuffled):
        np.testing.assert_allclose(ar.array(fresh.logp(form)), expected, rtol=1e-5)
        np.testing.assert_allclose(
            ar.array(fresh.params_given(form)), ar.array(dist.params_given(drawn)), rtol=1e-5
        )
    with pytest.raises(
        ModelContractError, match=r"expected actions of shape \(5, 6\), found \(5, 5\)"
    ):
        fresh.logp(ar.tensor(flat[:, 1:], framework))


def test_it_learns_what_independent_parts_cannot_hold(ar):
    """Maximum likelihood of pairs that always agree: the head reaches log 3 nats, independent parts
    stay at 2 log 3.
    """
    pairs = np.repeat(np.arange(3), 40)[:, None].repeat(2, axis=1)
    obs, found = np.zeros((120, 3), np.float32), {}
    for joint in (True, False):
        policy = rlcatalog.build(
            ar.OBS,
            Tuple([Discrete(3)] * 2),
            {**ar.SMALL, "use_autoregressive": joint} if joint else {"fcnet_hiddens": [6]},
            "torch",
        )
        optimiser = torch.optim.Adam(policy.model.parameters(), lr=0.08)
        for _ in range(80):
            loss = -policy.evaluate({"obs": obs, "raw_action": pairs}).logp.mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        found[joint] = float(loss.detach())
    assert found[True] == pytest.approx(np.log(3), abs=0.05)
    assert found[False] == pytest.approx(2 * np.log(3), abs=0.05)
