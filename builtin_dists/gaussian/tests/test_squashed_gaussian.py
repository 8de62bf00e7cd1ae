"""The squashed Gaussian: densities within bounds, samples, gradients and extreme inputs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from dist_frameworks import (
    EXTREME_PAIRS,
    assert_logp_is_finite,
    assert_samples_are_new_in_tf_function,
    assert_samples_are_within,
    each_extreme_bounds,
    each_place_of_an_action,
    each_way_to_sample,
    logp_at_one,
    logp_of_rsample,
)
from scipy import integrate, stats
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from rlcatalog.errors import ConfigError, ModelContractError, NoClosedFormError
from rlcatalog_gaussian.tf import SquashedGaussian as TFSquashed
from rlcatalog_gaussian.torch import SquashedGaussian as TorchSquashed


def make_squashed(framework, means, log_stds, low, high, dtype="float32", **options):
    """Create the distribution of one row or of several; means and log deviations are equally
    long.
    """
    inputs = np.concatenate([np.atleast_2d(means), np.atleast_2d(log_stds)], axis=1)
    cls = framework.load("SquashedGaussian")
    return cls(framework.tensor(inputs, dtype), low=low, high=high, **options)


def exact_logp(values, mean, log_std, low, high):
    """Return log densities by torch.distributions in float64, of one mean and deviation."""
    normal = Normal(torch.tensor(mean).double(), torch.tensor(log_std).double().exp())
    steps = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
    dist = TransformedDistribution(normal, steps)
    return dist.log_prob(torch.tensor(np.asarray(values, np.float64))).numpy()


def test_mean_and_std_are_those_of_the_normal_values(framework):
    inputs = framework.tensor([[0.5, -2, 0, 1]], "float32")  # two means, two log deviations

    dist = framework.load("SquashedGaussian")(inputs, low=-1.0, high=1.0)

    np.testing.assert_allclose(dist.mean, [[0.5, -2]])
    np.testing.assert_allclose(dist.std, np.exp([[0, 1]]), rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 10.0), (-3.0, -2.5)])
@pytest.mark.parametrize(("mean", "log_std"), [(0.7, -1.0), (-1.0, 0.5)])
def test_logp_matches_torch_distributions(framework, low, high, mean, log_std):
    values = np.linspace(low, high, 22)[1:-1].astype(np.float32)
    dist = make_squashed(framework, np.full((20, 1), mean), np.full((20, 1), log_std), low, high)

    logp = dist.logp(framework.tensor(values))

    # RLlib omits the term log((high - low) / 2).
    expected = exact_logp(values, mean, log_std, low, high)
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4)


def test_logp_is_sum_over_values(framework):
    low = np.float32([-2, 10])
    high = np.float32([2, 30])
    dist = make_squashed(framework, means=[0.5, -1], log_stds=[0, 0.3], low=low, high=high)

    logp = dist.logp(framework.tensor([[1.0, 15.0]], "float32"))

    first_logp = exact_logp(1.0, mean=0.5, log_std=0, low=-2, high=2)
    second_logp = exact_logp(15.0, mean=-1, log_std=0.3, low=10, high=30)
    np.testing.assert_allclose(logp, [first_logp + second_logp], rtol=1e-5)


def test_kl_is_that_of_the_normal_values(framework):
    p = make_squashed(framework, means=[0.5, -2], log_stds=[-0.3, 1], low=0.0, high=4.0)
    q = make_squashed(framework, means=[-0.5, 0], log_stds=[0.4, -1], low=0.0, high=4.0)

    normal_p = Normal(torch.tensor([0.5, -2]), torch.tensor([-0.3, 1]).exp())
    normal_q = Normal(torch.tensor([-0.5, 0]), torch.tensor([0.4, -1]).exp())
    expected = torch.distributions.kl_divergence(normal_p, normal_q).sum()
    np.testing.assert_allclose(p.kl(q), [expected], rtol=1e-5)
    np.testing.assert_array_equal(p.multi_kl(q), p.kl(q))


def test_kl_with_other_bounds_is_an_error(framework):
    dist = make_squashed(framework, means=[0], log_stds=[0], low=-1.0, high=1.0)
    other = make_squashed(framework, means=[0], log_stds=[0], low=-2.0, high=1.0)

    with pytest.raises(ModelContractError, match="same bounds"):
        dist.kl(other)


def test_kl_with_other_kind_is_an_error(framework):
    dist = make_squashed(framework, means=[0], log_stds=[0], low=-1.0, high=1.0)

    with pytest.raises(ModelContractError, match="expects another SquashedGaussian"):
        dist.kl(object())


def test_entropy_has_no_closed_form(framework):
    dist = make_squashed(framework, means=[0], log_stds=[0], low=-1.0, high=1.0)

    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="entropy_estimate"):
        dist.entropy()


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(0)
    dist = make_squashed(
        framework, np.full((20_000, 1), 0.3), np.full((20_000, 1), -0.5), low=-1.0, high=3.0
    )

    estimates = framework.numpy(dist.entropy_estimate())

    # The integral of -p log p between the bounds.
    x = np.linspace(-1, 3, 100_001)[1:-1]
    logp = exact_logp(x, mean=0.3, log_std=-0.5, low=-1, high=3)
    exact_entropy = -integrate.trapezoid(np.exp(logp) * logp, x)
    standard_error = estimates.std() / np.sqrt(20_000)
    assert abs(estimates.mean() - exact_entropy) < 4 * standard_error + 1e-4


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("form", ["array", "float64", "column"])
def test_logp_takes_actions_in_any_form(framework, method, form):
    dist = make_squashed(framework, np.zeros((7, 4)), np.zeros((7, 4)), low=-1.0, high=1.0)
    sample = getattr(dist, method)()
    array = framework.numpy(sample)
    forms = {
        "array": array,
        "float64": array.astype(np.float64),
        "column": array.reshape(7, 4, 1),
    }

    logp = framework.numpy(dist.logp(forms[form]))

    assert logp.shape == (7,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-4, atol=1e-4)


def test_logp_takes_one_flat_number_per_row(framework):
    dist = make_squashed(framework, np.zeros((7, 1)), np.zeros((7, 1)), low=-1.0, high=1.0)
    actions = np.linspace(-0.9, 0.9, 7)

    logp = dist.logp(framework.tensor(actions, "float32"))  # RLlib's broadcasts to [B, B]

    expected = exact_logp(actions, mean=0, log_std=0, low=-1, high=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    # Both numbers are exact in half precision.
    dist = make_squashed(framework, [0.5], [-0.25], low=-1.0, high=1.0, dtype=dtype)

    logp = framework.numpy(dist.logp([[0.3]]))

    expected = exact_logp([0.3], mean=0.5, log_std=-0.25, low=-1, high=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_in_half_precision_are_within_bounds(framework, method, dtype):
    means = np.linspace(-3, 3, 100)[:, None]
    dist = make_squashed(framework, means, np.zeros((100, 1)), low=10.0, high=30.0, dtype=dtype)

    sample = getattr(dist, method)()

    assert (framework.numpy(sample) >= 10).all()
    assert (framework.numpy(sample) <= 30).all()
    assert framework.all_finite(dist.logp(sample))


# --- samples --------------------------------------------------------------------------------------


def unsquash(samples, low, high):
    """Return the normal values of samples, in float64."""
    fractions = (samples.astype(np.float64) - low) / (high - low)
    return np.arctanh(np.clip(2 * fractions - 1, -1 + 1e-7, 1 - 1e-7))


@pytest.mark.parametrize(("mean", "log_std"), [(0.5, -0.5), (-3.0, 0.5)])
def test_unsquashed_samples_are_normal(framework, mean, log_std):
    framework.seed(1)
    dist = make_squashed(
        framework, np.full((10_000, 1), mean), np.full((10_000, 1), log_std), low=10.0, high=30.0
    )

    normal_values = unsquash(framework.numpy(dist.sample())[:, 0], low=10, high=30)

    std = np.exp(log_std)
    assert stats.kstest(normal_values, stats.norm(mean, std).cdf).pvalue > 1e-3
    # The test can tell: a slightly larger deviation does not fit.
    assert stats.kstest(normal_values, stats.norm(mean, 1.1 * std).cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(1)
    dist = make_squashed(
        framework, np.zeros((10_000, 2)), np.zeros((10_000, 2)), low=-1.0, high=1.0
    )

    samples = framework.numpy(dist.sample())

    # The standard error of the correlation is 1 / sqrt(10,000).
    assert abs(np.corrcoef(samples[:, 0], samples[:, 1])[0, 1]) < 4 / 100


def test_samples_are_new_inside_tf_function():
    assert_samples_are_new_in_tf_function(TFSquashed, low=-1.0, high=1.0)


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFSquashed(inputs, low=-1.0, high=1.0)
        dist.sample()
        last_sample = dist.sample()
        logp = dist.sampled_action_logp()
        dist.entropy_estimate()  # samples as well, but keeps the last sample
        return last_sample, logp

    last_sample, logp = sample_twice(tf.zeros([6, 2]))

    expected = exact_logp(last_sample.numpy()[:, 0], mean=0, log_std=0, low=-1, high=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=1e-3)


def test_deterministic_sample_is_the_squashed_mean(framework):
    dist = make_squashed(framework, means=[0.5, -2], log_stds=[0, 0], low=10.0, high=30.0)

    expected = 10 + (np.tanh([[0.5, -2]]) + 1) / 2 * (30 - 10)
    np.testing.assert_allclose(dist.deterministic_sample(), expected, rtol=1e-5)


each_bounds = pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-50.0, 100.0)])


@each_bounds
def test_stored_sample_has_same_logp_even_near_bounds(framework, low, high):
    means = np.linspace(-9, 9, 2001)[:, None]  # tanh(9) is almost 1
    dist = make_squashed(framework, means, np.full((2001, 1), -2), low, high)
    stored_action = framework.numpy(dist.sample()).astype(np.float32)

    restored = framework.load("SquashedGaussian")(dist.inputs, low=low, high=high)

    # RLlib's logp of a stored action is NaN where rounding puts it beyond the bounds.
    logp = framework.numpy(restored.logp(framework.tensor(stored_action)))
    np.testing.assert_array_equal(logp, framework.numpy(dist.sampled_action_logp()))
    assert np.isfinite(logp).all()


@each_bounds
def test_logp_near_bounds_is_exact(framework, low, high):
    # From 1e-6 to a tenth of the range above the lower bound, as float32 holds them.
    values = np.float32(low + (high - low) * np.logspace(-6, -1, 50))
    dist = make_squashed(framework, np.full((50, 1), -4), np.full((50, 1), 0.5), low, high)

    logp = dist.logp(framework.tensor(values))

    expected = exact_logp(values, mean=-4, log_std=0.5, low=low, high=high)
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=2e-2)


# --- extreme inputs -------------------------------------------------------------------------------


@each_extreme_bounds
@each_way_to_sample
def test_samples_of_extreme_inputs_are_within_bounds(framework, method, low, high):
    dist = framework.load("SquashedGaussian")(EXTREME_PAIRS, low=low, high=high)

    assert_samples_are_within(framework, dist, method, low, high)


@each_extreme_bounds
@each_place_of_an_action
def test_logp_of_extreme_inputs_is_finite(framework, place, low, high):
    dist = framework.load("SquashedGaussian")(EXTREME_PAIRS, low=low, high=high)

    assert_logp_is_finite(framework, dist, place, low, high)


@each_extreme_bounds
def test_entropy_estimate_and_kl_of_extreme_inputs_are_finite(framework, low, high):
    cls = framework.load("SquashedGaussian")
    dist = cls(EXTREME_PAIRS, low=low, high=high)
    reversed_dist = cls(EXTREME_PAIRS[::-1].copy(), low=low, high=high)

    assert framework.all_finite(dist.entropy_estimate())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.kl(reversed_dist))


def entropy_estimate(dist):
    return dist.entropy_estimate()


def rsample(dist):
    return dist.rsample()


@pytest.mark.parametrize("quantity", [logp_at_one, logp_of_rsample, entropy_estimate, rsample])
def test_gradients_of_extreme_inputs_are_finite(framework, quantity):
    cls = framework.load("SquashedGaussian")

    gradient = framework.gradient(lambda x: quantity(cls(x, low=-1.0, high=1.0)), EXTREME_PAIRS)

    assert np.isfinite(gradient).all()


def test_log_std_is_clipped_as_in_rllib(framework):
    dist = make_squashed(framework, means=[0, 0], log_stds=[-100, 100], low=-1.0, high=1.0)

    np.testing.assert_allclose(dist.log_std, [[-5, 2]])


def test_log_std_is_clipped_to_the_given_limits(framework):
    limits = {"log_std_min": -3.0, "log_std_max": 0.5}

    dist = make_squashed(framework, [0, 0], [-100, 100], low=-1.0, high=1.0, **limits)

    np.testing.assert_allclose(dist.log_std, [[-3, 0.5]])


def test_log_std_min_above_default_max_is_an_error(framework):
    with pytest.raises(ConfigError, match="log_std_min must not be above"):
        make_squashed(framework, means=[0], log_stds=[0], low=-1.0, high=1.0, log_std_min=3.0)


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", [logp_of_rsample, entropy_estimate, rsample])
def test_gradient_with_fixed_noise_passes_gradcheck(quantity):
    inputs = torch.tensor([[0.5, -1, 0, 0.3]], dtype=torch.float64, requires_grad=True)

    def compute(x):
        torch.manual_seed(3)  # the same noise each time
        return quantity(TorchSquashed(x, low=-2.0, high=4.0))

    assert torch.autograd.gradcheck(compute, [inputs])


def test_logp_of_rsample_and_of_its_array_are_exact(framework):
    framework.seed(5)
    inputs = framework.tensor(np.zeros((100, 2), np.float32))
    if framework.name == "torch":
        inputs.requires_grad_()  # a tensor with a gradient is scored in another way

    dist = framework.load("SquashedGaussian")(inputs, low=-1.0, high=1.0)
    sample = dist.rsample()

    expected = exact_logp(framework.numpy(sample)[:, 0], mean=0, log_std=0, low=-1, high=1)
    logp_of_array = dist.logp(framework.numpy(sample))
    np.testing.assert_allclose(framework.numpy(dist.logp(sample)), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(framework.numpy(logp_of_array), expected, rtol=1e-3, atol=1e-3)


def test_saturated_rsample_has_a_gradient(framework):
    cls = framework.load("SquashedGaussian")

    def negative_logp(x):
        dist = cls(x, low=-1.0, high=1.0)
        return -dist.logp(dist.rsample())

    # Two means, two log deviations: tanh(15) is 1 in float32, and tanh(-15) is -1.
    gradient = framework.gradient(negative_logp, at=np.float32([[15, -15, -5, -5]]))

    # An entropy bonus still leads back: d(-logp)/dmean = -2 tanh(u), where u is near the mean.
    np.testing.assert_allclose(gradient[:, :2], [[-2, 2]], rtol=1e-4)


def test_sample_has_no_gradient(framework):
    cls = framework.load("SquashedGaussian")
    inputs = np.zeros((1, 2), np.float32)

    assert not framework.has_gradient(lambda x: cls(x, low=-1.0, high=1.0).sample(), at=inputs)


@pytest.mark.parametrize("method", ["sample", "rsample"])
def test_logp_of_sample_changed_in_place_is_of_new_values(method):
    inputs = torch.zeros(1, 2, requires_grad=True)
    dist = TorchSquashed(inputs, low=-1.0, high=1.0)

    sample = getattr(dist, method)()
    with torch.no_grad():
        sample.fill_(0.5)

    expected = exact_logp([0.5], mean=0, log_std=0, low=-1, high=1)
    np.testing.assert_allclose(dist.logp(sample).detach(), expected, rtol=1e-4)


def test_constants_cached_in_inference_mode_serve_in_training():
    # No other test has these bounds, so that nothing is cached yet.
    with torch.inference_mode():
        TorchSquashed(torch.zeros(2, 4), low=-1.2345, high=6.789).sample()

    inputs = torch.zeros(2, 4, requires_grad=True)
    dist = TorchSquashed(inputs, low=-1.2345, high=6.789)
    dist.logp(torch.zeros(2, 2)).sum().backward()

    assert torch.isfinite(inputs.grad).all()
