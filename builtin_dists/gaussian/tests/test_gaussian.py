"""The diagonal Gaussian: densities, samples, gradients and extreme inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats

from rlcatalog import ModelCatalog, build
from rlcatalog.errors import CatalogError, NotServedError, StaleOutputError
from rlcatalog_tf import DiagGaussian as TFGaussian
from rlcatalog_torch import DiagGaussian as TorchGaussian


def random_inputs(rows=6, d=3, seed=0):
    """Return means and log standard deviations, `[rows, 2d]`."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 2, (rows, d))
    log_stds = rng.uniform(-3, 1, (rows, d))
    return np.concatenate([means, log_stds], axis=1).astype(np.float32)


def random_actions(rows=6, d=3):
    return np.random.default_rng(9).normal(0, 2, (rows, d)).astype(np.float32)


def make_gaussian(framework, inputs):
    return framework.load("DiagGaussian")(framework.tensor(inputs))


def split_inputs(inputs):
    """Return means and standard deviations in float64."""
    means, log_stds = np.split(np.asarray(inputs, np.float64), 2, axis=1)
    return means, np.exp(log_stds)


def exact_normal(inputs):
    """Return the distribution of torch.distributions in float64."""
    means, stds = split_inputs(inputs)
    normal = torch.distributions.Normal(torch.from_numpy(means), torch.from_numpy(stds))
    return torch.distributions.Independent(normal, 1)


def test_mean_and_std_are_those_of_the_inputs(framework):
    dist = make_gaussian(framework, np.float32([[0.5, -2, 0, 1]]))  # means, then log deviations

    np.testing.assert_allclose(framework.numpy(dist.mean), [[0.5, -2]])
    np.testing.assert_allclose(framework.numpy(dist.std), np.exp([[0, 1]]), rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


def test_logp_matches_scipy(framework):
    inputs = random_inputs(rows=6, d=3)
    actions = random_actions(rows=6, d=3)

    logp = make_gaussian(framework, inputs).logp(framework.tensor(actions))

    means, stds = split_inputs(inputs)
    expected = stats.norm.logpdf(actions, means, stds).sum(axis=1)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def density_on_grid(framework, inputs):
    """Return the log density of a Gaussian in two dimensions on a grid, and a cell's area."""
    axis = np.linspace(-8, 8, 401, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    dist = make_gaussian(framework, np.tile(np.float32(inputs), (len(grid), 1)))
    return framework.numpy(dist.logp(framework.tensor(grid))).astype(np.float64), (16 / 400) ** 2


def test_density_integrates_to_one(framework):
    logp, cell_area = density_on_grid(framework, inputs=[0.3, -0.5, -0.7, 0.2])

    np.testing.assert_allclose(np.exp(logp).sum() * cell_area, 1, rtol=1e-4)


def test_entropy_is_integral_of_density(framework):
    inputs = [0.3, -0.5, -0.7, 0.2]  # two means, two log standard deviations

    entropy = make_gaussian(framework, np.float32([inputs])).entropy()

    logp, cell_area = density_on_grid(framework, inputs)
    expected = -(np.exp(logp) * logp).sum() * cell_area
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-4)


def test_entropy_matches_torch_distributions(framework):
    inputs = random_inputs()

    entropy = make_gaussian(framework, inputs).entropy()

    expected = exact_normal(inputs).entropy()
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5, atol=1e-5)


def test_entropy_is_exact(framework):
    assert framework.load("DiagGaussian").entropy_kind == "exact"


def test_kl_matches_torch_distributions(framework):
    p = random_inputs(seed=0)
    q = random_inputs(seed=1)

    kl = make_gaussian(framework, p).kl(make_gaussian(framework, q))

    expected = torch.distributions.kl_divergence(exact_normal(p), exact_normal(q))
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-5)


