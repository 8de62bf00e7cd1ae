"""The Beta distribution within bounds: densities, samples, gradients and extreme inputs."""

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
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog_bounded.tf import Beta as TFBeta


def make_beta(framework, first, second, low=0.0, high=1.0, dtype="float32", rows=1):
    """Create equal rows of a distribution with the given concentrations, each above 1."""
    concentrations = np.concatenate([np.atleast_1d(first), np.atleast_1d(second)])
    inputs = np.log(np.expm1(concentrations - 1))  # the inverse of 1 + softplus(input)
    return framework.load("Beta")(
        framework.tensor(np.tile(inputs, (rows, 1)), dtype), low=low, high=high
    )


def test_concentrations_are_one_plus_softplus_of_inputs(framework):
    inputs = np.float32([[0, 2, -1, 5]])  # two first concentrations, two second ones

    dist = framework.load("Beta")(inputs)

    expected = 1 + np.log1p(np.exp([[[0, 2], [-1, 5]]]))
    np.testing.assert_allclose(dist.concentration, expected, rtol=1e-5)


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (2.0, 2.5)])
@pytest.mark.parametrize(("first", "second"), [(3.0, 1.5), (1.1, 1.1), (10.0, 31.0)])
def test_logp_matches_scipy(framework, low, high, first, second):
    values = np.linspace(low, high, 22)[1:-1].astype(np.float32)
    dist = make_beta(framework, first, second, low, high, rows=20)

    logp = dist.logp(framework.tensor(values))

    # The density of the values between the bounds, where RLlib forgets to divide by high - low.
    expected = stats.beta.logpdf(
        values.astype(np.float64), first, second, loc=low, scale=high - low
    )
    np.testing.assert_allclose(logp, expected, rtol=1e-4, atol=1e-4)


def test_logp_is_sum_over_values(framework):
    low = np.float32([-2, 10])
    high = np.float32([2, 30])
    dist = make_beta(framework, first=[3, 2], second=[1.5, 4], low=low, high=high)

    logp = dist.logp(framework.tensor([[1.0, 15.0]], "float32"))

    expected = stats.beta.logpdf([1, 15], [3, 2], [1.5, 4], loc=[-2, 10], scale=[4, 20]).sum()
    np.testing.assert_allclose(logp, [expected], rtol=1e-5)


def test_entropy_is_sum_of_scipys(framework):
    dist = make_beta(framework, first=[3, 2], second=[1.5, 4], low=0.0, high=4.0)

    expected = stats.beta.entropy([3, 2], [1.5, 4], scale=4).sum()
    np.testing.assert_allclose(dist.entropy(), [expected], rtol=1e-4)


def test_kl_is_sum_of_torch_distributions(framework):
    p = make_beta(framework, first=[3, 2], second=[1.5, 4])
    q = make_beta(framework, first=[2, 5], second=[2, 1.5])

    exact_p = torch.distributions.Beta(torch.tensor([3.0, 2]), torch.tensor([1.5, 4]))
    exact_q = torch.distributions.Beta(torch.tensor([2.0, 5]), torch.tensor([2, 1.5]))
    expected = torch.distributions.kl_divergence(exact_p, exact_q).sum()
    np.testing.assert_allclose(p.kl(q), [expected], rtol=1e-4)


def test_kl_with_other_bounds_is_an_error(framework):
    dist = make_beta(framework, first=3, second=2, low=0.0)
    other = make_beta(framework, first=3, second=2, low=-1.0)

    with pytest.raises(ModelContractError, match="same bounds"):
        dist.kl(other)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("form", ["array", "float64", "column"])
def test_logp_takes_actions_in_any_form(framework, method, form):
    dist = make_beta(framework, first=[3, 2], second=[1.5, 4], rows=7)
    sample = getattr(dist, method)()
    array = framework.numpy(sample)
    forms = {
        "array": array,
        "float64": array.astype(np.float64),
        "column": array.reshape(7, 2, 1),
    }

    logp = framework.numpy(dist.logp(forms[form]))

    assert logp.shape == (7,)
    np.testing.assert_allclose(logp, dist.logp(sample), rtol=1e-6)


