"""The diagonal Gaussian: densities, samples, gradients and extreme inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from dist_frameworks import assert_samples_are_new_in_tf_function
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import CatalogError, NotServedError, StaleOutputError
from rlcatalog_tf import DiagGaussian as TFGaussian
from rlcatalog_torch import DiagGaussian as TorchGaussian


def make_gaussian(framework, means, log_stds, dtype="float32"):
    """Create the distribution of one row or of several; means and log deviations are equally
    long.
    """
    inputs = np.concatenate([np.atleast_2d(means), np.atleast_2d(log_stds)], axis=1)
    return framework.load("DiagGaussian")(framework.tensor(inputs, dtype))


def test_mean_and_std_are_those_of_the_inputs(framework):
    inputs = framework.tensor([[0.5, -2, 0, 1]], "float32")  # two means, two log deviations

    dist = framework.load("DiagGaussian")(inputs)

    np.testing.assert_allclose(dist.mean, [[0.5, -2]])
    np.testing.assert_allclose(dist.std, np.exp([[0, 1]]), rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_sum_of_normal_log_densities(framework):
    dist = make_gaussian(framework, means=[0.5, -2], log_stds=[0, np.log(3)])

    logp = dist.logp(framework.tensor([[0.7, 1]], "float32"))

    expected = stats.norm.logpdf(0.7, loc=0.5, scale=1) + stats.norm.logpdf(1, loc=-2, scale=3)
    np.testing.assert_allclose(logp, [expected], rtol=1e-5)


def test_entropy_is_sum_of_normal_entropies(framework):
    dist = make_gaussian(framework, means=[0.5, -2], log_stds=[0, np.log(3)])

    expected = stats.norm.entropy(scale=1) + stats.norm.entropy(scale=3)
    np.testing.assert_allclose(dist.entropy(), [expected], rtol=1e-5)


def test_kl_matches_torch_distributions(framework):
    p = make_gaussian(framework, means=[0.5, -2], log_stds=[-0.3, 1])
    q = make_gaussian(framework, means=[-0.5, 0], log_stds=[0.4, -1])

    exact_p = torch.distributions.Normal(torch.tensor([0.5, -2]), torch.tensor([-0.3, 1]).exp())
    exact_q = torch.distributions.Normal(torch.tensor([-0.5, 0]), torch.tensor([0.4, -1]).exp())
    expected = torch.distributions.kl_divergence(exact_p, exact_q).sum()
    np.testing.assert_allclose(p.kl(q), [expected], rtol=1e-5)


def test_multi_entropy_and_multi_kl_have_one_component(framework):
    p = make_gaussian(framework, means=[0.5, -2], log_stds=[-0.3, 1])
    q = make_gaussian(framework, means=[-0.5, 0], log_stds=[0.4, -1])

    np.testing.assert_array_equal(p.multi_entropy(), p.entropy())
    np.testing.assert_array_equal(p.multi_kl(q), p.kl(q))


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [[0.5, 1.5], [[0.5], [1.5]]], ids=["flat", "column"])
def test_logp_takes_one_number_per_row_flat_or_as_column(framework, actions):
    dist = make_gaussian(framework, means=[[0], [1]], log_stds=[[0], [0]])

    # RLlib's logp broadcasts flat actions to [B, B], and sums.
    logp = dist.logp(framework.tensor(actions, "float32"))

    np.testing.assert_allclose(logp, stats.norm.logpdf([0.5, 0.5]), rtol=1e-5)


def test_logp_of_sample_for_box_of_rank_zero_is_one_per_row(framework):
    box = spaces.Box(-1, 1, (), np.float32)
    dist_class, _ = ModelCatalog.get_action_dist(box, {}, framework=framework.name)

    dist = dist_class(np.zeros((7, 2), np.float32))  # standard normal
    sample = framework.numpy(dist.sample())[:, 0]

    # RLlib removes the axis of such samples, and its logp then broadcasts to [B, B].
    assert sample.shape == (7,)
    np.testing.assert_allclose(dist.logp(sample), stats.norm.logpdf(sample), rtol=1e-5)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_logp_takes_actions_of_any_dtype(framework, dtype, as_tensor):
    dist = make_gaussian(framework, means=[0, 0], log_stds=[0, 0])
    actions = np.array([[1, -2]], dtype)

    logp = dist.logp(framework.tensor(actions) if as_tensor else actions)

    np.testing.assert_allclose(logp, [stats.norm.logpdf([1, -2]).sum()], rtol=1e-5)
    assert framework.numpy(logp).dtype == np.float32  # that of the inputs


def test_logp_takes_actions_in_the_shape_of_their_box(framework):
    dist = make_gaussian(framework, means=np.zeros(6), log_stds=np.zeros(6))

    logp = dist.logp(framework.tensor([[[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]]], "float32"))

    expected = stats.norm.logpdf([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]).sum()
    np.testing.assert_allclose(logp, [expected], rtol=1e-5)


def test_logp_of_actions_with_wrong_size_is_an_error(framework):
    dist = make_gaussian(framework, means=np.zeros((4, 2)), log_stds=np.zeros((4, 2)))

    with pytest.raises((RuntimeError, tf.errors.InvalidArgumentError)):
        dist.logp(np.zeros(4, np.float32))


def test_inputs_may_be_an_array(framework):
    dist = framework.load("DiagGaussian")(np.array([[0.5, 1]], np.float32))

    np.testing.assert_allclose(dist.mean, [[0.5]])
    np.testing.assert_allclose(dist.log_std, [[1]])


def test_float64_keeps_its_precision(framework):
    dist = make_gaussian(framework, means=[0.1], log_stds=[0.2], dtype="float64")

    logp = framework.numpy(dist.logp(framework.tensor([[0.3]], "float64")))

    np.testing.assert_allclose(logp, [stats.norm.logpdf(0.3, 0.1, np.exp(0.2))], rtol=1e-12)
    assert framework.numpy(dist.sample()).dtype == np.float64
    assert framework.numpy(dist.entropy()).dtype == np.float64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_half_precisions_give_finite_numbers(framework, dtype, method):
    # Pairs of mean and log standard deviation.
    inputs = framework.tensor([[0, 0], [3e4, 50], [-3e4, -50], [1e-6, 12], [1, -12]], dtype)

    dist = framework.load("DiagGaussian")(inputs)
    sample = getattr(dist, method)()

    assert dist.inputs.dtype == inputs.dtype
    for value in [sample, dist.logp(sample), dist.entropy(), dist.kl(dist)]:
        assert framework.all_finite(value)


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "log_std"), [(0.5, -1.5), (-3.0, 0.5)])
def test_samples_are_normal(framework, mean, log_std):
    framework.seed(0)
    dist = make_gaussian(framework, np.full((10_000, 1), mean), np.full((10_000, 1), log_std))

    samples = framework.numpy(dist.sample())[:, 0]

    std = np.exp(log_std)
    assert stats.kstest(samples, stats.norm(mean, std).cdf).pvalue > 1e-3
    # The test can tell: a slightly larger deviation does not fit.
    assert stats.kstest(samples, stats.norm(mean, 1.1 * std).cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(0)
    dist = make_gaussian(framework, means=np.zeros((10_000, 2)), log_stds=np.zeros((10_000, 2)))

    samples = framework.numpy(dist.sample())

    between_values = np.corrcoef(samples[:, 0], samples[:, 1])[0, 1]
    between_rows = np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]
    # The standard error of both is 1 / sqrt(10,000).
    assert abs(between_values) < 4 / 100
    assert abs(between_rows) < 4 / 100


def test_samples_are_new_inside_tf_function():
    assert_samples_are_new_in_tf_function(TFGaussian)


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFGaussian(inputs)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp()

    last_sample, logp = sample_twice(tf.zeros([6, 2]))  # standard normal

    np.testing.assert_allclose(logp, stats.norm.logpdf(last_sample[:, 0]), rtol=1e-4)


def test_sampled_action_logp_needs_a_sample(framework):
    dist = make_gaussian(framework, means=[0], log_stds=[0])

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before"):
        dist.sampled_action_logp()


@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
def test_logp_of_sample_is_that_of_the_stored_number(framework, mean):
    # Engines store float32 numbers and score these later: the ratio must start at one.
    dist = make_gaussian(framework, np.full((500, 1), mean), np.full((500, 1), -10.0))

    sample = dist.sample()
    stored_numbers = framework.numpy(sample).astype(np.float64)[:, 0]

    expected = stats.norm.logpdf(stored_numbers, mean, np.exp(-10.0))
    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-3, atol=1e-3)


def test_logp_of_sample_changed_in_place_is_of_new_values():
    dist = TorchGaussian(torch.zeros(1, 2))  # standard normal

    sample = dist.sample()
    sample.fill_(0.5)

    np.testing.assert_allclose(dist.logp(sample), [stats.norm.logpdf(0.5)], rtol=1e-5)


def test_deterministic_sample_is_the_mean(framework):
    dist = make_gaussian(framework, means=[0.5, -2], log_stds=[0, 1])

    np.testing.assert_array_equal(dist.deterministic_sample(), [[0.5, -2]])


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -1e-6]


def assert_all_finite(framework, means, log_stds):
    """Check samples, densities, entropy and KL divergence for all pairs."""
    pairs = list(itertools.product(means, log_stds))
    dist = framework.load("DiagGaussian")(framework.tensor(pairs, "float32"))
    for draw in [dist.sample, dist.deterministic_sample] * 3:
        sample = draw()
        assert framework.all_finite(sample)
        assert framework.all_finite(dist.logp(sample))
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))


def test_extreme_means_give_finite_numbers(framework):
    assert_all_finite(framework, means=EXTREMES, log_stds=[0.0, 1.0, -1.0, -20.0, 20.0])


def test_tiny_and_huge_scales_give_finite_numbers(framework):
    assert_all_finite(
        framework, means=[0.0, 1.0, -1e8, 1.1e34], log_stds=[-40.0, -80.0, 40.0, 60.0]
    )


def test_scales_beyond_float32_give_finite_numbers(framework):
    assert_all_finite(framework, means=EXTREMES, log_stds=[-100.0, 100.0, -1.1e34, 1.1e34])


def test_logp_with_tiny_scale_is_exact(framework):
    dist = make_gaussian(framework, means=[0], log_stds=[-30])
    action = np.float32([[2e-13]])  # about two standard deviations

    logp = dist.logp(framework.tensor(action))

    expected = stats.norm.logpdf(action.astype(np.float64), 0, np.exp(-30.0))[0]
    np.testing.assert_allclose(logp, expected, rtol=1e-4)


# --- gradients ------------------------------------------------------------------------------------


def test_rsample_has_gradients_of_mean_and_log_std(framework):
    inputs = np.float32([[0.5, -2, 0, 1]])  # two means, two log deviations

    def rsample(x):
        framework.seed(5)  # the same noise in both calls
        return framework.load("DiagGaussian")(x).rsample()

    gradient = framework.gradient(rsample, at=inputs)

    # x = mean + std · noise, hence dx/dmean = 1 and dx/dlog_std = x - mean.
    sample = framework.numpy(rsample(framework.tensor(inputs)))
    np.testing.assert_allclose(gradient[:, :2], [[1, 1]])
    np.testing.assert_allclose(gradient[:, 2:], sample - [[0.5, -2]], rtol=1e-4, atol=1e-5)


def test_entropy_estimate_has_gradient_of_entropy(framework):
    cls = framework.load("DiagGaussian")
    inputs = np.float32([[0.5, -2, 0, 1]])  # two means, two log deviations

    gradient = framework.gradient(lambda x: cls(x).entropy_estimate(), at=inputs)

    # For any noise, the derivative by a mean is 0, and by a log standard deviation 1.
    np.testing.assert_allclose(gradient, [[0, 0, 1, 1]], atol=1e-4)


def test_sample_has_no_gradient(framework):
    cls = framework.load("DiagGaussian")
    inputs = np.zeros((1, 2), np.float32)

    assert not framework.has_gradient(lambda x: cls(x).sample(), at=inputs)


def test_logp_of_last_sample_has_gradient_as_of_any_action():
    inputs = torch.zeros(1, 2, requires_grad=True)

    dist = TorchGaussian(inputs)
    sample = dist.sample()

    [actual] = torch.autograd.grad(dist.logp(sample).sum(), [inputs])
    [expected] = torch.autograd.grad(TorchGaussian(inputs).logp(sample.clone()).sum(), [inputs])
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchGaussian), ("tf", TFGaussian)])
@pytest.mark.parametrize(("shape", "size"), [((), 2), ((3,), 6), ((2, 3), 12)])
def test_catalog_chooses_diag_gaussian_for_box(framework, cls, shape, size):
    box = spaces.Box(-1, 1, shape, np.float32)

    dist_class, found_size = ModelCatalog.get_action_dist(box, {}, framework=framework)

    assert dist_class is cls
    assert found_size == size
    assert type(found_size) is int
    assert cls.required_model_output_shape(box, {}) == size
    assert cls.framework_of_class == framework


def test_empty_mask_leaves_inputs_alone(framework):
    inputs = np.zeros((3, 4), np.float32)

    assert framework.load("DiagGaussian").masked(inputs, np.ones((3, 0), bool)) is inputs


@pytest.mark.parametrize("name", ["DiagGaussian", "SquashedGaussian"])
def test_mask_is_an_error(framework, name):
    inputs = np.zeros((3, 4), np.float32)

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load(name).masked(inputs, np.ones((3, 2), bool))

    assert name in str(caught.value)
    assert "mask with 2 columns" in str(caught.value)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiBinary(2)], ids=str)
def test_output_shape_for_other_space_is_an_error(framework, space):
    with pytest.raises(CatalogError, match="Box"):
        framework.load("DiagGaussian").required_model_output_shape(space, {})


def test_building_with_discrete_actions_is_an_error():
    with pytest.raises(CatalogError, match="Box"):
        build(spaces.Discrete(3), spaces.Discrete(3), {"custom_action_dist": "diag_gaussian"})