def test_kl_is_not_symmetric(framework):
    p = make_gaussian(framework, random_inputs(seed=0))
    q = make_gaussian(framework, random_inputs(seed=1))

    assert not np.allclose(framework.numpy(p.kl(q)), framework.numpy(q.kl(p)))


def test_kl_of_same_inputs_is_zero(framework):
    inputs = random_inputs()

    kl = make_gaussian(framework, inputs).kl(make_gaussian(framework, inputs))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-6)


def test_kl_is_integral_over_actions(framework):
    p = make_gaussian(framework, np.float32([[0.5, -0.3]]))
    q = make_gaussian(framework, np.float32([[-0.5, 0.4]]))

    x = np.linspace(-12, 12, 20001)
    logp = stats.norm.logpdf(x, 0.5, np.exp(-0.3))
    logq = stats.norm.logpdf(x, -0.5, np.exp(0.4))
    expected = np.trapezoid(np.exp(logp) * (logp - logq), x)
    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected, rtol=1e-5)


def test_multi_entropy_and_multi_kl_have_one_component(framework):
    p = make_gaussian(framework, random_inputs(seed=0))
    q = make_gaussian(framework, random_inputs(seed=1))

    np.testing.assert_array_equal(framework.numpy(p.multi_entropy()), framework.numpy(p.entropy()))
    np.testing.assert_array_equal(framework.numpy(p.multi_kl(q)), framework.numpy(p.kl(q)))


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_gaussian(framework, random_inputs(seed=0))
        other = make_gaussian(framework, random_inputs(seed=1))
        tensors = [dist.logp(random_actions()), dist.entropy(), dist.kl(other)]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, rtol=1e-5, atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_have_shape_and_dtype_of_means(framework, method, rows, d):
    dist = make_gaussian(framework, np.zeros((rows, 2 * d), np.float32))

    sample = getattr(dist, method)()

    assert tuple(sample.shape) == (rows, d)
    assert sample.dtype == dist.inputs.dtype


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_densities_have_one_number_per_row(framework, method, rows, d):
    dist = make_gaussian(framework, np.zeros((rows, 2 * d), np.float32))
    sample = getattr(dist, method)()

    for value in [
        dist.logp(sample),
        dist.entropy(),
        dist.kl(dist),
        dist.sampled_action_logp(),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)


@pytest.mark.parametrize("shape", [(6,), (6, 1)], ids=["flat", "column"])
def test_logp_takes_one_number_per_row_flat_or_as_column(framework, shape):
    inputs = random_inputs(rows=6, d=1)
    actions = random_actions(rows=6, d=1)

    # RLlib's logp broadcasts flat actions to [B, B], and sums.
    logp = framework.numpy(
        make_gaussian(framework, inputs).logp(framework.tensor(actions.reshape(shape)))
    )

    means, stds = split_inputs(inputs)
    np.testing.assert_allclose(logp, stats.norm.logpdf(actions, means, stds)[:, 0], rtol=1e-5)


