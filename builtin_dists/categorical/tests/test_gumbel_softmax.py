"""Relaxed one-hot vectors: density, samples, gradients, and what a mask forbids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import integrate, special, stats

from rlcatalog import SpaceInfo, default_catalog
from rlcatalog.errors import (
    ConfigError,
    ModelContractError,
    NoClosedFormError,
    UnsupportedSpaceError,
)

pytestmark = pytest.mark.twins

#: In seven rows, the second of four values is forbidden.
MASK = np.array([[True, False, True, True]] * 7)


def random_logits(rows=7, n=4, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (rows, n)).astype(np.float32)


def make_gumbel(framework, logits, dtype=None, **options):
    return framework.load("GumbelSoftmax")(framework.tensor(logits, dtype), None, **options)


def make_masked(framework, logits, mask, dtype=None, **options):
    cls = framework.load("GumbelSoftmax")
    return cls(cls.masked(framework.tensor(logits, dtype), framework.tensor(mask)), None, **options)


def exact_gumbel(logits, temperature):
    """Return the distribution of torch.distributions in float64."""
    return torch.distributions.RelaxedOneHotCategorical(
        torch.as_tensor(temperature, dtype=torch.float64),
        logits=torch.from_numpy(np.asarray(logits, np.float64)),
    )


def points_inside(n=4, temperature=1.0):
    """Return seven points inside the simplex, float64 `[7, n]`."""
    torch.manual_seed(0)
    points = exact_gumbel(np.zeros((7, n)), temperature).sample().clamp(1e-8)
    return (points / points.sum(-1, keepdim=True)).numpy()


# --- density --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(
    ("dtype", "near"),
    [("float32", {"rtol": 1e-4, "atol": 1e-4}), ("float64", {"rtol": 1e-10})],
    ids=["float32", "float64"],
)
def test_logp_matches_torch_distributions(framework, temperature, dtype, near):
    logits = random_logits(rows=7, n=4)
    points = points_inside(n=4, temperature=temperature)

    dist = make_gumbel(framework, logits, dtype, temperature=temperature)
    logp = dist.logp(framework.tensor(points.astype(dtype)))

    expected = exact_gumbel(logits, temperature).log_prob(torch.from_numpy(points))
    np.testing.assert_allclose(framework.numpy(logp), expected, **near)


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_density_integrates_to_one(framework, temperature):
    x = (np.arange(20_000) + 0.5) / 20_000
    points = np.stack([x, 1 - x], axis=1)
    dist = make_gumbel(framework, np.tile([0.5, -0.3], (len(x), 1)), temperature=temperature)

    density = np.exp(framework.numpy(dist.logp(framework.tensor(points))))

    assert integrate.trapezoid(density, x) == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("value", range(4))
@pytest.mark.parametrize("form", ["float one-hot", "int one-hot", "value", "column of floats"])
def test_logp_of_one_hot_is_log_probability_of_value(framework, temperature, value, form):
    logits = random_logits(rows=7, n=4)
    one_hot = np.tile(np.eye(4)[value], (7, 1))
    actions = {
        "float one-hot": one_hot.astype(np.float32),
        "int one-hot": one_hot.astype(np.int64),
        "value": np.full(7, value),
        "column of floats": np.full((7, 1), value, np.float32),
    }[form]

    logp = make_gumbel(framework, logits, temperature=temperature).logp(framework.tensor(actions))

    expected = special.log_softmax(logits.astype(np.float64), axis=1)[:, value]
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def test_logp_takes_integers_with_different_values(framework):
    logits = random_logits(rows=7, n=4)
    values = np.array([0, 1, 2, 3, 0, 1, 2])

    logp = make_gumbel(framework, logits).logp(
        framework.tensor(values)
    )  # RLlib expects one-hots here

    expected = special.log_softmax(logits.astype(np.float64), axis=1)[np.arange(7), values]
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def test_logp_on_face_is_its_density_and_probability(framework):
    points = points_inside(n=3, temperature=0.8)
    on_face = np.insert(points, 1, 0.0, axis=1)  # the second of four entries is 0
    logits = random_logits(n=4).astype(np.float64)

    logp = make_gumbel(framework, logits, temperature=0.8).logp(framework.tensor(on_face))

    face_logits = np.delete(logits, 1, axis=1)
    face_density = exact_gumbel(face_logits, 0.8).log_prob(torch.from_numpy(points)).numpy()
    face_logp = special.logsumexp(face_logits, axis=1) - special.logsumexp(logits, axis=1)
    np.testing.assert_allclose(framework.numpy(logp), face_density + face_logp, rtol=1e-10)


def test_logp_agrees_between_frameworks(torch_framework, tf_framework):
    logits = random_logits(n=4)
    points = points_inside(n=4).astype(np.float32)
    points[0] = [0, 0, 1, 0]

    by_torch = torch_framework.numpy(
        make_gumbel(torch_framework, logits, temperature=0.5).logp(points)
    )
    by_tf = tf_framework.numpy(make_gumbel(tf_framework, logits, temperature=0.5).logp(points))

    np.testing.assert_allclose(by_torch, by_tf, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
@pytest.mark.parametrize("shape", [(3,), (7, 3)], ids=str)
def test_logp_of_actions_with_wrong_shape_is_an_error(framework, shape, as_tensor):
    dist = make_gumbel(framework, random_logits(rows=7, n=4))
    actions = np.zeros(shape, np.float32)

    with pytest.raises(ModelContractError, match=r"one-hots \(7, 4\) or values \[7\]") as caught:
        dist.logp(framework.tensor(actions) if as_tensor else actions)

    assert str(caught.value).endswith(f"found shape {shape}.")


def test_entropy_and_kl_have_no_closed_form(framework):
    dist = make_gumbel(framework, random_logits())

    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="use entropy_estimate"):
        dist.entropy()
    with pytest.raises(NoClosedFormError, match="no closed form for its kl"):
        dist.kl(dist)


def test_entropy_estimate_is_unbiased(framework):
    draws = 20_000
    logits = [0.3, -0.2]
    dist = make_gumbel(framework, np.tile(np.float32(logits), (draws, 1)), temperature=1.5)

    estimates = framework.numpy(dist.entropy_estimate())

    x = (np.arange(100_000) + 0.5) / 100_000
    points = torch.from_numpy(np.stack([x, 1 - x], axis=1))
    logp = exact_gumbel(np.tile(logits, (len(x), 1)), 1.5).log_prob(points).numpy()
    exact = -integrate.trapezoid(np.exp(logp) * logp, x)
    standard_error = estimates.std() / np.sqrt(draws)
    assert abs(estimates.mean() - exact) < 4 * standard_error + 1e-3


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
def test_densities_have_one_number_per_row(framework, rows):
    dist = make_gumbel(framework, random_logits(rows))

    for value in [
        dist.logp(dist.sample()),
        dist.logp(framework.tensor(np.zeros(rows, np.int64))),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_have_shape_and_dtype_of_inputs(framework, method, rows):
    dist = make_gumbel(framework, random_logits(rows, n=4))

    sample = getattr(dist, method)()

    assert tuple(sample.shape) == (rows, 4)
    assert sample.dtype == dist.inputs.dtype
    np.testing.assert_array_equal(framework.numpy(dist.last_sample), framework.numpy(sample))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_stored_inputs_give_the_same_logp(framework, method, rows):
    dist = make_gumbel(framework, random_logits(rows))
    stored_action = framework.numpy(getattr(dist, method)()).astype(np.float32)

    restored = make_gumbel(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_action)), framework.numpy(dist.sampled_action_logp())
    )


def test_inputs_may_be_an_array(framework):
    logits = random_logits()
    cls = framework.load("GumbelSoftmax")

    from_array = cls(logits)
    from_tensor = cls(framework.tensor(logits))

    one_hots = framework.numpy(from_array.deterministic_sample())
    np.testing.assert_array_equal(one_hots, framework.numpy(from_tensor.deterministic_sample()))
    np.testing.assert_array_equal(
        framework.numpy(from_array.logp(one_hots)), framework.numpy(from_tensor.logp(one_hots))
    )


def test_raw_actions_are_one_hots(framework):
    assert framework.load("GumbelSoftmax").raw_kind == "onehot"


def test_output_shape_is_number_of_values(framework):
    space = spaces.Discrete(4, start=2)

    assert framework.load("GumbelSoftmax").required_model_output_shape(space) == 4


def test_output_shape_for_multi_binary_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="requires a Discrete space, found MultiBinary"):
        framework.load("GumbelSoftmax").required_model_output_shape(spaces.MultiBinary(3))


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_temperature_must_be_positive_and_finite(framework, temperature):
    with pytest.raises(ConfigError, match="temperature must be positive, found"):
        make_gumbel(framework, random_logits(), temperature=temperature)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_options_contain_temperature_of_config(framework, temperature):
    space = SpaceInfo.read(spaces.Discrete(4), "action")
    config = {"gumbel_softmax_temperature": temperature}

    options = framework.load("GumbelSoftmax").options_for(space, config)

    assert make_gumbel(framework, random_logits(n=4), **options).temperature == temperature


def test_temperature_of_config_reaches_distribution(framework):
    config = {"custom_action_dist": "gumbel_softmax", "gumbel_softmax_temperature": 0.25}

    dist_class, _ = default_catalog().action_dist(spaces.Discrete(4), config, None, framework.name)

    assert dist_class(framework.tensor(random_logits(n=4))).temperature == 0.25


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_samples_are_in_the_simplex(framework, temperature):
    framework.seed(0)
    logits = np.tile(random_logits(rows=1), (20_000, 1))

    samples = framework.numpy(make_gumbel(framework, logits, temperature=temperature).sample())

    assert (samples >= 0).all()
    np.testing.assert_allclose(samples.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_largest_entry_of_samples_follows_categorical(framework, temperature):
    framework.seed(0)
    draws = 20_000
    logits = random_logits(rows=1, n=4)

    dist = make_gumbel(framework, np.tile(logits, (draws, 1)), temperature=temperature)
    samples = framework.numpy(dist.sample())

    counts = np.bincount(samples.argmax(axis=1), minlength=4)
    probabilities = special.softmax(logits[0].astype(np.float64))
    assert stats.chisquare(counts, draws * probabilities).pvalue > 1e-3
    # The test can tell: slightly different logits do not fit.
    wrong = special.softmax(logits[0] + [0.2, 0, 0, 0])
    assert stats.chisquare(counts, draws * wrong).pvalue < 1e-3


def test_samples_are_distributed_as_in_torch_distributions(framework):
    framework.seed(1)
    torch.manual_seed(1)
    logits = np.tile(random_logits(rows=1, n=4), (20_000, 1))

    ours = framework.numpy(make_gumbel(framework, logits, temperature=0.7).sample())
    theirs = exact_gumbel(logits, temperature=0.7).sample().numpy()

    for entry in range(4):
        assert stats.ks_2samp(ours[:, entry], theirs[:, entry]).pvalue > 1e-3
    # The test can tell two entries apart.
    assert stats.ks_2samp(ours[:, 0], ours[:, 1]).pvalue < 1e-3


def test_lower_temperature_comes_closer_to_one_hots(framework):
    framework.seed(2)
    logits = np.zeros((2000, 4), np.float32)

    largest_entry = {}
    for temperature in (0.1, 1.0, 10.0):
        samples = framework.numpy(make_gumbel(framework, logits, temperature=temperature).sample())
        largest_entry[temperature] = samples.max(axis=1).mean()

    assert largest_entry[0.1] > 0.9 > largest_entry[1.0] > 0.45 > largest_entry[10.0]


def test_samples_are_new(framework):
    dist = make_gumbel(framework, random_logits())

    assert not np.array_equal(framework.numpy(dist.sample()), framework.numpy(dist.sample()))


def test_deterministic_sample_is_one_hot_of_most_likely_value(framework):
    logits = random_logits(n=4)

    sample = make_gumbel(framework, logits).deterministic_sample()

    np.testing.assert_array_equal(framework.numpy(sample), np.eye(4)[logits.argmax(axis=1)])


# --- gradients ------------------------------------------------------------------------------------


def rsample(framework, logits, **options):
    """Sample with a fixed seed."""
    framework.seed(3)
    return framework.load("GumbelSoftmax")(logits).rsample(**options)


def test_rsample_has_gradient_of_softmax(framework):
    logits = random_logits(n=4)
    weights = np.arange(4, dtype=np.float32)

    gradient = framework.gradient(
        lambda x: rsample(framework, x) * framework.tensor(weights), at=logits
    )

    # d/dlogit_i of sum_j w_j x_j, where x = softmax(logits + noise), is x_i (w_i - sum_j w_j x_j).
    x = framework.numpy(rsample(framework, framework.tensor(logits))).astype(np.float64)
    expected = x * (weights - (x * weights).sum(axis=1, keepdims=True))
    assert np.abs(gradient).sum() > 0.1
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_straight_through_rsample_keeps_the_gradient(framework):
    logits = random_logits(n=4)
    weights = framework.tensor(np.arange(4, dtype=np.float32))

    relaxed = framework.gradient(lambda x: rsample(framework, x) * weights, at=logits)
    exact = framework.gradient(
        lambda x: rsample(framework, x, straight_through=True) * weights, at=logits
    )

    np.testing.assert_allclose(exact, relaxed, atol=1e-6)


def test_straight_through_rsample_is_one_hot_of_largest_entry(framework):
    logits = framework.tensor(random_logits(n=4))

    relaxed = framework.numpy(rsample(framework, logits))
    one_hot = framework.numpy(rsample(framework, logits, straight_through=True))

    np.testing.assert_array_equal(one_hot, np.eye(4)[relaxed.argmax(axis=1)])


def test_sample_has_no_gradient():
    from rlcatalog_categorical.torch import GumbelSoftmax

    logits = torch.from_numpy(random_logits()).requires_grad_()

    assert GumbelSoftmax(logits).rsample().requires_grad
    assert not GumbelSoftmax(logits).sample().requires_grad


@pytest.mark.parametrize("temperature", [0.4, 2.0])
def test_gradient_of_logp_matches_finite_differences(framework, temperature):
    cls = framework.load("GumbelSoftmax")
    logits = random_logits(rows=3, n=4).astype(np.float64)
    points = points_inside(n=4)[:3]
    points[1] = [0, 1, 0, 0]
    points[2] = [0.25, 0, 0.75, 0]

    def compute(logits):
        return cls(logits, temperature=temperature).logp(framework.tensor(points))

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-6,
    )


@pytest.mark.parametrize("temperature", [0.01, 1.0, 5.0])
def test_gradient_of_entropy_estimate_is_finite(framework, temperature):
    cls = framework.load("GumbelSoftmax")
    large_logits = np.tile(20 * random_logits(), (50, 1))

    gradient = framework.gradient(
        lambda logits: cls(logits, temperature=temperature).entropy_estimate(), at=large_logits
    )

    assert np.isfinite(gradient).all()


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("temperature", [0.1, 1.0, 1000.0])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_masked_entries_are_zero_in_a_million_draws(framework, temperature, dtype):
    framework.seed(4)
    copies = 10**6 // (7 * 4) + 1  # of seven rows with four entries
    mask = np.tile(MASK, (copies, 1))
    # The forbidden entries would be very likely.
    logits = np.where(mask, np.tile(random_logits(), (copies, 1)), 50)

    samples = framework.numpy(
        make_masked(framework, logits, mask, dtype, temperature=temperature).sample()
    )

    assert samples.size >= 10**6
    np.testing.assert_array_equal(samples[~mask], 0)


def test_masked_density_is_that_of_allowed_values(framework):
    logits = random_logits(rows=7, n=4)
    points = points_inside(n=3, temperature=0.6)
    with_zero = np.insert(points, 1, 0.0, axis=1).astype(np.float32)

    dist = make_masked(framework, logits, MASK, temperature=0.6)  # forbids the second of four
    logp = dist.logp(framework.tensor(with_zero))

    allowed_logits = np.delete(logits, 1, axis=1)
    expected = exact_gumbel(allowed_logits, 0.6).log_prob(torch.from_numpy(points))
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-4, atol=1e-4)


def test_masked_logp_of_forbidden_value_is_low(framework):
    dist = make_masked(framework, random_logits(rows=7, n=4), MASK)  # forbids value 1

    assert (framework.numpy(dist.logp(np.full(7, 1))) < -1e38).all()


def test_masked_gradient_is_zero_for_forbidden_values(framework):
    cls = framework.load("GumbelSoftmax")
    points = np.insert(points_inside(n=3), 1, 0.0, axis=1).astype(np.float32)

    def compute(logits):
        return cls(cls.masked(logits, framework.tensor(MASK))).logp(framework.tensor(points))

    gradient = framework.gradient(compute, at=random_logits(rows=7, n=4))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~MASK], 0)


# --- extreme inputs -------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("temperature", [1e-3, 1.0, 50.0])
def test_extreme_logits_give_finite_numbers(framework, dtype, temperature):
    framework.seed(5)
    extremes = [0.0, 1e-6, 1e8, -1e8, 1.1e34, -1.1e34]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    rows = len(logits)

    dist = make_gumbel(framework, logits, dtype, temperature=temperature)

    sample = dist.sample()
    assert np.isfinite(framework.numpy(sample)).all()
    assert np.isfinite(framework.numpy(dist.logp(sample))).all()
    assert np.isfinite(framework.numpy(dist.logp(np.tile([0.5, 0, 0.5], (rows, 1))))).all()
    assert np.isfinite(framework.numpy(dist.entropy_estimate())).all()
    for value in range(3):
        assert np.isfinite(framework.numpy(dist.logp(np.full(rows, value)))).all()


# --- tracing --------------------------------------------------------------------------------------


def test_tf_function_takes_any_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import GumbelSoftmax

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def sample_and_score(inputs):
        dist = GumbelSoftmax(inputs, temperature=0.5)
        first = dist.sample()
        second = dist.sample()
        logp_of_value = dist.logp(tf.argmax(first, axis=-1))
        return first, second, dist.logp(first), logp_of_value

    first, second, logp, logp_of_value = sample_and_score(tf.zeros([100, 4]))

    assert (first.numpy() != second.numpy()).any()
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(logp_of_value, np.log(1 / 4), rtol=1e-5)  # four equal logits
