"""The squashed Gaussian: densities within bounds, samples, gradients and extreme inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy import integrate, stats
from torch.distributions import (
    AffineTransform,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from rlcatalog.errors import ConfigError, ModelContractError, NoClosedFormError
from rlcatalog_gaussian.tf import SquashedGaussian as TFSquashed
from rlcatalog_gaussian.torch import SquashedGaussian as TorchSquashed

#: Bounds of three values.
LOW = np.float32([-2, 0, 10])
HIGH = np.float32([2, 0.5, 30])


def random_inputs(rows=7, d=3, seed=0):
    """Return means and log standard deviations of the normal values, `[rows, 2d]`."""
    rng = np.random.default_rng(seed)
    means = rng.normal(0, 1, (rows, d))
    log_stds = rng.uniform(-3, 1, (rows, d))
    return np.concatenate([means, log_stds], axis=1).astype(np.float32)


def random_actions(rows=7):
    """Return three values per row between LOW and HIGH."""
    fractions = np.random.default_rng(9).uniform(0.02, 0.98, (rows, 3))
    return (LOW + (HIGH - LOW) * fractions).astype(np.float32)


def make_squashed(framework, inputs, low=LOW, high=HIGH, **options):
    return framework.load("SquashedGaussian")(framework.tensor(inputs), None, low, high, **options)


def exact_squashed(inputs, low=LOW, high=HIGH):
    """Return the distribution of torch.distributions in float64."""
    means, log_stds = np.split(np.asarray(inputs, np.float64), 2, axis=1)
    low = torch.from_numpy(np.broadcast_to(low, means.shape).astype(np.float64))
    high = torch.from_numpy(np.broadcast_to(high, means.shape).astype(np.float64))
    normal = Normal(torch.from_numpy(means), torch.from_numpy(np.exp(log_stds)))
    steps = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
    return Independent(TransformedDistribution(normal, steps), 1)


def exact_logp(inputs, actions):
    """Return exact log densities of actions between LOW and HIGH."""
    return exact_squashed(inputs).log_prob(torch.from_numpy(np.asarray(actions, np.float64)))


def test_mean_and_std_are_those_of_the_normal_values(framework):
    dist = make_squashed(framework, np.float32([[0.5, -2, 0, 1]]), low=-1.0, high=1.0)

    np.testing.assert_allclose(framework.numpy(dist.mean), [[0.5, -2]])
    np.testing.assert_allclose(framework.numpy(dist.std), np.exp([[0, 1]]), rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


def test_logp_matches_torch_distributions(framework):
    inputs = random_inputs()
    actions = random_actions()

    logp = make_squashed(framework, inputs).logp(framework.tensor(actions))

    # RLlib omits the term log((high - low) / 2).
    np.testing.assert_allclose(
        framework.numpy(logp), exact_logp(inputs, actions), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 10.0), (-3.0, -2.5)])
@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.0, 0.5)])
def test_density_integrates_to_one(framework, low, high, mean, log_std):
    x = (low + (high - low) * (np.arange(200_000) + 0.5) / 200_000).astype(np.float32)
    dist = make_squashed(framework, np.tile(np.float32([mean, log_std]), (len(x), 1)), low, high)

    density = np.exp(framework.numpy(dist.logp(framework.tensor(x))).astype(np.float64))

    np.testing.assert_allclose(density.mean() * (high - low), 1, rtol=1e-3)


def test_density_integrates_to_one_in_two_dimensions(framework):
    low = np.float32([-1, 2])
    high = np.float32([3, 2.5])
    fractions = (np.arange(500) + 0.5) / 500
    axes = [low[i] + (high[i] - low[i]) * fractions for i in (0, 1)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2).astype(np.float32)

    inputs = np.tile(np.float32([0.3, -0.5, -0.7, -0.2]), (len(grid), 1))
    logp = framework.numpy(make_squashed(framework, inputs, low, high).logp(framework.tensor(grid)))

    area = np.prod(high - low)
    np.testing.assert_allclose(np.exp(logp.astype(np.float64)).mean() * area, 1, rtol=1e-3)


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_squashed(framework, random_inputs(seed=0))
        other = make_squashed(framework, random_inputs(seed=1))
        tensors = [dist.logp(random_actions()), dist.kl(other), dist.deterministic_sample()]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def kl_by_integration():
    """KL divergence of inputs (0.5, -0.3) from (-0.2, 0.1) between 0 and 4."""
    p = exact_squashed([[0.5, -0.3]], low=0, high=4)
    q = exact_squashed([[-0.2, 0.1]], low=0, high=4)

    def integrand(x):
        action = torch.tensor([[x]], dtype=torch.float64)
        logp = float(p.log_prob(action))
        return np.exp(logp) * (logp - float(q.log_prob(action)))

    return integrate.quad(integrand, 1e-9, 4 - 1e-9, limit=200)[0]


def test_kl_is_integral_over_actions(framework, kl_by_integration):
    p = make_squashed(framework, np.float32([[0.5, -0.3]]), low=0.0, high=4.0)
    q = make_squashed(framework, np.float32([[-0.2, 0.1]]), low=0.0, high=4.0)

    np.testing.assert_allclose(framework.numpy(p.kl(q)), kl_by_integration, rtol=1e-4)


def test_kl_is_that_of_the_normal_values(framework):
    p = random_inputs(d=3, seed=0)
    q = random_inputs(d=3, seed=1)

    kl = make_squashed(framework, p).kl(make_squashed(framework, q))  # RLlib has none

    normal_p = Normal(torch.from_numpy(p[:, :3]), torch.from_numpy(np.exp(p[:, 3:])))
    normal_q = Normal(torch.from_numpy(q[:, :3]), torch.from_numpy(np.exp(q[:, 3:])))
    expected = torch.distributions.kl_divergence(normal_p, normal_q).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-4)


def test_kl_of_same_inputs_is_zero(framework):
    inputs = random_inputs()

    kl = make_squashed(framework, inputs).kl(make_squashed(framework, inputs))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-6)


def test_multi_kl_has_one_component(framework):
    p = make_squashed(framework, random_inputs(seed=0))
    q = make_squashed(framework, random_inputs(seed=1))

    np.testing.assert_array_equal(framework.numpy(p.multi_kl(q)), framework.numpy(p.kl(q)))


def test_kl_with_other_bounds_is_an_error(framework):
    inputs = random_inputs()
    dist = make_squashed(framework, inputs, low=LOW)

    with pytest.raises(ModelContractError, match="same bounds"):
        dist.kl(make_squashed(framework, inputs, low=LOW - 1))


def test_kl_with_other_kind_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expects another SquashedGaussian"):
        make_squashed(framework, random_inputs()).kl(object())


def test_entropy_has_no_closed_form(framework):
    dist = make_squashed(framework, random_inputs())

    assert dist.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="entropy_estimate"):
        dist.entropy()


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(0)
    draws = 20_000
    inputs = np.float32([0.3, -0.5])

    dist = make_squashed(framework, np.tile(inputs, (draws, 1)), low=-1.0, high=3.0)
    estimates = framework.numpy(dist.entropy_estimate())

    x = np.linspace(-1, 3, 200_002)[1:-1]
    exact_dist = exact_squashed(np.tile(inputs, (len(x), 1)), low=-1, high=3)
    logp = exact_dist.log_prob(torch.from_numpy(x[:, None])).numpy()
    exact_entropy = -(np.exp(logp) * logp).mean() * 4  # the width of the bounds
    standard_error = estimates.std() / np.sqrt(draws)
    assert abs(estimates.mean() - exact_entropy) < 4 * standard_error + 1e-4


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_have_shape_of_means(framework, method, rows, d):
    dist = make_squashed(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)

    assert tuple(getattr(dist, method)().shape) == (rows, d)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
def test_densities_have_one_number_per_row(framework, rows, d):
    dist = make_squashed(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)
    sample = dist.sample()

    for value in [
        dist.logp(sample),
        dist.sampled_action_logp(),
        dist.kl(dist),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("form", ["array", "float64", "column"])
def test_logp_takes_actions_in_any_form(framework, method, rows, d, form):
    framework.seed(6)
    dist = make_squashed(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)
    sample = getattr(dist, method)()
    array = framework.numpy(sample)
    actions = {
        "array": array,
        "float64": array.astype(np.float64),
        "column": array.reshape(rows, d, 1),
    }[form]

    logp = framework.numpy(dist.logp(actions))

    assert logp.shape == (rows,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_logp_takes_one_flat_number_per_row(framework, method, rows):
    framework.seed(6)
    dist = make_squashed(framework, np.zeros((rows, 2), np.float32), low=-1.0, high=1.0)
    sample = getattr(dist, method)()

    logp = framework.numpy(
        dist.logp(framework.numpy(sample)[:, 0])
    )  # RLlib's Gaussian broadcasts to [B, B]

    assert logp.shape == (rows,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    half_inputs = framework.tensor(random_inputs(), dtype)
    actions = random_actions()

    logp = framework.load("SquashedGaussian")(half_inputs, None, LOW, HIGH).logp(actions)

    expected = make_squashed(framework, framework.numpy(half_inputs)).logp(actions)  # float32
    np.testing.assert_array_equal(framework.numpy(logp), framework.numpy(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_in_half_precision_are_within_bounds(framework, method, dtype):
    dist = framework.load("SquashedGaussian")(
        framework.tensor(random_inputs(), dtype), None, LOW, HIGH
    )

    sample = getattr(dist, method)()

    assert (framework.numpy(sample) >= LOW).all()
    assert (framework.numpy(sample) <= HIGH).all()
    assert np.isfinite(framework.numpy(dist.logp(sample))).all()


def test_stored_inputs_give_the_same_logp(framework):
    dist = make_squashed(framework, random_inputs())
    stored_action = framework.numpy(dist.sample())

    restored = make_squashed(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_action)), framework.numpy(dist.sampled_action_logp())
    )


# --- samples --------------------------------------------------------------------------------------


def unsquash(samples):
    """Return the normal values of samples between LOW and HIGH, in float64."""
    fractions = (samples.astype(np.float64) - LOW) / (HIGH - LOW)
    return np.arctanh(np.clip(2 * fractions - 1, -1 + 1e-7, 1 - 1e-7))


def test_unsquashed_samples_are_normal(framework):
    framework.seed(1)
    means = [0.5, -3.0, 0.0]
    log_stds = [-0.5, 0.5, 0.0]

    inputs = np.tile(np.float32([*means, *log_stds]), (10_000, 1))
    normal = unsquash(framework.numpy(make_squashed(framework, inputs).sample()))

    for i in range(3):
        std = np.exp(log_stds[i])
        assert stats.kstest(normal[:, i], stats.norm(means[i], std).cdf).pvalue > 1e-3
        # The test can tell: a slightly larger deviation does not fit.
        assert stats.kstest(normal[:, i], stats.norm(means[i], 1.1 * std).cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(1)
    inputs = np.tile(np.float32([0.5, -3.0, 0.0, -0.5, 0.5, 0.0]), (10_000, 1))

    normal = unsquash(framework.numpy(make_squashed(framework, inputs).sample()))

    between_values = np.corrcoef(normal.T)[np.triu_indices(3, 1)]
    assert np.abs(between_values).max() < 0.04


def test_samples_are_new(framework):
    dist = make_squashed(framework, random_inputs())

    samples = [framework.numpy(dist.sample()) for _ in range(3)]

    for first, second in itertools.combinations(samples, 2):
        assert (first != second).all()


def test_samples_are_new_inside_tf_function():
    @tf.function
    def sample_twice(inputs):
        dist = TFSquashed(inputs, None, LOW, HIGH)
        return dist.sample(), dist.sample()

    tf.random.set_seed(4)
    inputs = tf.constant(random_inputs())
    samples = [*sample_twice(inputs), *sample_twice(inputs)]

    for first, second in itertools.combinations(samples, 2):
        assert (first.numpy() != second.numpy()).all()


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFSquashed(inputs, None, LOW, HIGH)
        dist.sample()
        last_sample = dist.sample()
        logp = dist.sampled_action_logp()
        dist.entropy_estimate()  # samples as well, but keeps the last sample
        return last_sample, logp

    inputs = random_inputs()
    last_sample, logp = sample_twice(tf.constant(inputs))

    expected = exact_logp(inputs, last_sample.numpy())
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=1e-3)


def test_deterministic_sample_is_the_squashed_mean(framework):
    inputs = random_inputs(d=3)

    sample = make_squashed(framework, inputs, low=LOW, high=HIGH).deterministic_sample()

    expected = LOW + (np.tanh(inputs[:, :3]) + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(framework.numpy(sample), expected, rtol=1e-5, atol=1e-6)


each_bounds = pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-50.0, 100.0)])


def sample_up_to_bounds(framework, low, high):
    """Return a distribution that was sampled: 2001 means from -9 to 9, log deviation -2."""
    framework.seed(2)
    means = np.linspace(-9, 9, 2001, dtype=np.float32)
    dist = make_squashed(framework, np.stack([means, np.full_like(means, -2)], axis=1), low, high)
    dist.sample()
    return dist


@each_bounds
def test_stored_sample_has_same_logp_even_near_bounds(framework, low, high):
    dist = sample_up_to_bounds(framework, low, high)
    stored_action = framework.numpy(dist.last_sample).astype(np.float32)

    restored = make_squashed(framework, framework.numpy(dist.inputs), low, high)

    # RLlib's sample_logp() is NaN where a rescaled action is beyond 1.
    logp = framework.numpy(restored.logp(framework.tensor(stored_action)))
    np.testing.assert_array_equal(logp, framework.numpy(dist.sampled_action_logp()))
    assert np.isfinite(logp).all()


@each_bounds
def test_logp_near_bounds_is_exact(framework, low, high):
    dist = sample_up_to_bounds(framework, low, high)
    actions = framework.numpy(dist.last_sample)[:, 0]

    logp = framework.numpy(dist.sampled_action_logp())

    # In float64, from the exact distances to the bounds.
    is_inside = (actions > low) & (actions < high)
    below = actions[is_inside].astype(np.float64) - low
    above = high - actions[is_inside].astype(np.float64)
    normal_values = (np.log(below) - np.log(above)) / 2
    means = framework.numpy(dist.mean)[is_inside, 0]
    log_jacobian = np.log(2 * below * above / (high - low))
    expected = stats.norm.logpdf(normal_values, means, np.exp(-2.0)) - log_jacobian
    np.testing.assert_allclose(logp[is_inside], expected, rtol=1e-3, atol=2e-2)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, 20.0]
#: All pairs of an extreme mean and an extreme log standard deviation.
EXTREME_INPUTS = np.array(list(itertools.product(EXTREMES, EXTREMES)), np.float32)
extreme_bounds = pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-1e30, 1e30), (1e8, 1e8 + 64), (-1e-20, 1e-20)]
)


@extreme_bounds
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_of_extreme_inputs_are_within_bounds(framework, method, low, high):
    dist = make_squashed(framework, EXTREME_INPUTS, low, high)

    sample = framework.numpy(getattr(dist, method)())

    assert (sample >= np.float32(low)).all()
    assert (sample <= np.float32(high)).all()
    assert np.isfinite(framework.numpy(dist.logp(framework.tensor(sample)))).all()


@extreme_bounds
@pytest.mark.parametrize("place", ["low", "high", "middle", "below", "above"])
def test_logp_of_extreme_inputs_is_finite(framework, place, low, high):
    action = {
        "low": low,
        "high": high,
        "middle": 0.5 * low + 0.5 * high,
        "below": -3e38,
        "above": 3e38,
    }[place]
    actions = np.full(len(EXTREME_INPUTS), action, np.float32)

    logp = make_squashed(framework, EXTREME_INPUTS, low, high).logp(framework.tensor(actions))

    assert np.isfinite(framework.numpy(logp)).all()


@extreme_bounds
def test_entropy_estimate_and_kl_of_extreme_inputs_are_finite(framework, low, high):
    dist = make_squashed(framework, EXTREME_INPUTS, low, high)
    other = make_squashed(framework, EXTREME_INPUTS[::-1].copy(), low, high)

    assert np.isfinite(framework.numpy(dist.entropy_estimate())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()


def logp_at_upper_bound(dist):
    return dist.logp(np.tile(HIGH, (len(EXTREME_INPUTS), 1)))


def logp_of_rsample(dist):
    return dist.logp(dist.rsample())


def entropy_estimate(dist):
    return dist.entropy_estimate()


def rsample(dist):
    return dist.rsample()


@pytest.mark.parametrize(
    "quantity", [logp_at_upper_bound, logp_of_rsample, entropy_estimate, rsample]
)
def test_gradients_of_extreme_inputs_are_finite(framework, quantity):
    cls = framework.load("SquashedGaussian")
    inputs = EXTREME_INPUTS.repeat(3, axis=1)  # three equal means, three equal log deviations

    gradient = framework.gradient(lambda x: quantity(cls(x, None, LOW, HIGH)), at=inputs)

    assert np.isfinite(gradient).all()


def test_log_std_is_clipped_as_in_rllib(framework):
    dist = make_squashed(framework, np.float32([[0, -100], [0, 100]]), low=-1.0, high=1.0)

    np.testing.assert_allclose(framework.numpy(dist.log_std)[:, 0], [-5, 2])


def test_log_std_is_clipped_to_the_given_limits(framework):
    inputs = np.float32([[0, -100], [0, 100]])

    dist = make_squashed(framework, inputs, low=-1.0, high=1.0, log_std_min=-3.0, log_std_max=0.5)

    np.testing.assert_allclose(framework.numpy(dist.log_std)[:, 0], [-3, 0.5])


def test_log_std_min_above_default_max_is_an_error(framework):
    with pytest.raises(ConfigError, match="log_std_min must not be above"):
        make_squashed(framework, np.float32([[0, 0]]), low=-1.0, high=1.0, log_std_min=3.0)


# --- gradients ------------------------------------------------------------------------------------


def logp_of_actions(dist):
    return dist.logp(random_actions().astype(np.float64))


def kl(dist):
    return dist.kl(type(dist)(random_inputs(seed=1).astype(np.float64), None, LOW, HIGH))


def reverse_kl(dist):
    return type(dist)(random_inputs(seed=1).astype(np.float64), None, LOW, HIGH).kl(dist)


def deterministic_sample(dist):
    return dist.deterministic_sample()


@pytest.mark.parametrize(
    "quantity",
    [
        logp_of_actions,
        kl,
        reverse_kl,
        rsample,
        logp_of_rsample,
        entropy_estimate,
        deterministic_sample,
    ],
)
def test_gradient_passes_gradcheck(quantity):
    inputs = torch.from_numpy(random_inputs(seed=0).astype(np.float64)).requires_grad_()

    def compute(x):
        torch.manual_seed(3)  # the same noise each time
        return quantity(TorchSquashed(x, None, LOW, HIGH))

    assert torch.autograd.gradcheck(compute, [inputs])


@pytest.mark.parametrize("quantity", [logp_of_actions, kl, deterministic_sample])
def test_gradients_agree_between_frameworks(torch_framework, tf_framework, quantity):
    inputs = random_inputs(seed=0).astype(np.float64)

    by_torch = torch_framework.gradient(
        lambda x: quantity(TorchSquashed(x, None, LOW, HIGH)), at=inputs
    )
    by_tf = tf_framework.gradient(lambda x: quantity(TFSquashed(x, None, LOW, HIGH)), at=inputs)

    np.testing.assert_allclose(by_torch, by_tf, rtol=1e-3, atol=1e-4)


def test_logp_of_rsample_is_that_of_its_number(framework):
    framework.seed(5)
    inputs = framework.tensor(random_inputs())
    if framework.name == "torch":
        inputs.requires_grad_()  # then the drawn tensor is scored from its normal value

    dist = framework.load("SquashedGaussian")(inputs, None, LOW, HIGH)
    sample = dist.rsample()

    expected = exact_logp(random_inputs(), framework.numpy(sample))
    near = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(framework.numpy(dist.logp(sample)), expected, **near)
    np.testing.assert_allclose(
        framework.numpy(dist.logp(framework.numpy(sample))), expected, **near
    )


def test_saturated_rsample_has_a_gradient(framework):
    cls = framework.load("SquashedGaussian")
    inputs = np.float32([[15, 15, -15, -5, -5, -5]])  # three means, three log deviations

    def negative_logp(x):
        dist = cls(x, None, LOW, HIGH)
        return -dist.logp(dist.rsample())

    gradient = framework.gradient(negative_logp, at=inputs)

    # Where float32 cannot tell actions apart, an entropy bonus still leads back:
    # d(-logp)/dmean = -2 tanh(u).
    np.testing.assert_allclose(gradient[:, :3], [[-2, -2, 2]], rtol=1e-4)


def test_sample_has_no_gradient_in_torch():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    assert not TorchSquashed(inputs, None, LOW, HIGH).sample().requires_grad


def test_sample_has_no_gradient_in_tf():
    inputs = tf.Variable(random_inputs())

    with tf.GradientTape() as tape:
        sample = TFSquashed(inputs, None, LOW, HIGH).sample()

    assert tape.gradient(sample, inputs) is None


@pytest.mark.parametrize("method", ["sample", "rsample"])
def test_logp_of_sample_changed_in_place_is_of_new_values(method):
    inputs = random_inputs()
    dist = TorchSquashed(torch.from_numpy(inputs).requires_grad_(), None, LOW, HIGH)

    sample = getattr(dist, method)()
    with torch.no_grad():
        sample.copy_(torch.from_numpy(random_actions()))

    expected = exact_logp(inputs, random_actions())
    np.testing.assert_allclose(dist.logp(sample).detach(), expected, rtol=1e-4, atol=1e-4)


def test_constants_cached_in_inference_mode_serve_in_training():
    low, high = -1.2345, 6.789  # used by no other test, so that nothing is cached yet
    with torch.inference_mode():
        TorchSquashed(torch.zeros(2, 4), None, low, high).sample()

    inputs = torch.zeros(2, 4, requires_grad=True)
    dist = TorchSquashed(inputs, None, low, high)
    total = dist.logp(dist.rsample()) + dist.logp(torch.zeros(2, 2))
    total.sum().backward()

    assert torch.isfinite(inputs.grad).all()