def test_logp_of_sample_for_box_of_rank_zero_is_one_per_row(framework):
    box = spaces.Box(-1, 1, (), np.float32)
    dist_class, size = ModelCatalog.get_action_dist(box, {}, framework=framework.name)
    inputs = np.random.default_rng(0).normal(size=(7, size)).astype(np.float32)

    dist = dist_class(inputs)
    sample = framework.numpy(dist.sample())[:, 0]

    # RLlib removes the axis of such samples, and its logp then broadcasts to [B, B].
    expected = stats.norm.logpdf(sample, inputs[:, 0], np.exp(inputs[:, 1]))
    assert sample.shape == (7,)
    np.testing.assert_allclose(framework.numpy(dist.logp(sample)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_logp_takes_actions_of_any_dtype(framework, dtype, as_tensor):
    inputs = random_inputs()
    actions = np.round(random_actions()).astype(dtype)

    logp = make_gaussian(framework, inputs).logp(
        framework.tensor(actions) if as_tensor else actions
    )

    means, stds = split_inputs(inputs)
    expected = stats.norm.logpdf(actions, means, stds).sum(axis=1)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)
    assert framework.numpy(logp).dtype == np.float32  # that of the inputs


def test_logp_takes_actions_in_the_shape_of_their_box(framework):
    dist = make_gaussian(framework, np.zeros((2, 12), np.float32))  # standard normal, 2 x 3 values
    actions = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 10

    logp = framework.numpy(dist.logp(framework.tensor(actions)))

    np.testing.assert_allclose(logp, stats.norm.logpdf(actions).sum(axis=(1, 2)), rtol=1e-5)


def test_logp_of_actions_with_wrong_size_is_an_error(framework):
    dist = make_gaussian(framework, np.zeros((4, 4), np.float32))  # two values in each of four rows

    with pytest.raises((RuntimeError, tf.errors.InvalidArgumentError)):
        dist.logp(np.zeros(4, np.float32))


def test_inputs_may_be_an_array(framework):
    inputs = random_inputs()

    entropy = framework.load("DiagGaussian")(inputs).entropy()

    expected = make_gaussian(framework, inputs).entropy()
    np.testing.assert_array_equal(framework.numpy(entropy), framework.numpy(expected))


def test_stored_inputs_give_the_same_distribution(framework):
    inputs = random_inputs()
    actions = random_actions()
    dist = framework.load("DiagGaussian")(inputs.copy())

    restored = framework.load("DiagGaussian")(framework.numpy(dist.inputs))

    np.testing.assert_array_equal(framework.numpy(dist.inputs), inputs)
    np.testing.assert_array_equal(
        framework.numpy(restored.logp(actions)), framework.numpy(dist.logp(actions))
    )


def test_float64_keeps_its_precision(framework):
    inputs = np.random.default_rng(3).normal(size=(4, 6))
    actions = np.random.default_rng(4).normal(size=(4, 3))

    dist = make_gaussian(framework, inputs)
    logp = framework.numpy(dist.logp(framework.tensor(actions)))

    expected = stats.norm.logpdf(actions, inputs[:, :3], np.exp(inputs[:, 3:])).sum(axis=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-12)
    assert logp.dtype == np.float64
    assert framework.numpy(dist.sample()).dtype == np.float64
    assert framework.numpy(dist.entropy()).dtype == np.float64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_half_precisions_give_finite_numbers(framework, dtype, method):
    # Pairs of mean and log standard deviation.
    pairs = np.float32([[0, 0], [3e4, 50], [-3e4, -50], [1e-6, 12], [1, -12]])
    inputs = framework.tensor(pairs, dtype)

    dist = framework.load("DiagGaussian")(inputs)
    sample = getattr(dist, method)()

    assert dist.inputs.dtype == inputs.dtype
    for value in [sample, dist.logp(sample), dist.entropy(), dist.kl(dist)]:
        assert np.isfinite(framework.numpy(value)).all()


# --- samples --------------------------------------------------------------------------------------


def test_samples_are_normal(framework):
    framework.seed(0)
    means = [0.5, -3.0, 0.0]
    log_stds = [-1.5, 0.5, 0.0]

    inputs = np.tile(np.float32([*means, *log_stds]), (10_000, 1))
    samples = framework.numpy(make_gaussian(framework, inputs).sample()).astype(np.float64)

    for i in range(3):
        std = np.exp(log_stds[i])
        assert stats.kstest(samples[:, i], stats.norm(means[i], std).cdf).pvalue > 1e-3
        # The test can tell: a slightly larger deviation does not fit.
        assert stats.kstest(samples[:, i], stats.norm(means[i], 1.1 * std).cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(0)
    draws = 10_000

    samples = framework.numpy(make_gaussian(framework, np.zeros((draws, 6), np.float32)).sample())

    between_values = np.corrcoef(samples.T)[np.triu_indices(3, 1)]
    between_rows = np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]
    assert np.abs(between_values).max() < 4 / np.sqrt(draws)
    assert abs(between_rows) < 4 / np.sqrt(draws)


def test_samples_are_new(framework):
    dist = make_gaussian(framework, random_inputs())

    samples = [framework.numpy(dist.sample()) for _ in range(4)]

    for first, second in itertools.combinations(samples, 2):
        assert (first != second).all()


def test_samples_are_new_inside_tf_function():
    @tf.function
    def sample_twice(inputs):
        dist = TFGaussian(inputs)
        return dist.sample(), dist.sample()

    tf.random.set_seed(1)
    inputs = tf.constant(random_inputs())
    samples = [*sample_twice(inputs), *sample_twice(inputs)]

    for first, second in itertools.combinations(samples, 2):
        assert (first.numpy() != second.numpy()).all()


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFGaussian(inputs)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp()

    inputs = random_inputs()
    last_sample, logp = sample_twice(tf.constant(inputs))

    means, stds = split_inputs(inputs)
    expected = stats.norm.logpdf(last_sample.numpy(), means, stds).sum(axis=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-4)


def test_samples_are_normal_inside_tf_function():
    @tf.function
    def sample(inputs):
        return TFGaussian(inputs).sample()

    tf.random.set_seed(1)
    samples = sample(tf.constant(np.tile(np.float32([0.5, -1.5]), (10_000, 1)))).numpy()

    assert stats.kstest(samples[:, 0], stats.norm(0.5, np.exp(-1.5)).cdf).pvalue > 1e-3


def test_same_seed_repeats_the_sample(framework):
    dist = make_gaussian(framework, random_inputs())

    framework.seed(2)
    first = framework.numpy(dist.sample())
    framework.seed(2)
    second = framework.numpy(dist.sample())

    np.testing.assert_array_equal(first, second)


def test_sampled_action_logp_needs_a_sample(framework):
    dist = make_gaussian(framework, random_inputs())

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before sampled_action_logp\(\)"):
        dist.sampled_action_logp()


def test_sampled_action_logp_is_that_of_the_last_sample(framework):
    dist = make_gaussian(framework, random_inputs())

    for draw in [dist.sample, dist.deterministic_sample, dist.sample]:
        sample = draw()

        np.testing.assert_array_equal(framework.numpy(dist.last_sample), framework.numpy(sample))
        np.testing.assert_array_equal(
            framework.numpy(dist.sampled_action_logp()), framework.numpy(dist.logp(sample))
        )


@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0, 1e4])
def test_logp_of_sample_is_that_of_the_stored_number(framework, mean):
    # Engines store float32 numbers and score these later: the ratio must start at one.
    framework.seed(6)
    log_std = -10.0
    dist = make_gaussian(framework, np.tile(np.float32([mean, log_std]), (500, 1)))

    sample = dist.sample()
    stored = framework.numpy(sample).copy()

    expected = stats.norm.logpdf(stored.astype(np.float64), mean, np.exp(log_std)).sum(axis=1)
    near = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(
        framework.numpy(dist.logp(framework.tensor(stored))), expected, **near
    )
    np.testing.assert_allclose(framework.numpy(dist.logp(sample)), expected, **near)
    np.testing.assert_allclose(framework.numpy(dist.sampled_action_logp()), expected, **near)


