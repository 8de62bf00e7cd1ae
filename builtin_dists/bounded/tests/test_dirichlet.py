"""The Dirichlet distribution on a simplex: densities, samples, gradients and extreme inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from dist_frameworks import assert_samples_are_new_in_tf_function
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog
from rlcatalog.errors import ConfigError, ModelContractError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex
from rlcatalog_bounded.tf import Dirichlet as TFDirichlet


def make_dirichlet(framework, concentration, dtype="float32", rows=1, components=None):
    """Create equal rows of a distribution, whose inputs are the logs of its concentrations."""
    inputs = np.tile(np.log(concentration), (rows, 1))
    return framework.load("Dirichlet")(framework.tensor(inputs, dtype), components=components)


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("concentration", [[2, 0.5, 1], [0.1, 0.2, 0.3], [20, 5, 7]], ids=str)
@pytest.mark.parametrize("point", [[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]], ids=str)
def test_logp_matches_scipy(framework, concentration, point):
    dist = make_dirichlet(framework, concentration)

    logp = dist.logp(framework.tensor([point], "float32"))

    expected = stats.dirichlet.logpdf(point, concentration)
    np.testing.assert_allclose(logp, [expected], rtol=1e-4, atol=1e-4)


def test_entropy_matches_scipy(framework):
    entropy = make_dirichlet(framework, [2, 0.5, 1]).entropy()

    np.testing.assert_allclose(entropy, [stats.dirichlet.entropy([2, 0.5, 1])], rtol=1e-4)


def test_kl_matches_torch_distributions(framework):
    p = make_dirichlet(framework, [2, 0.5, 1])
    q = make_dirichlet(framework, [1, 3, 0.2])

    exact_p = torch.distributions.Dirichlet(torch.tensor([2, 0.5, 1]))
    exact_q = torch.distributions.Dirichlet(torch.tensor([1, 3, 0.2]))
    expected = torch.distributions.kl_divergence(exact_p, exact_q)
    np.testing.assert_allclose(p.kl(q), [expected], rtol=1e-4)
    np.testing.assert_array_equal(p.multi_kl(q), p.kl(q))


# --- two simplexes of three shares in one action --------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 6), (1, 2, 3)], ids=["flat", "rows"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logp_of_several_rows_is_their_sum(framework, shape, dtype):
    dist = make_dirichlet(framework, [2, 0.5, 1, 1, 3, 0.2], components=3)

    logp = dist.logp(np.array([0.2, 0.3, 0.5, 0.1, 0.8, 0.1], dtype).reshape(shape))

    first = stats.dirichlet.logpdf([0.2, 0.3, 0.5], [2, 0.5, 1])
    second = stats.dirichlet.logpdf([0.1, 0.8, 0.1], [1, 3, 0.2])
    np.testing.assert_allclose(logp, [first + second], rtol=1e-4)


def test_entropy_of_several_rows_is_their_sum(framework):
    dist = make_dirichlet(framework, [2, 0.5, 1, 1, 3, 0.2], components=3)

    expected = stats.dirichlet.entropy([2, 0.5, 1]) + stats.dirichlet.entropy([1, 3, 0.2])
    np.testing.assert_allclose(dist.entropy(), [expected], rtol=1e-4)


def test_kl_of_several_rows_is_their_sum(framework):
    p = make_dirichlet(framework, [2, 0.5, 1, 1, 3, 0.2], components=3)
    q = make_dirichlet(framework, [1, 1, 1, 2, 2, 2], components=3)

    first_kl = make_dirichlet(framework, [2, 0.5, 1]).kl(make_dirichlet(framework, [1, 1, 1]))
    second_kl = make_dirichlet(framework, [1, 3, 0.2]).kl(make_dirichlet(framework, [2, 2, 2]))
    np.testing.assert_allclose(p.kl(q), first_kl + second_kl, rtol=1e-4)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_shares_of_each_row_sum_to_one(framework, method):
    dist = make_dirichlet(framework, [2, 0.5, 1, 1, 3, 0.2], rows=7, components=3)

    sample = framework.numpy(getattr(dist, method)())

    assert sample.shape == (7, 6)
    np.testing.assert_allclose(sample.reshape(7, 2, 3).sum(axis=-1), 1, rtol=1e-5)


def test_kl_of_different_simplexes_is_an_error(framework):
    two_simplexes = make_dirichlet(framework, np.ones(6), components=3)
    one_simplex = make_dirichlet(framework, np.ones(6))

    with pytest.raises(ModelContractError, match="same simplex"):
        two_simplexes.kl(one_simplex)


def test_components_that_do_not_divide_inputs_are_an_error(framework):
    with pytest.raises(ConfigError, match="components must divide"):
        make_dirichlet(framework, np.ones(6), components=5)


# --- stored points --------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.97, 0.5])
def test_logp_of_multiple_is_that_of_the_point(framework, factor):
    dist = make_dirichlet(framework, [2, 0.5, 1, 1, 3, 0.2], components=3)
    point = np.float32([[0.2, 0.3, 0.5, 0.1, 0.8, 0.1]])

    np.testing.assert_allclose(dist.logp(factor * point), dist.logp(point), rtol=2e-4)


def test_logp_of_point_stored_in_half_precision(framework):
    dist = make_dirichlet(framework, [2, 0.5, 1])

    stored_point = np.float16([0.2, 0.7, 0.1])
    logp = dist.logp(framework.tensor([stored_point], "float32"))

    # Rounding moved the point off the simplex; it is scored as the nearest multiple on it.
    assert stored_point.astype(np.float64).sum() != 1
    on_simplex = stored_point.astype(np.float64) / stored_point.astype(np.float64).sum()
    np.testing.assert_allclose(logp, [stats.dirichlet.logpdf(on_simplex, [2, 0.5, 1])], rtol=1e-4)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logp_takes_arrays(framework, method, dtype):
    dist = make_dirichlet(framework, [2, 0.5, 1], rows=7)
    sample = getattr(dist, method)()

    logp = framework.numpy(dist.logp(framework.numpy(sample).astype(dtype)))

    assert logp.shape == (7,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    half_inputs = framework.tensor([[0.3, -0.7, 0]], dtype)
    same_inputs = framework.numpy(half_inputs)  # as float32
    point = np.float32([[0.2, 0.3, 0.5]])

    logp = framework.load("Dirichlet")(half_inputs).logp(point)

    expected = framework.load("Dirichlet")(same_inputs).logp(point)
    np.testing.assert_array_equal(framework.numpy(logp), framework.numpy(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_extreme_half_precision_gives_finite_numbers(framework, dtype):
    dist = framework.load("Dirichlet")(framework.tensor([[3e4, -3e4, 0]], dtype))

    assert framework.all_finite(dist.sample())
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.logp(np.float32([[1, 0, 0]])))


def test_inputs_may_be_an_array(framework):
    # RLlib's PyTorch class takes no NumPy array.
    dist = framework.load("Dirichlet")(np.zeros((1, 3), np.float32))

    np.testing.assert_allclose(dist.deterministic_sample(), [[1 / 3, 1 / 3, 1 / 3]], rtol=1e-5)


# --- samples --------------------------------------------------------------------------------------

each_concentration = pytest.mark.parametrize(
    "concentration", [[1, 2.7, 0.4], [0.2, 0.6, 0.1]], ids=["large", "small"]
)


@each_concentration
def test_shares_of_samples_are_beta_distributed(framework, concentration):
    framework.seed(1)
    dist = make_dirichlet(framework, concentration, rows=10_000)

    first_share = framework.numpy(dist.sample())[:, 0].astype(np.float64)

    # One share against the rest: Beta(its concentration, the sum of the others).
    first = concentration[0]
    others = concentration[1] + concentration[2]
    assert stats.kstest(first_share, stats.beta(first, others).cdf).pvalue > 1e-3
    # The test can tell: a slightly larger concentration does not fit.
    assert stats.kstest(first_share, stats.beta(1.1 * first, others).cdf).pvalue < 1e-3


@each_concentration
def test_shares_of_samples_have_the_covariance_of_a_dirichlet(framework, concentration):
    framework.seed(1)
    dist = make_dirichlet(framework, concentration, rows=10_000)

    covariances = np.cov(framework.numpy(dist.sample()).T)

    np.testing.assert_allclose(covariances, stats.dirichlet.cov(concentration), atol=6e-3)


def test_samples_are_new_inside_tf_function():
    assert_samples_are_new_in_tf_function(TFDirichlet)


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFDirichlet(inputs)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp()

    inputs = tf.constant([[0.5, -1.0, 0.0]])
    last_sample, logp = sample_twice(inputs)

    np.testing.assert_allclose(logp, TFDirichlet(inputs).logp(last_sample), rtol=1e-4, atol=1e-4)


def test_deterministic_sample_is_the_mean(framework):
    sample = make_dirichlet(framework, [2, 0.5, 1.5]).deterministic_sample()

    # RLlib takes the softmax of the concentrations.
    np.testing.assert_allclose(sample, [[2 / 4, 0.5 / 4, 1.5 / 4]], rtol=1e-5)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -20]
#: All triples of extreme inputs, `[729, 3]`.
EXTREME_INPUTS = np.array(list(itertools.product(EXTREMES, repeat=3)), np.float32)


@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_of_extreme_inputs_are_in_the_simplex(framework, method):
    dist = framework.load("Dirichlet")(EXTREME_INPUTS)
    simplex = Simplex((3,))

    sample = framework.numpy(getattr(dist, method)())

    assert all(row in simplex for row in sample)
    assert all(row in simplex for row in sample.astype(np.float16))
    assert framework.all_finite(dist.logp(framework.tensor(sample)))


@pytest.mark.parametrize(
    "point",
    [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [1e-30, 1, 0], [0, 0, 0]],
    ids=str,
)
def test_logp_of_extreme_inputs_is_finite(framework, point):
    points = np.tile(np.float32(point), (len(EXTREME_INPUTS), 1))

    logp = framework.load("Dirichlet")(EXTREME_INPUTS).logp(framework.tensor(points))

    assert framework.all_finite(logp)


def test_entropy_and_kl_of_extreme_inputs_are_finite(framework):
    cls = framework.load("Dirichlet")
    dist = cls(EXTREME_INPUTS)
    reversed_dist = cls(EXTREME_INPUTS[::-1].copy())

    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.entropy_estimate())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.kl(reversed_dist))


def logp_of_corner(dist):
    return dist.logp(np.tile(np.float32([1, 0, 0]), (len(EXTREME_INPUTS), 1)))


def rsample(dist):
    return dist.rsample()


def entropy(dist):
    return dist.entropy()


def kl_from_reversed(dist):
    return dist.kl(type(dist)(EXTREME_INPUTS[::-1].copy()))


@pytest.mark.parametrize("quantity", [logp_of_corner, rsample, entropy, kl_from_reversed])
def test_gradients_of_extreme_inputs_are_finite(framework, quantity):
    cls = framework.load("Dirichlet")

    gradient = framework.gradient(lambda x: quantity(cls(x)), at=EXTREME_INPUTS)

    assert np.isfinite(gradient).all()


# --- gradients ------------------------------------------------------------------------------------


def test_gradient_of_rsample_averages_to_that_of_the_mean(framework):
    framework.seed(3)
    cls = framework.load("Dirichlet")
    inputs = np.float32([[0.3, -1, 1]])
    # Without weights the gradient is 0, because the shares sum to 1.
    weights = framework.tensor([1, -2, 3], "float32")

    # The deterministic sample is the mean.
    [of_mean] = framework.gradient(lambda x: cls(x).deterministic_sample() * weights, at=inputs)
    many_inputs = np.tile(inputs, (20_000, 1))
    of_samples = framework.gradient(lambda x: cls(x).rsample() * weights, at=many_inputs)

    standard_error = of_samples.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(of_samples.mean(axis=0) - of_mean) < 4 * standard_error + 1e-5).all()
    assert (np.abs(of_mean) > 20 * standard_error).all()  # so that 0 would not pass


def test_sample_has_no_gradient(framework):
    cls = framework.load("Dirichlet")
    inputs = np.zeros((1, 3), np.float32)

    assert not framework.has_gradient(lambda x: cls(x).sample(), at=inputs)


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "width"), [((4,), 4), ((2, 3), 6)], ids=str)
def test_catalog_chooses_dirichlet_for_simplex(framework, shape, width):
    dist_class, size = ModelCatalog.get_action_dist(Simplex(shape), {}, framework=framework.name)

    assert dist_class.__name__ == "Dirichlet"
    assert size == width
    # Several rows are an option, which the catalog binds to the class.
    has_one_row = len(shape) == 1
    assert (dist_class is framework.load("Dirichlet")) == has_one_row


def test_output_shape_is_number_of_shares(framework):
    assert framework.load("Dirichlet").required_model_output_shape(Simplex((2, 3)), {}) == 6


def test_discrete_space_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="requires a Simplex, found Discrete"):
        framework.load("Dirichlet").required_model_output_shape(spaces.Discrete(3), {})
