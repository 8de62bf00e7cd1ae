"""The Dirichlet distribution on a simplex: densities, samples, gradients and extreme inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, UnsupportedSpaceError
from rlcatalog.spaces import Simplex
from rlcatalog_bounded.tf import Dirichlet as TFDirichlet
from rlcatalog_bounded.torch import Dirichlet as TorchDirichlet


def random_inputs(rows=7, n=4, seed=0):
    """Return logs of concentrations."""
    return np.random.default_rng(seed).normal(0, 1.5, (rows, n)).astype(np.float32)


def random_points(rows=7, n=4):
    """Return points of the simplex, rounded to float32."""
    return np.random.default_rng(9).dirichlet(np.ones(n), rows).astype(np.float32)


def make_dirichlet(framework, inputs, components=None):
    return framework.load("Dirichlet")(framework.tensor(inputs), None, components)


def exact_dirichlet(inputs):
    """Return the distribution of torch.distributions in float64."""
    concentration = np.exp(np.asarray(inputs, np.float64)) + 1e-7
    return torch.distributions.Dirichlet(torch.from_numpy(concentration))


def normalise(points):
    """Return points in float64 whose last axis sums to 1."""
    points = np.asarray(points, np.float64)
    return points / points.sum(axis=-1, keepdims=True)


# --- densities ------------------------------------------------------------------------------------


def test_logp_matches_scipy(framework):
    inputs = random_inputs()
    points = random_points()

    logp = make_dirichlet(framework, inputs).logp(framework.tensor(points))

    concentrations = np.exp(inputs.astype(np.float64))
    expected = [
        stats.dirichlet.logpdf(point, concentration)
        for point, concentration in zip(normalise(points), concentrations, strict=True)
    ]
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-4, atol=1e-5)


def test_density_of_two_shares_integrates_to_one(framework):
    x = (np.arange(50_000) + 0.5) / 50_000
    points = np.stack([x, 1 - x], axis=1)
    dist = make_dirichlet(framework, np.tile(np.float32([0.7, 1.2]), (len(x), 1)))

    logp = framework.numpy(dist.logp(points)).astype(np.float64)

    np.testing.assert_allclose(np.exp(logp).mean(), 1, rtol=1e-3)


def test_density_of_three_shares_integrates_to_one(framework):
    # A grid of the first two shares; the third one is what they leave.
    axis = (np.arange(400) + 0.5) / 400
    x, y = np.meshgrid(axis, axis)
    is_inside = x + y < 1 - 1e-9
    points = np.stack([x, y, 1 - x - y], axis=-1)[is_inside]
    dist = make_dirichlet(framework, np.tile(np.float32([0.7, 1.2, 1.0]), (len(points), 1)))

    logp = framework.numpy(dist.logp(points)).astype(np.float64)

    np.testing.assert_allclose(np.exp(logp).sum() / 400**2, 1, rtol=1e-3)


def test_entropy_matches_torch_distributions(framework):
    inputs = random_inputs()

    entropy = make_dirichlet(framework, inputs).entropy()

    expected = exact_dirichlet(inputs).entropy()
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-4, atol=1e-4)


def test_entropy_is_exact(framework):
    assert framework.load("Dirichlet").entropy_kind == "exact"


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(0)
    draws = 10_000
    inputs = random_inputs(rows=1)

    estimates = framework.numpy(
        make_dirichlet(framework, np.tile(inputs, (draws, 1))).entropy_estimate()
    )

    exact = float(exact_dirichlet(inputs).entropy())
    standard_error = estimates.std() / np.sqrt(draws)
    assert abs(estimates.mean() - exact) < 4 * standard_error


def test_kl_matches_torch_distributions(framework):
    p = random_inputs(seed=0)
    q = random_inputs(seed=1)

    kl = make_dirichlet(framework, p).kl(make_dirichlet(framework, q))

    expected = torch.distributions.kl_divergence(exact_dirichlet(p), exact_dirichlet(q))
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-4, atol=1e-4)


def test_kl_of_same_inputs_is_zero(framework):
    inputs = random_inputs()

    kl = make_dirichlet(framework, inputs).kl(make_dirichlet(framework, inputs))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-5)


def test_multi_kl_has_one_component(framework):
    p = make_dirichlet(framework, random_inputs(seed=0))
    q = make_dirichlet(framework, random_inputs(seed=1))

    np.testing.assert_array_equal(framework.numpy(p.multi_kl(q)), framework.numpy(p.kl(q)))


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_dirichlet(framework, random_inputs(seed=0))
        other = make_dirichlet(framework, random_inputs(seed=1))
        tensors = [
            dist.logp(random_points()),
            dist.entropy(),
            dist.kl(other),
            dist.deterministic_sample(),
        ]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, rtol=1e-5, atol=2e-5)


# --- several rows: a batch of 2, each with three simplexes of 4 shares ----------------------------


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 12), np.float32), ((2, 3, 4), np.float32), ((2, 12), np.float64)],
    ids=["flat", "rows", "float64"],
)
def test_logp_of_several_rows_is_their_sum(framework, shape, dtype):
    inputs = random_inputs(rows=6, n=4)
    points = random_points(rows=6, n=4)

    dist = make_dirichlet(framework, inputs.reshape(2, 12), components=4)
    logp = dist.logp(points.reshape(shape).astype(dtype))

    logp_of_rows = exact_dirichlet(inputs).log_prob(torch.from_numpy(normalise(points)))
    expected = logp_of_rows.reshape(2, 3).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-4, atol=1e-4)


def test_entropy_of_several_rows_is_their_sum(framework):
    inputs = random_inputs(rows=6, n=4)

    entropy = make_dirichlet(framework, inputs.reshape(2, 12), components=4).entropy()

    expected = exact_dirichlet(inputs).entropy().reshape(2, 3).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-4, atol=1e-4)


def test_kl_of_several_rows_is_their_sum(framework):
    p = random_inputs(rows=6, n=4, seed=0)
    q = random_inputs(rows=6, n=4, seed=1)

    dist = make_dirichlet(framework, p.reshape(2, 12), components=4)
    kl = dist.kl(make_dirichlet(framework, q.reshape(2, 12), components=4))

    kl_of_rows = torch.distributions.kl_divergence(exact_dirichlet(p), exact_dirichlet(q))
    expected = kl_of_rows.reshape(2, 3).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_shares_of_each_row_sum_to_one(framework, method):
    dist = make_dirichlet(framework, random_inputs(rows=2, n=12), components=4)

    sample = framework.numpy(getattr(dist, method)())

    assert sample.shape == (2, 12)
    np.testing.assert_allclose(sample.reshape(2, 3, 4).sum(axis=-1), 1, rtol=1e-5)


def test_kl_of_different_simplexes_is_an_error(framework):
    inputs = random_inputs(rows=2, n=12)
    three_simplexes = make_dirichlet(framework, inputs, components=4)

    with pytest.raises(ModelContractError, match="same simplex"):
        three_simplexes.kl(make_dirichlet(framework, inputs))


def test_components_that_do_not_divide_inputs_are_an_error(framework):
    with pytest.raises(ConfigError, match="components must divide"):
        make_dirichlet(framework, random_inputs(rows=2, n=12), components=5)


# --- stored points --------------------------------------------------------------------------------


def exact_logp(inputs, points, simplexes):
    """Return log densities of points, brought to sum 1, over several simplexes in each row."""
    points = normalise(points.reshape(len(inputs), simplexes, -1))
    exact = exact_dirichlet(inputs.reshape(points.shape))
    return exact.log_prob(torch.from_numpy(points)).sum(dim=1)


@pytest.mark.parametrize("simplexes", [1, 2, 4])
@pytest.mark.parametrize("factor", [1.0, 0.97, 0.5])
def test_logp_of_multiple_is_that_of_the_point(framework, simplexes, factor):
    inputs = np.random.default_rng(0).uniform(-1, 3, (6, 8)).astype(np.float32)
    dist = make_dirichlet(framework, inputs, components=8 // simplexes)

    multiples = framework.numpy(dist.sample()) * np.float32(factor)
    logp = dist.logp(framework.tensor(multiples))

    expected = exact_logp(inputs, multiples, simplexes)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=2e-4, atol=2e-4)


def test_logp_of_point_stored_in_half_precision(framework):
    inputs = np.random.default_rng(0).uniform(-1, 3, (6, 8)).astype(np.float32)
    dist = make_dirichlet(framework, inputs, components=4)

    stored = framework.numpy(dist.sample()).astype(np.float16).astype(np.float32).clip(1e-4)
    logp = dist.logp(framework.tensor(stored))

    sums = stored.reshape(-1, 4).sum(axis=1)
    assert (np.abs(sums - 1) > 1e-4).any()  # rounding moves points off the simplex
    expected = exact_logp(inputs, stored, simplexes=2)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=2e-4, atol=2e-4)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_have_a_column_per_share(framework, method, rows, n):
    dist = make_dirichlet(framework, np.zeros((rows, n), np.float32))

    assert tuple(getattr(dist, method)().shape) == (rows, n)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_densities_have_one_number_per_row(framework, rows, n):
    dist = make_dirichlet(framework, np.zeros((rows, n), np.float32))
    sample = dist.sample()

    for value in [
        dist.logp(sample),
        dist.sampled_action_logp(),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logp_takes_arrays(framework, method, rows, n, dtype):
    dist = make_dirichlet(framework, np.zeros((rows, n), np.float32))
    sample = getattr(dist, method)()

    logp = framework.numpy(dist.logp(framework.numpy(sample).astype(dtype)))

    assert logp.shape == (rows,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    half_inputs = framework.tensor(random_inputs(), dtype)
    points = random_points()

    logp = framework.load("Dirichlet")(half_inputs).logp(points)

    expected = make_dirichlet(framework, framework.numpy(half_inputs)).logp(points)  # float32
    np.testing.assert_array_equal(framework.numpy(logp), framework.numpy(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_extreme_half_precision_gives_finite_numbers(framework, dtype):
    dist = framework.load("Dirichlet")(framework.tensor(np.float32([[3e4, -3e4, 0]]), dtype))

    assert np.isfinite(framework.numpy(dist.sample())).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.logp(np.float32([[1, 0, 0]])))).all()


def test_stored_inputs_give_the_same_logp(framework):
    inputs = random_inputs()
    dist = make_dirichlet(framework, inputs)
    stored_point = framework.numpy(dist.sample())

    # RLlib stores concentrations, and its PyTorch class takes no NumPy array.
    restored = framework.load("Dirichlet")(framework.numpy(dist.inputs))

    np.testing.assert_array_equal(framework.numpy(dist.inputs), inputs)
    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_point)), framework.numpy(dist.sampled_action_logp())
    )


# --- samples --------------------------------------------------------------------------------------


def sample_many(framework, inputs):
    framework.seed(1)
    samples = make_dirichlet(framework, np.tile(np.float32(inputs), (10_000, 1))).sample()
    return framework.numpy(samples).astype(np.float64)


each_concentration = pytest.mark.parametrize(
    "concentration",
    [np.exp([0, 1, -1, 0.5]), np.exp([-1.5, -0.5, -2.5, -1])],
    ids=["large", "small"],
)


@each_concentration
def test_shares_of_samples_are_beta_distributed(framework, concentration):
    samples = sample_many(framework, inputs=np.log(concentration))

    total = concentration.sum()
    for i in range(4):
        exact = stats.beta(concentration[i], total - concentration[i])
        assert stats.kstest(samples[:, i], exact.cdf).pvalue > 1e-3
        # The test can tell: another concentration does not fit.
        wrong = stats.beta(1.2 * concentration[i], 2 * total)
        assert stats.kstest(samples[:, i], wrong.cdf).pvalue < 1e-3


@each_concentration
def test_shares_of_samples_have_the_covariance_of_a_dirichlet(framework, concentration):
    samples = sample_many(framework, inputs=np.log(concentration))

    # cov(x_i, x_j) = -a_i a_j / (a² (a + 1)), where a is the sum of all a_i.
    total = concentration.sum()
    expected = -np.outer(concentration, concentration) / (total**2 * (total + 1))
    pairs = np.triu_indices(4, 1)
    np.testing.assert_allclose(np.cov(samples.T)[pairs], expected[pairs], atol=6e-3)


def test_samples_are_new(framework):
    dist = make_dirichlet(framework, random_inputs())

    samples = [framework.numpy(dist.sample()) for _ in range(3)]

    for first, second in itertools.combinations(samples, 2):
        assert (first != second).any(axis=1).all()


def test_samples_are_new_inside_tf_function():
    @tf.function
    def sample_twice(inputs):
        dist = TFDirichlet(inputs)
        return dist.sample(), dist.sample()

    inputs = tf.constant(random_inputs())
    samples = [*sample_twice(inputs), *sample_twice(inputs)]

    for first, second in itertools.combinations(samples, 2):
        assert (first.numpy() != second.numpy()).any(axis=1).all()


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFDirichlet(inputs)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp(), dist.entropy()

    inputs = tf.constant(random_inputs())
    last_sample, logp, _ = sample_twice(inputs)

    np.testing.assert_allclose(logp, TFDirichlet(inputs).logp(last_sample), rtol=1e-4, atol=1e-4)


def test_deterministic_sample_is_the_mean(framework):
    inputs = random_inputs()

    sample = framework.numpy(make_dirichlet(framework, inputs).deterministic_sample())

    exact = exact_dirichlet(inputs)
    softmax_of_rllib = torch.softmax(exact.concentration, dim=-1)
    np.testing.assert_allclose(sample, exact.mean, rtol=1e-5)
    assert not np.allclose(sample, softmax_of_rllib, atol=1e-2)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = np.float32([0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -20])
#: All triples of extreme inputs.
EXTREME_INPUTS = np.array(list(itertools.product(EXTREMES, repeat=3)), np.float32)


@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_of_extreme_inputs_are_in_the_simplex(framework, method):
    framework.seed(2)
    dist = make_dirichlet(framework, EXTREME_INPUTS)
    simplex = Simplex((3,))

    sample = framework.numpy(getattr(dist, method)())

    assert all(row in simplex for row in sample)
    assert all(row in simplex for row in sample.astype(np.float16))
    assert np.isfinite(framework.numpy(dist.logp(framework.tensor(sample)))).all()


@pytest.mark.parametrize(
    "point",
    [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [1e-30, 1, 0], [0, 0, 0]],
    ids=str,
)
def test_logp_of_extreme_inputs_is_finite(framework, point):
    points = np.tile(np.float32(point), (len(EXTREME_INPUTS), 1))

    logp = make_dirichlet(framework, EXTREME_INPUTS).logp(framework.tensor(points))

    assert np.isfinite(framework.numpy(logp)).all()


def test_entropy_and_kl_of_extreme_inputs_are_finite(framework):
    framework.seed(2)
    dist = make_dirichlet(framework, EXTREME_INPUTS)
    other = make_dirichlet(framework, EXTREME_INPUTS[::-1].copy())

    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.entropy_estimate())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()


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


def logp_of_points(dist):
    return dist.logp(random_points())


def kl(dist):
    return dist.kl(type(dist)(random_inputs(seed=1).astype(np.float64)))


def reverse_kl(dist):
    return type(dist)(random_inputs(seed=1).astype(np.float64)).kl(dist)


def deterministic_sample(dist):
    return dist.deterministic_sample()


@pytest.mark.parametrize(
    "quantity", [logp_of_points, entropy, kl, reverse_kl, deterministic_sample]
)
def test_gradient_passes_gradcheck(quantity):
    inputs = torch.from_numpy(random_inputs(seed=0).astype(np.float64)).requires_grad_()

    assert torch.autograd.gradcheck(lambda x: quantity(TorchDirichlet(x)), [inputs])


@pytest.mark.parametrize("quantity", [logp_of_points, entropy, kl])
def test_gradients_agree_between_frameworks(torch_framework, tf_framework, quantity):
    inputs = random_inputs(seed=0).astype(np.float64)

    by_torch = torch_framework.gradient(lambda x: quantity(TorchDirichlet(x)), at=inputs)
    by_tf = tf_framework.gradient(lambda x: quantity(TFDirichlet(x)), at=inputs)

    np.testing.assert_allclose(by_torch, by_tf, rtol=1e-3, atol=1e-4)


def test_rsample_gradient_has_expectation_of_mean_gradient(framework):
    framework.seed(3)
    cls = framework.load("Dirichlet")
    draws = 20_000
    inputs = np.float32([[0.3, -1, 1, 0]])
    # Without weights the gradient is 0, because the shares sum to 1.
    weights = framework.tensor(np.float32([1, -2, 3, 0.5]))

    of_samples = framework.gradient(
        lambda x: cls(x).rsample() * weights, at=np.tile(inputs, (draws, 1))
    )
    of_mean = framework.gradient(lambda x: cls(x).deterministic_sample() * weights, at=inputs)[0]

    distance = np.abs(of_samples.mean(axis=0) - of_mean)
    standard_error = of_samples.std(axis=0) / np.sqrt(draws)
    assert (distance < 4 * standard_error + 1e-5).all()
    assert np.abs(of_mean).min() > 1e-2


def test_sample_has_no_gradient_in_torch():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    assert not TorchDirichlet(inputs).sample().requires_grad


def test_sample_has_no_gradient_in_tf():
    inputs = tf.Variable(random_inputs())

    with tf.GradientTape() as tape:
        sample = TFDirichlet(inputs).sample()

    assert tape.gradient(sample, inputs) is None


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "width"), [((1,), 1), ((4,), 4), ((2, 3), 6)], ids=str)
def test_catalog_chooses_dirichlet_for_simplex(framework, shape, width):
    dist_class, size = ModelCatalog.get_action_dist(Simplex(shape), {}, framework=framework.name)

    assert dist_class.__name__ == "Dirichlet"
    assert size == width
    # Several rows are an option, which the catalog binds to the class.
    has_one_row = len(shape) == 1
    assert (dist_class is framework.load("Dirichlet")) == has_one_row


@pytest.mark.parametrize(("shape", "width"), [((1,), 1), ((4,), 4), ((2, 3), 6)], ids=str)
def test_policy_acts_in_simplex(framework, shape, width):
    simplex = Simplex(shape)
    policy = build(spaces.Discrete(3), simplex, {"fcnet_hiddens": [4]}, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    assert step.raw_action.shape == (4, width)
    assert all(action in simplex for action in step.action)


@pytest.mark.parametrize("shape", [(4,), (2, 3)], ids=str)
def test_policy_scores_points_of_simplex(framework, shape):
    policy = build(spaces.Discrete(3), Simplex(shape), {"fcnet_hiddens": [4]}, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    points = normalise(step.raw_action.reshape(4, -1, shape[-1]))
    exact = exact_dirichlet(step.dist_inputs.reshape(points.shape))
    expected = exact.log_prob(torch.from_numpy(points)).sum(dim=1)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-3)


def test_output_shape_is_number_of_shares(framework):
    assert framework.load("Dirichlet").required_model_output_shape(Simplex((2, 3)), {}) == 6


def test_discrete_space_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="requires a Simplex, found Discrete"):
        framework.load("Dirichlet").required_model_output_shape(spaces.Discrete(3), {})


def test_empty_mask_leaves_inputs_alone(framework):
    inputs = framework.tensor(random_inputs(rows=7))

    assert framework.load("Dirichlet").masked(inputs, np.ones((7, 0), bool)) is inputs


def test_mask_is_an_error(framework):
    inputs = framework.tensor(random_inputs(rows=7))

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load("Dirichlet").masked(inputs, np.ones((7, 4), bool))

    assert "Dirichlet" in str(caught.value)
    assert "but got a mask with 4 columns" in str(caught.value)