def test_logp_of_sample_changed_in_place_is_of_new_values():
    inputs = random_inputs()
    dist = TorchGaussian(torch.from_numpy(inputs))

    sample = dist.sample()
    sample.clamp_(-0.1, 0.1)

    means, stds = split_inputs(inputs)
    expected = stats.norm.logpdf(sample, means, stds).sum(axis=1)
    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-4)


def test_deterministic_sample_is_the_mean(framework):
    inputs = random_inputs(d=3)

    sample = make_gaussian(framework, inputs).deterministic_sample()

    np.testing.assert_array_equal(framework.numpy(sample), inputs[:, :3])


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(3)
    draws = 10_000
    inputs = np.float32([0.5, -3.0, 0.0, -1.5, 0.5, 0.0])

    estimates = framework.numpy(
        make_gaussian(framework, np.tile(inputs, (draws, 1))).entropy_estimate()
    )

    exact = float(exact_normal(inputs[None]).entropy()[0])
    standard_error = estimates.std() / np.sqrt(draws)
    assert abs(estimates.mean() - exact) < 4 * standard_error


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -1e-6]


def assert_all_finite(framework, means, log_stds):
    """Check samples, densities, entropy and KL divergence for all pairs."""
    dist = make_gaussian(framework, np.array(list(itertools.product(means, log_stds)), np.float32))
    framework.seed(4)
    for draw in [dist.sample, dist.deterministic_sample] * 3:
        sample = draw()
        assert np.isfinite(framework.numpy(sample)).all()
        assert np.isfinite(framework.numpy(dist.logp(sample))).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()


