"""Relaxed one-hots against torch.distributions, numerical integrals and one framework against the
other.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import integrate, special, stats

from rlcatalog.errors import (
    ConfigError,
    ModelContractError,
    NoClosedFormError,
    UnsupportedSpaceError,
)

pytestmark = pytest.mark.twins

N, ROWS, DRAWS = 4, 7, 20_000
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 1.5, (ROWS, N)).astype(np.float32)
MASK = np.array([[True, False, True, True]] * ROWS)


def gumbel(kit, logits=LOGITS, dtype=None, **kwargs):
    return kit.load("GumbelSoftmax")(kit.tensor(logits, dtype), None, **kwargs)


def points(temperature, rows=ROWS, n=N):
    """Draws of torch.distributions, well inside the simplex."""
    torch.manual_seed(0)
    drawn = truth(np.zeros((rows, n)), temperature).sample().clamp(1e-8)
    return (drawn / drawn.sum(-1, keepdim=True)).numpy()


def truth(logits, temperature):
    logits = torch.from_numpy(np.asarray(logits, np.float64))
    return torch.distributions.RelaxedOneHotCategorical(
        torch.as_tensor(temperature, dtype=torch.float64), logits=logits
    )


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_logp_is_the_density_of_torch_distributions(kit, temperature):
    x = points(temperature)
    expected = truth(LOGITS, temperature).log_prob(torch.from_numpy(x))
    found = gumbel(kit, temperature=temperature).logp(kit.tensor(x.astype(np.float32)))
    np.testing.assert_allclose(kit.array(found), expected, rtol=1e-4, atol=1e-4)
    exact = gumbel(kit, LOGITS.astype(np.float64), temperature=temperature).logp(kit.tensor(x))
    np.testing.assert_allclose(kit.array(exact), expected, rtol=1e-10)


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_the_density_integrates_to_one(kit, temperature):
    grid = (np.arange(20_000) + 0.5) / 20_000
    dist = gumbel(kit, np.tile([[0.5, -0.3]], (len(grid), 1)), temperature=temperature)
    density = np.exp(kit.array(dist.logp(kit.tensor(np.stack([grid, 1 - grid], axis=1)))))
    assert integrate.trapezoid(density, grid) == pytest.approx(1, abs=5e-3)


def test_one_hots_have_the_log_probability_of_their_value(kit):
    expected = special.log_softmax(LOGITS.astype(np.float64), axis=1)
    for temperature in (0.1, 1.0, 5.0):
        dist = gumbel(kit, temperature=temperature)
        for value in range(N):
            hots = np.tile(np.eye(N, dtype=np.float32)[value], (ROWS, 1))
            for form in (
                hots,
                hots.astype(np.int64),
                np.full(ROWS, value),
                np.full((ROWS, 1), value, np.float32),
            ):
                np.testing.assert_allclose(
                    kit.array(dist.logp(kit.tensor(form))), expected[:, value], rtol=1e-5
                )


def test_a_face_has_its_own_density_times_the_probability_of_its_values(kit):
    x = points(0.8, n=3)
    on_face = np.insert(x, 1, 0.0, axis=1)
    logits = LOGITS.astype(np.float64)
    rest = np.delete(logits, 1, axis=1)
    expected = truth(rest, 0.8).log_prob(torch.from_numpy(x)).numpy()
    expected = expected + special.logsumexp(rest, axis=1) - special.logsumexp(logits, axis=1)
    found = kit.array(gumbel(kit, logits, temperature=0.8).logp(kit.tensor(on_face)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_integers_are_turned_into_one_hots_where_rllib_forgets_to(kit):
    values = np.array([0, 1, 2, 3, 0, 1, 2])
    expected = special.log_softmax(LOGITS.astype(np.float64), axis=1)[np.arange(ROWS), values]
    np.testing.assert_allclose(kit.array(gumbel(kit).logp(kit.tensor(values))), expected, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_samples_are_points_of_the_simplex_whose_largest_entry_is_categorical(kit, temperature):
    kit.seed(0)
    samples = kit.array(
        gumbel(kit, np.tile(LOGITS[:1], (DRAWS, 1)), temperature=temperature).sample()
    )
    np.testing.assert_allclose(samples.sum(axis=1), 1, rtol=1e-5)
    assert (samples >= 0).all()
    counts = np.bincount(samples.argmax(axis=1), minlength=N)
    assert (
        stats.chisquare(counts, DRAWS * special.softmax(LOGITS[0].astype(np.float64))).pvalue > 1e-3
    )
    # The control.
    assert (
        stats.chisquare(counts, DRAWS * special.softmax(LOGITS[0] + [0.2, 0, 0, 0])).pvalue < 1e-3
    )


def test_samples_are_distributed_as_those_of_torch_distributions(kit):
    kit.seed(1)
    torch.manual_seed(1)
    ours = kit.array(gumbel(kit, np.tile(LOGITS[:1], (DRAWS, 1)), temperature=0.7).sample())
    theirs = truth(np.tile(LOGITS[:1], (DRAWS, 1)), 0.7).sample().numpy()
    for entry in range(N):
        assert stats.ks_2samp(ours[:, entry], theirs[:, entry]).pvalue > 1e-3
    assert stats.ks_2samp(ours[:, 0], ours[:, 1]).pvalue < 1e-3  # the control


def test_a_lower_temperature_comes_closer_to_one_hots(kit):
    kit.seed(2)
    means = []
    for temperature in (0.1, 1.0, 10.0):
        drawn = gumbel(kit, np.zeros((2000, N), np.float32), temperature=temperature).sample()
        means.append(kit.array(drawn).max(axis=1).mean())
    assert means[0] > 0.9 > means[1] > 0.45 > means[2]


def test_gradients_flow_through_rsample_and_not_through_sample(kit):
    weights = np.arange(N, dtype=np.float32)
    weighing = kit.tensor(weights)
    cls = kit.load("GumbelSoftmax")

    def drawn(x, **kwargs):
        kit.seed(3)
        return cls(x).rsample(**kwargs)

    soft = kit.gradient(lambda x: drawn(x) * weighing, LOGITS)
    assert np.abs(soft).sum() > 0.1
    kit.seed(3)
    x = kit.array(gumbel(kit).rsample()).astype(np.float64)
    # Of softmax at temperature 1 with a weight per entry.
    expected = x * (weights - (x * weights).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(soft, expected, atol=1e-5)
    np.testing.assert_allclose(
        kit.gradient(lambda x: drawn(x, straight_through=True) * weighing, LOGITS), soft, atol=1e-6
    )
    hard = kit.array(drawn(kit.tensor(LOGITS), straight_through=True))
    np.testing.assert_array_equal(hard, np.eye(N)[x.argmax(axis=1)])
    assert kit.framework == "tf" or not gumbel(kit, LOGITS).sample().requires_grad


@pytest.mark.parametrize("temperature", [0.4, 2.0])
def test_gradients_of_logp_are_those_of_finite_differences(kit, temperature):
    cls, at = kit.load("GumbelSoftmax"), LOGITS[:3].astype(np.float64)
    x = points(1.0)[:3]
    x[1] = [0, 1, 0, 0]
    x[2] = [0.25, 0, 0.75, 0]

    def value(logits):
        return cls(logits, temperature=temperature).logp(kit.tensor(x))

    np.testing.assert_allclose(kit.gradient(value, at), kit.numeric_gradient(value, at), atol=1e-6)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 5.0])
def test_the_estimate_of_the_entropy_has_finite_gradients(kit, temperature):
    cls = kit.load("GumbelSoftmax")
    logits = np.concatenate([LOGITS * 20] * 50).astype(np.float32)
    found = kit.gradient(lambda x: cls(x, temperature=temperature).entropy_estimate(), logits)
    assert np.isfinite(found).all()


def test_there_is_no_closed_form_and_it_says_so(kit):
    dist = gumbel(kit)
    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="use entropy_estimate"):
        dist.entropy()
    with pytest.raises(NoClosedFormError, match="no closed form for its kl"):
        dist.kl(dist)
    estimate = gumbel(kit, np.tile([[0.3, -0.2]], (DRAWS, 1)), temperature=1.5).entropy_estimate()
    grid = (np.arange(100_000) + 0.5) / 100_000
    pairs = torch.from_numpy(np.stack([grid, 1 - grid], axis=1))
    logp = truth(np.tile([[0.3, -0.2]], (len(grid), 1)), 1.5).log_prob(pairs).numpy()
    exact = -integrate.trapezoid(np.exp(logp) * logp, grid)
    found = kit.array(estimate)
    assert abs(found.mean() - exact) < 4 * found.std() / np.sqrt(DRAWS) + 1e-3


def masked(kit, logits, mask, dtype=None, **kwargs):
    cls = kit.load("GumbelSoftmax")
    return cls(cls.masked(kit.tensor(logits, dtype), kit.tensor(mask)), None, **kwargs)


@pytest.mark.grid
@pytest.mark.parametrize("temperature", [0.1, 1.0, 1000.0])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_under_a_mask_forbidden_entries_are_zero_in_a_million(kit, temperature, dtype):
    kit.seed(4)
    times = 10**6 // (ROWS * N) + 1
    logits, mask = np.tile(np.where(MASK, LOGITS, 50), (times, 1)), np.tile(MASK, (times, 1))
    samples = kit.array(masked(kit, logits, mask, dtype, temperature=temperature).sample())
    np.testing.assert_array_equal(samples[~mask], 0)
    assert samples.size >= 10**6


def test_under_a_mask_the_density_is_that_over_the_allowed_values(kit):
    x = points(0.6, n=3)
    expected = truth(np.delete(LOGITS, 1, axis=1), 0.6).log_prob(torch.from_numpy(x))
    dist = masked(kit, LOGITS, MASK, temperature=0.6)
    whole = np.insert(x, 1, 0.0, axis=1).astype(np.float32)
    np.testing.assert_allclose(
        kit.array(dist.logp(kit.tensor(whole))), expected, rtol=1e-4, atol=1e-4
    )
    assert (kit.array(dist.logp(np.full(ROWS, 1))) < -1e38).all()
    cls = kit.load("GumbelSoftmax")
    found = kit.gradient(
        lambda t: cls(cls.masked(t, kit.tensor(MASK))).logp(kit.tensor(whole)), LOGITS
    )
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[~MASK], 0)


@pytest.mark.parametrize("rows", [1, 7])
def test_nothing_broadcasts(kit, rows):
    dist = gumbel(kit, LOGITS[:rows])
    for draw in (dist.sample, dist.deterministic_sample):
        sample = draw()
        assert tuple(sample.shape) == (rows, N)
        assert sample.dtype == dist.inputs.dtype
        np.testing.assert_array_equal(kit.array(dist.last_sample), kit.array(sample))
        stored = kit.array(sample).astype(np.float32)
        again = gumbel(kit, kit.array(dist.inputs))
        np.testing.assert_array_equal(
            kit.array(again.logp(stored)), kit.array(dist.sampled_action_logp())
        )
    for value in (
        dist.logp(sample),
        dist.entropy_estimate(),
        dist.logp(kit.tensor(np.zeros(rows, np.int64))),
    ):
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype
    assert dist.raw_kind == "onehot"
    assert not np.array_equal(kit.array(dist.sample()), kit.array(dist.sample()))


def test_the_deterministic_sample_is_the_one_hot_of_the_most_likely_value(kit):
    found = kit.array(gumbel(kit).deterministic_sample())
    np.testing.assert_array_equal(found, np.eye(N)[LOGITS.argmax(axis=1)])


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("temperature", [1e-3, 1.0, 50.0])
def test_extreme_logits_give_finite_numbers(kit, dtype, temperature):
    kit.seed(5)
    extremes = [0.0, 1e-6, 1e8, -1e8, 1.1e34, -1.1e34]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    dist = gumbel(kit, logits, dtype, temperature=temperature)
    sample = dist.sample()
    assert np.isfinite(kit.array(sample)).all()
    for value in (
        dist.logp(sample),
        dist.logp(np.tile([0.5, 0, 0.5], (len(logits), 1))),
        dist.entropy_estimate(),
    ):
        assert np.isfinite(kit.array(value)).all()
    for value in range(3):
        assert np.isfinite(kit.array(dist.logp(np.full(len(logits), value)))).all()


def test_the_frameworks_agree(kits):
    x = points(1.0).astype(np.float32)
    x[0] = [0, 0, 1, 0]
    one, other = (kit.array(gumbel(kit, temperature=0.5).logp(x)) for kit in kits)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_wrong_arguments_are_refused(kit):
    for temperature in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="temperature must be positive, found"):
            gumbel(kit, temperature=temperature)
    with pytest.raises(
        ModelContractError, match=r"expected one-hots \(7, 4\) or values \[7\], found shape \(3,\)"
    ):
        gumbel(kit).logp(np.zeros(3, np.int64))  # as they were given, in either framework
    with pytest.raises(
        ModelContractError,
        match=r"expected one-hots \(7, 4\) or values \[7\], found shape \(7, 3\)",
    ):
        gumbel(kit).logp(kit.tensor(np.zeros((7, 3), np.float32)))
    with pytest.raises(
        UnsupportedSpaceError, match="GumbelSoftmax requires a Discrete space, found MultiBinary"
    ):
        gumbel(kit).required_model_output_shape(spaces.MultiBinary(3))
    assert gumbel(kit).required_model_output_shape(spaces.Discrete(4, start=2)) == 4


def test_it_can_be_traced_with_an_unknown_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import GumbelSoftmax

    @tf.function(input_signature=[tf.TensorSpec([None, N], tf.float32)])
    def run(inputs):
        dist = GumbelSoftmax(inputs, temperature=0.5)
        sample = dist.sample()
        return sample, dist.sample(), dist.logp(sample), dist.logp(tf.argmax(sample, axis=-1))

    first, second, logp, hard = run(tf.zeros([100, N]))
    assert (first.numpy() != second.numpy()).any()
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(hard, -np.log(N), rtol=1e-5)