def test_logp_takes_one_flat_number_per_row(framework):
    dist = make_beta(framework, first=3, second=1.5, rows=2)

    logp = dist.logp(np.float32([0.2, 0.4]))

    np.testing.assert_allclose(logp, stats.beta.logpdf([0.2, 0.4], 3, 1.5), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    half_inputs = framework.tensor([[0.3, -0.7]], dtype)
    same_inputs = framework.numpy(half_inputs)  # as float32

    logp = framework.load("Beta")(half_inputs).logp([[0.4]])

    expected = framework.load("Beta")(same_inputs).logp([[0.4]])
    np.testing.assert_array_equal(framework.numpy(logp), framework.numpy(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_extreme_half_precision_gives_finite_numbers(framework, dtype):
    dist = framework.load("Beta")(framework.tensor([[3e4, -3e4]], dtype))

    assert framework.all_finite(dist.sample())
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.logp([[1.0]]))


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(1.001, 2), (3, 1.7), (1.7, 6)])
def test_samples_follow_the_density(framework, first, second):
    framework.seed(1)
    dist = make_beta(framework, first, second, low=10.0, high=30.0, rows=10_000)

    samples = framework.numpy(dist.sample())[:, 0].astype(np.float64)

    exact = stats.beta(first, second, loc=10, scale=20)
    assert stats.kstest(samples, exact.cdf).pvalue > 1e-3
    # The test can tell: a slightly larger concentration does not fit.
    wrong = stats.beta(1.1 * first, second, loc=10, scale=20)
    assert stats.kstest(samples, wrong.cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(1)
    dist = make_beta(framework, first=[3, 2], second=[1.5, 4], rows=10_000)

    samples = framework.numpy(dist.sample())

    # The standard error of the correlation is 1 / sqrt(10,000).
    assert abs(np.corrcoef(samples[:, 0], samples[:, 1])[0, 1]) < 4 / 100


def test_samples_are_new_inside_tf_function():
    assert_samples_are_new_in_tf_function(TFBeta)


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFBeta(inputs)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp()

    last_sample, logp = sample_twice(tf.zeros([6, 2]))

    concentration = 1 + np.log(2)  # 1 + softplus(0)
    expected = stats.beta.logpdf(last_sample[:, 0], concentration, concentration)
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=1e-3)


def test_deterministic_sample_is_the_mean(framework):
    dist = make_beta(framework, first=3, second=2, low=10.0, high=30.0)

    expected = 10 + 3 / (3 + 2) * (30 - 10)
    np.testing.assert_allclose(dist.deterministic_sample(), [[expected]], rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "second"), [(1.05, 61), (61, 1.05)], ids=["close to low", "close to high"]
)
def test_stored_sample_has_exact_logp_close_to_bounds(framework, first, second):
    framework.seed(2)
    dist = make_beta(framework, first, second, low=-2.0, high=2.0, rows=500)
    stored_action = framework.numpy(dist.sample()).copy()

    logp = framework.numpy(dist.logp(stored_action))

    np.testing.assert_array_equal(logp, framework.numpy(dist.sampled_action_logp()))
    is_inside = (np.abs(stored_action) < 2)[:, 0]  # on the bounds, SciPy's is infinite
    actions = stored_action[is_inside, 0].astype(np.float64)
    expected = stats.beta.logpdf(actions, first, second, loc=-2, scale=4)
    np.testing.assert_allclose(logp[is_inside], expected, rtol=1e-3, atol=1e-2)


# --- extreme inputs -------------------------------------------------------------------------------


@each_extreme_bounds
@each_way_to_sample
def test_samples_of_extreme_inputs_are_within_bounds(framework, method, low, high):
    dist = framework.load("Beta")(EXTREME_PAIRS, low=low, high=high)

    assert_samples_are_within(framework, dist, method, low, high)