def test_extreme_means_give_finite_numbers(framework):
    assert_all_finite(framework, means=EXTREMES, log_stds=[0.0, 1.0, -1.0, -20.0, 20.0])


def test_tiny_and_huge_scales_give_finite_numbers(framework):
    assert_all_finite(
        framework, means=[0.0, 1.0, -1e8, 1.1e34], log_stds=[-40.0, -80.0, 40.0, 60.0]
    )


@pytest.mark.parametrize("log_std", [-100.0, 100.0, -1e8, 1e8, -1.1e34, 1.1e34])
def test_scales_beyond_float32_give_finite_numbers(framework, log_std):
    assert_all_finite(framework, means=EXTREMES, log_stds=[log_std])


def test_logp_with_tiny_scale_is_exact(framework):
    dist = make_gaussian(framework, np.float32([[0.0, -30.0]]))
    action = np.float32([[2e-13]])  # about two standard deviations

    logp = framework.numpy(dist.logp(framework.tensor(action)))

    expected = stats.norm.logpdf(action.astype(np.float64), 0, np.exp(-30.0))[0]
    np.testing.assert_allclose(logp, expected, rtol=1e-4)


# --- gradients ------------------------------------------------------------------------------------


def logp_of_actions(dist, other):
    return dist.logp(random_actions(rows=6, d=3).astype(np.float64))


def entropy(dist, other):
    return dist.entropy()


def kl(dist, other):
    return dist.kl(other)


def reverse_kl(dist, other):
    return other.kl(dist)


quantities = pytest.mark.parametrize("quantity", [logp_of_actions, entropy, kl, reverse_kl])


@quantities
def test_gradient_passes_gradcheck(quantity):
    inputs = torch.from_numpy(random_inputs(seed=0).astype(np.float64)).requires_grad_()
    other = TorchGaussian(random_inputs(seed=1).astype(np.float64))

    assert torch.autograd.gradcheck(lambda x: quantity(TorchGaussian(x), other), [inputs])


@quantities
def test_gradients_agree_between_frameworks(torch_framework, tf_framework, quantity):
    gradients = []
    for framework in (torch_framework, tf_framework):
        cls = framework.load("DiagGaussian")
        other = make_gaussian(framework, random_inputs(seed=1))
        gradients.append(
            framework.gradient(
                lambda x, cls=cls, other=other: quantity(cls(x), other), random_inputs()
            )
        )

    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_rsample_has_gradients_of_mean_and_log_std(framework):
    inputs = random_inputs(rows=6, d=3)
    samples = []

    def rsample(x):
        framework.seed(5)
        samples.append(framework.load("DiagGaussian")(x).rsample())
        return samples[-1]

    gradient = framework.gradient(rsample, at=inputs)

    # x = mean + std · noise, hence dx/dmean = 1 and dx/dlog_std = x - mean.
    offset = framework.numpy(samples[0]) - inputs[:, :3]
    np.testing.assert_allclose(gradient[:, :3], 1)
    np.testing.assert_allclose(gradient[:, 3:], offset, rtol=1e-4, atol=1e-5)


