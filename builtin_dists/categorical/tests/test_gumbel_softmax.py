"""Relaxed one-hot vectors: density, samples, gradients, and what a mask forbids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import integrate, special, stats

from rlcatalog import default_catalog
from rlcatalog.errors import (
    ConfigError,
    ModelContractError,
    NoClosedFormError,
    UnsupportedSpaceError,
)

pytestmark = pytest.mark.twins


def random_logits(rows=7, n=4, seed=0):
    return np.random.default_rng(seed).normal(0, 1.5, (rows, n)).astype(np.float32)


def make_gumbel(framework, logits, dtype="float32", **options):
    return framework.load("GumbelSoftmax")(framework.tensor(logits, dtype), **options)


def make_masked(framework, logits, mask, dtype="float32", **options):
    cls = framework.load("GumbelSoftmax")
    inputs = cls.masked(framework.tensor(logits, dtype), framework.tensor(mask))
    return cls(inputs, **options)


def exact_gumbel(logits, temperature):
    """Return the distribution of torch.distributions in float64."""
    return torch.distributions.RelaxedOneHotCategorical(
        torch.tensor(temperature, dtype=torch.float64),
        logits=torch.tensor(np.asarray(logits, np.float64)),
    )


# --- density --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-4), ("float64", 1e-10)])
def test_logp_matches_torch_distributions(framework, temperature, dtype, rtol):
    logits = [[0.5, -1.0, 0.0]]
    point = [[0.2, 0.3, 0.5]]

    dist = make_gumbel(framework, logits, dtype, temperature=temperature)
    logp = dist.logp(framework.tensor(point, dtype))

    expected = exact_gumbel(logits, temperature).log_prob(torch.tensor(point, dtype=torch.float64))
    np.testing.assert_allclose(logp, expected, rtol=rtol)


@pytest.mark.parametrize("form", ["float one-hot", "int one-hot", "value", "column of floats"])
def test_logp_of_one_hot_is_log_probability_of_value(framework, form):
    # softmax of [0, log 3] is [1/4, 3/4]
    dist = make_gumbel(framework, [[0, np.log(3)], [0, np.log(3)]], temperature=0.5)
    actions = {
        "float one-hot": np.array([[1, 0], [0, 1]], np.float32),
        "int one-hot": np.array([[1, 0], [0, 1]]),
        "value": np.array([0, 1]),  # RLlib expects one-hots here
        "column of floats": np.array([[0], [1]], np.float32),
    }

    logp = dist.logp(framework.tensor(actions[form]))

    np.testing.assert_allclose(logp, [np.log(1 / 4), np.log(3 / 4)], rtol=1e-5)


def test_logp_of_point_with_zero_is_that_of_its_face(framework):
    # softmax of [0, 0, log 2] is [1/4, 1/4, 1/2]
    dist = make_gumbel(framework, [[0, 0, np.log(2)]], temperature=0.8)

    logp = dist.logp(framework.tensor([[0.3, 0.0, 0.7]], "float32"))

    # The density among the first and the last entry, which are the largest with 1/4 + 1/2.
    face_density = exact_gumbel([[0, np.log(2)]], 0.8).log_prob(
        torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    )
    np.testing.assert_allclose(logp, face_density + np.log(3 / 4), rtol=1e-5)


@pytest.mark.parametrize("shape", [(3,), (7, 3)], ids=str)
def test_logp_of_actions_with_wrong_shape_is_an_error(framework, shape):
    dist = make_gumbel(framework, random_logits(rows=7, n=4))

    with pytest.raises(ModelContractError, match=r"one-hots \(7, 4\) or values \[7\]") as caught:
        dist.logp(np.zeros(shape, np.float32))

    assert str(caught.value).endswith(f"found shape {shape}.")


def test_entropy_and_kl_have_no_closed_form(framework):
    dist = make_gumbel(framework, random_logits())

    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="use entropy_estimate"):
        dist.entropy()
    with pytest.raises(NoClosedFormError, match="no closed form for its kl"):
        dist.kl(dist)


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(0)
    logits = [0.3, -0.2]
    dist = make_gumbel(framework, np.tile(logits, (20_000, 1)), temperature=1.5)

    estimates = framework.numpy(dist.entropy_estimate())

    # The integral of -p log p over the points (x, 1 - x).
    x = (np.arange(100_000) + 0.5) / 100_000
    points = torch.from_numpy(np.stack([x, 1 - x], axis=1))
    logp = exact_gumbel(logits, temperature=1.5).log_prob(points).numpy()
    exact = -integrate.trapezoid(np.exp(logp) * logp, x)
    standard_error = estimates.std() / np.sqrt(20_000)
    assert abs(estimates.mean() - exact) < 4 * standard_error + 1e-3


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_have_shape_and_dtype_of_inputs(framework, method):
    dist = make_gumbel(framework, random_logits(rows=7, n=4))

    sample = getattr(dist, method)()

    assert tuple(sample.shape) == (7, 4)
    assert sample.dtype == dist.inputs.dtype


def test_inputs_may_be_an_array(framework):
    dist = framework.load("GumbelSoftmax")(np.array([[0, 2, 1]], np.float32))

    np.testing.assert_array_equal(dist.deterministic_sample(), [[0, 1, 0]])


def test_raw_actions_are_one_hots(framework):
    assert framework.load("GumbelSoftmax").raw_kind == "onehot"


def test_output_shape_for_multi_binary_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="Discrete space, found MultiBinary"):
        framework.load("GumbelSoftmax").required_model_output_shape(spaces.MultiBinary(3))


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_temperature_must_be_positive_and_finite(framework, temperature):
    with pytest.raises(ConfigError, match="temperature must be positive, found"):
        make_gumbel(framework, random_logits(), temperature=temperature)


@pytest.mark.parametrize("temperature", [0.25, 1.0])
def test_temperature_of_config_reaches_distribution(framework, temperature):
    config = {"custom_action_dist": "gumbel_softmax", "gumbel_softmax_temperature": temperature}

    dist_class, _ = default_catalog().action_dist(
        spaces.Discrete(4), config, framework=framework.name
    )

    assert dist_class(framework.tensor(random_logits(n=4))).temperature == temperature


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_samples_are_in_the_simplex(framework, temperature):
    logits = np.tile(random_logits(rows=1), (20_000, 1))

    samples = framework.numpy(make_gumbel(framework, logits, temperature=temperature).sample())

    assert (samples >= 0).all()
    np.testing.assert_allclose(samples.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 3.0])
def test_largest_entry_of_samples_follows_categorical(framework, temperature):
    framework.seed(0)
    logits = [0, 1, -1, 0.5]

    dist = make_gumbel(framework, np.tile(logits, (20_000, 1)), temperature=temperature)
    largest_entry = framework.numpy(dist.sample()).argmax(axis=1)

    counts = np.bincount(largest_entry)
    assert stats.chisquare(counts, 20_000 * special.softmax(logits)).pvalue > 1e-3
    # The test can tell: slightly different logits do not fit.
    wrong_logits = [0.2, 1, -1, 0.5]
    assert stats.chisquare(counts, 20_000 * special.softmax(wrong_logits)).pvalue < 1e-3


def test_samples_are_distributed_as_in_torch_distributions(framework):
    framework.seed(1)
    torch.manual_seed(1)
    logits = np.tile([0, 1, -1], (20_000, 1))

    ours = framework.numpy(make_gumbel(framework, logits, temperature=0.7).sample())
    theirs = exact_gumbel(logits, temperature=0.7).sample().numpy()

    for entry in (0, 1, 2):
        assert stats.ks_2samp(ours[:, entry], theirs[:, entry]).pvalue > 1e-3
    # The test can tell two entries apart.
    assert stats.ks_2samp(ours[:, 0], ours[:, 1]).pvalue < 1e-3


def test_deterministic_sample_is_one_hot_of_most_likely_value(framework):
    dist = make_gumbel(framework, [[1, 0, 2], [3, 0, 2]])

    np.testing.assert_array_equal(dist.deterministic_sample(), [[0, 0, 1], [1, 0, 0]])


# --- gradients ------------------------------------------------------------------------------------


def rsample(framework, logits, **options):
    """Sample with a fixed seed."""
    framework.seed(3)
    return framework.load("GumbelSoftmax")(logits).rsample(**options)


def test_rsample_has_gradient_of_softmax(framework):
    logits = random_logits(n=4)
    weights = np.array([0, 1, 2, 3], np.float32)

    def weigh_sample(logits):
        return rsample(framework, logits) * framework.tensor(weights)  # the seed is fixed

    gradient = framework.gradient(weigh_sample, at=logits)

    # d/dlogit_i of sum_j w_j x_j, where x = softmax(logits + noise), is x_i (w_i - sum_j w_j x_j).
    x = framework.numpy(rsample(framework, framework.tensor(logits))).astype(np.float64)
    expected = x * (weights - (x * weights).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_straight_through_rsample_keeps_the_gradient(framework):
    logits = random_logits(n=4)
    weights = framework.tensor(np.array([0, 1, 2, 3], np.float32))

    relaxed = framework.gradient(lambda x: rsample(framework, x) * weights, at=logits)
    straight_through = framework.gradient(
        lambda x: rsample(framework, x, straight_through=True) * weights, at=logits
    )

    np.testing.assert_allclose(straight_through, relaxed, atol=1e-6)


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


@pytest.mark.parametrize(
    "point", [[0.2, 0.3, 0.5], [0, 1, 0], [0.25, 0, 0.75]], ids=["inside", "one-hot", "on a face"]
)
def test_gradient_of_logp_matches_finite_differences(framework, point):
    def logp(logits):
        dist = framework.load("GumbelSoftmax")(logits, temperature=0.4)
        return dist.logp(framework.tensor([point], "float64"))

    logits = np.array([[0.5, -1.0, 0.0]])
    actual = framework.gradient(logp, at=logits)
    expected = framework.numeric_gradient(logp, at=logits)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 5.0])
def test_gradient_of_entropy_estimate_is_finite(framework, temperature):
    cls = framework.load("GumbelSoftmax")
    large_logits = np.tile(20 * random_logits(), (50, 1))

    gradient = framework.gradient(
        lambda logits: cls(logits, temperature=temperature).entropy_estimate(), at=large_logits
    )

    assert np.isfinite(gradient).all()


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "temperature"), [("float32", 0.1), ("float16", 1.0), ("bfloat16", 1000.0)]
)
def test_masked_entries_are_zero_in_a_million_draws(framework, dtype, temperature):
    framework.seed(4)
    # The forbidden second entry would be very likely.
    logits = np.tile([0.0, 50.0, 1.0], (10**6, 1))
    mask = np.tile([True, False, True], (10**6, 1))

    dist = make_masked(framework, logits, mask, dtype, temperature=temperature)

    assert (framework.numpy(dist.sample())[:, 1] == 0).all()


def test_masked_density_is_that_of_allowed_values(framework):
    mask = np.array([[True, False, True]])
    dist = make_masked(framework, [[0.5, 2.0, -0.5]], mask, temperature=0.6)

    logp = dist.logp(framework.tensor([[0.3, 0.0, 0.7]], "float32"))

    without_second = exact_gumbel([[0.5, -0.5]], temperature=0.6)
    expected = without_second.log_prob(torch.tensor([[0.3, 0.7]], dtype=torch.float64))
    np.testing.assert_allclose(logp, expected, rtol=1e-4)


def test_masked_logp_of_forbidden_value_is_low(framework):
    dist = make_masked(framework, [[0.5, 2.0, -0.5]], np.array([[True, False, True]]))

    logp_of_index_1 = framework.numpy(dist.logp(framework.tensor([1])))

    assert logp_of_index_1[0] < -1e38


def test_masked_gradient_is_zero_for_forbidden_values(framework):
    cls = framework.load("GumbelSoftmax")
    mask = framework.tensor([[True, False, True]])
    point = framework.tensor([[0.3, 0.0, 0.7]], "float32")

    gradient = framework.gradient(
        lambda logits: cls(cls.masked(logits, mask)).logp(point),
        at=np.array([[0.5, 2.0, -0.5]], np.float32),
    )

    assert np.isfinite(gradient).all()
    assert gradient[0, 1] == 0


# --- extreme inputs, tracing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "temperature"),
    [("float16", 1e-3), ("float16", 50.0), ("bfloat16", 1.0), ("float32", 1e-3), ("float64", 50.0)],
)
def test_extreme_logits_give_finite_numbers(framework, dtype, temperature):
    extremes = [0.0, 1e-6, 1e8, -1e8, 1.1e34, -1.1e34]
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    logits = np.array(list(itertools.product(extremes, repeat=3)))
    dist = make_gumbel(framework, logits, dtype, temperature=temperature)
    point_with_zero = np.tile([0.5, 0, 0.5], (len(logits), 1))
    value_2 = np.full(len(logits), 2)

    sample = dist.sample()

    assert framework.all_finite(sample)
    assert framework.all_finite(dist.logp(sample))
    assert framework.all_finite(dist.logp(point_with_zero))
    assert framework.all_finite(dist.logp(value_2))
    assert framework.all_finite(dist.entropy_estimate())


def test_tf_function_draws_and_scores_new_samples():
    import tensorflow as tf

    from rlcatalog_categorical.tf import GumbelSoftmax

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def sample_and_score(inputs):
        dist = GumbelSoftmax(inputs, temperature=0.5)
        first = dist.sample()
        second = dist.sample()
        logp_of_index = dist.logp(tf.argmax(first, axis=-1))
        return first, second, dist.logp(first), logp_of_index

    first, second, logp, logp_of_index = sample_and_score(tf.zeros([100, 4]))

    assert (first.numpy() != second.numpy()).any()  # each call of sample draws anew
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(logp_of_index, np.log(1 / 4), rtol=1e-5)  # four equal logits