@each_extreme_bounds
@each_place_of_an_action
def test_logp_of_extreme_inputs_is_finite(framework, place, low, high):
    dist = framework.load("Beta")(EXTREME_PAIRS, low=low, high=high)

    assert_logp_is_finite(framework, dist, place, low, high)


@each_extreme_bounds
def test_entropy_and_kl_of_extreme_inputs_are_finite(framework, low, high):
    cls = framework.load("Beta")
    dist = cls(EXTREME_PAIRS, low=low, high=high)
    reversed_dist = cls(EXTREME_PAIRS[::-1].copy(), low=low, high=high)

    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.entropy_estimate())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.kl(reversed_dist))
    assert (framework.numpy(dist.kl(reversed_dist)) > -1e-3).all()


def entropy(dist):
    return dist.entropy()


def kl_from_reversed(dist):
    return dist.kl(type(dist)(EXTREME_PAIRS[::-1].copy()))


@pytest.mark.parametrize("quantity", [logp_at_one, logp_of_rsample, entropy, kl_from_reversed])
def test_gradients_of_extreme_inputs_are_finite(framework, quantity):
    cls = framework.load("Beta")

    gradient = framework.gradient(lambda x: quantity(cls(x)), at=EXTREME_PAIRS)

    assert np.isfinite(gradient).all()


# --- gradients ------------------------------------------------------------------------------------


def test_gradient_of_rsample_averages_to_that_of_the_mean(framework):
    framework.seed(3)
    cls = framework.load("Beta")
    inputs = np.float32([[0.5, -1]])

    # The deterministic sample is the mean.
    [of_mean] = framework.gradient(lambda x: cls(x).deterministic_sample(), at=inputs)
    many_inputs = np.tile(inputs, (20_000, 1))
    of_samples = framework.gradient(lambda x: cls(x).rsample(), at=many_inputs)

    standard_error = of_samples.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(of_samples.mean(axis=0) - of_mean) < 4 * standard_error + 1e-5).all()
    assert (np.abs(of_mean) > 20 * standard_error).all()  # so that 0 would not pass


def test_sample_has_no_gradient(framework):
    cls = framework.load("Beta")
    inputs = np.zeros((1, 2), np.float32)

    assert not framework.has_gradient(lambda x: cls(x).sample(), at=inputs)


# --- through the catalog --------------------------------------------------------------------------


def test_affine_action_bounds_change_no_bounded_values(framework):
    box = spaces.Box(-0.5, 3, (2, 3), np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "beta", "action_bounds": "affine"}
    policy = build(spaces.Discrete(3), box, config, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    np.testing.assert_array_equal(step.action.reshape(4, 6), step.raw_action)
    assert all(action in box for action in step.action)


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((2, 3), 6)], ids=str)
def test_output_shape_is_two_concentrations_per_value(framework, shape, width):
    box = spaces.Box(-0.5, 3, shape, np.float32)

    assert framework.load("Beta").required_model_output_shape(box, {}) == 2 * width


def test_unbounded_box_is_an_error(framework):
    box = spaces.Box(np.float32([[0], [-np.inf]]), np.float32([[1], [1]]))

    with pytest.raises(UnsupportedSpaceError, match=r"needs finite bounds.*at \[1, 0\]") as caught:
        framework.load("Beta").required_model_output_shape(box, {})

    assert str(caught.value).startswith("action: Beta")


def test_discrete_space_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="needs a Box of floats, found Discrete"):
        framework.load("Beta").required_model_output_shape(spaces.Discrete(3), {})


def test_equal_bounds_are_an_error(framework):
    with pytest.raises(ConfigError, match="low must be below high"):
        make_beta(framework, first=3, second=2, low=1.0, high=1.0)


def test_catalog_prefers_diag_gaussian(framework):
    box = spaces.Box(-0.5, 3, (2, 3), np.float32)

    dist_class, _ = ModelCatalog.get_action_dist(box, {}, framework=framework.name)

    assert dist_class.__name__ == "DiagGaussian"