def test_entropy_estimate_has_gradient_of_entropy(framework):
    cls = framework.load("DiagGaussian")

    gradient = framework.gradient(
        lambda x: cls(x).entropy_estimate(), at=random_inputs(rows=6, d=3)
    )

    # For any noise, the derivative by a mean is 0, and by a log standard deviation 1.
    np.testing.assert_allclose(gradient, np.tile([0, 0, 0, 1, 1, 1], (6, 1)), atol=1e-4)


def test_sample_has_no_gradient_in_torch():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    assert not TorchGaussian(inputs).sample().requires_grad


def test_sample_has_no_gradient_in_tf():
    inputs = tf.Variable(random_inputs())

    with tf.GradientTape() as tape:
        sample = TFGaussian(inputs).sample()

    assert tape.gradient(sample, inputs) is None


def test_logp_of_last_sample_has_gradient_as_of_any_action():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()
    same_inputs = torch.from_numpy(random_inputs()).requires_grad_()

    dist = TorchGaussian(inputs)
    sample = dist.sample()
    dist.logp(sample).sum().backward()
    TorchGaussian(same_inputs).logp(sample.clone()).sum().backward()

    np.testing.assert_allclose(inputs.grad, same_inputs.grad, rtol=1e-5)


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchGaussian), ("tf", TFGaussian)])
@pytest.mark.parametrize(("shape", "size"), [((), 2), ((1,), 2), ((3,), 6), ((2, 3), 12)])
def test_catalog_chooses_diag_gaussian_for_box(framework, cls, shape, size):
    box = spaces.Box(-1, 1, shape, np.float32)

    dist_class, found_size = ModelCatalog.get_action_dist(box, {}, framework=framework)

    assert dist_class is cls
    assert found_size == size
    assert type(found_size) is int
    assert cls.required_model_output_shape(box, {}) == size
    assert cls.framework_of_class == framework


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(("shape", "width"), [((), 1), ((2, 3), 6)], ids=str)
def test_policy_acts_in_box_of_any_rank(framework, shape, width):
    box = spaces.Box(-0.5, 0.5, shape, np.float32)
    policy = build(spaces.Discrete(3), box, {"fcnet_hiddens": [4]}, framework)

    step = policy.act(np.array([0, 1, 2, 0]))

    means, stds = split_inputs(step.dist_inputs)
    expected_logp = stats.norm.logpdf(step.raw_action, means, stds).sum(axis=1)
    assert step.action.shape == (4, *shape)
    assert all(np.asarray(action) in box for action in step.action)
    assert step.raw_action.shape == (4, width)
    np.testing.assert_allclose(step.logp, expected_logp, rtol=1e-4)


def test_empty_mask_leaves_inputs_alone(framework):
    inputs = random_inputs(rows=3)

    assert framework.load("DiagGaussian").masked(inputs, np.ones((3, 0), bool)) is inputs


def test_mask_is_an_error(framework):
    mask = np.ones((3, 4), bool)

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load("DiagGaussian").masked(
            framework.tensor(random_inputs(rows=3)), framework.tensor(mask)
        )

    assert "DiagGaussian" in str(caught.value)
    assert "mask with 4 columns" in str(caught.value)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiBinary(2)], ids=str)
def test_output_shape_for_other_space_is_an_error(framework, space):
    with pytest.raises(CatalogError, match="Box"):
        framework.load("DiagGaussian").required_model_output_shape(space, {})


def test_building_with_discrete_actions_is_an_error():
    with pytest.raises(CatalogError, match="Box"):
        build(spaces.Discrete(3), spaces.Discrete(3), {"custom_action_dist": "diag_gaussian"})
