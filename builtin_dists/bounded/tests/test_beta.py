"""The Beta distribution within bounds: densities, samples, gradients and extreme inputs."""

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
from rlcatalog_bounded.tf import Beta as TFBeta
from rlcatalog_bounded.torch import Beta as TorchBeta

#: Bounds of three values.
LOW = np.float32([-2, 0, 10])
HIGH = np.float32([2, 0.5, 30])


def random_inputs(rows=7, d=3, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, 2 * d)).astype(np.float32)


def random_actions(rows=7):
    """Return three values per row between LOW and HIGH."""
    fractions = np.random.default_rng(9).uniform(0.02, 0.98, (rows, 3))
    return (LOW + (HIGH - LOW) * fractions).astype(np.float32)


def make_beta(framework, inputs, low=LOW, high=HIGH):
    return framework.load("Beta")(framework.tensor(inputs), None, low, high)


def concentrations(inputs):
    """Return 1 + softplus(inputs), in float64: the first and the second concentrations."""
    return np.split(1 + np.logaddexp(0, np.asarray(inputs, np.float64)), 2, axis=1)


def scipy_beta(inputs, low=LOW, high=HIGH):
    first, second = concentrations(inputs)
    width = np.float64(high) - np.float64(low)
    return stats.beta(first, second, loc=np.float64(low), scale=width)


def torch_beta(inputs):
    """Return the distribution of torch.distributions, between 0 and 1."""
    first, second = concentrations(inputs)
    return torch.distributions.Beta(torch.from_numpy(first), torch.from_numpy(second))


# --- densities ------------------------------------------------------------------------------------


def test_logp_matches_scipy(framework):
    inputs = random_inputs()
    actions = random_actions()

    logp = make_beta(framework, inputs).logp(framework.tensor(actions))  # RLlib omits the scale

    expected = scipy_beta(inputs).logpdf(actions.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (2.0, 2.5)])
@pytest.mark.parametrize("inputs", [(0.0, 0.0), (2.0, -1.0), (-20.0, -20.0), (9.0, 30.0)], ids=str)
def test_density_integrates_to_one(framework, low, high, inputs):
    x = (low + (high - low) * (np.arange(50_000) + 0.5) / 50_000).astype(np.float32)
    dist = make_beta(framework, np.tile(np.float32(inputs), (len(x), 1)), low, high)

    density = np.exp(framework.numpy(dist.logp(x)).astype(np.float64))

    np.testing.assert_allclose(density.mean() * (high - low), 1, rtol=1e-3)


def test_density_integrates_to_one_in_two_dimensions(framework):
    low = np.float32([-1, 2])
    high = np.float32([3, 2.5])
    fractions = (np.arange(300) + 0.5) / 300
    axes = [low[i] + (high[i] - low[i]) * fractions for i in (0, 1)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2).astype(np.float32)

    inputs = np.tile(np.float32([0.3, 2, -0.7, 1]), (len(grid), 1))
    logp = framework.numpy(make_beta(framework, inputs, low, high).logp(grid))

    area = np.prod(high - low)
    np.testing.assert_allclose(np.exp(logp.astype(np.float64)).mean() * area, 1, rtol=1e-3)


def test_entropy_is_sum_of_scipys(framework):
    inputs = random_inputs()

    entropy = make_beta(framework, inputs).entropy()

    expected = scipy_beta(inputs).entropy().sum(axis=1)
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-4, atol=1e-4)


def test_entropy_is_exact(framework):
    assert framework.load("Beta").entropy_kind == "exact"


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(0)
    draws = 10_000
    inputs = random_inputs(rows=1)

    estimates = framework.numpy(
        make_beta(framework, np.tile(inputs, (draws, 1))).entropy_estimate()
    )

    exact = scipy_beta(inputs).entropy().sum()
    standard_error = estimates.std() / np.sqrt(draws)
    assert abs(estimates.mean() - exact) < 4 * standard_error


def test_kl_is_sum_of_torch_distributions(framework):
    p = random_inputs(seed=0)
    q = random_inputs(seed=1)

    kl = make_beta(framework, p).kl(make_beta(framework, q))

    expected = torch.distributions.kl_divergence(torch_beta(p), torch_beta(q)).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-4, atol=1e-5)


def test_kl_of_same_inputs_is_zero(framework):
    inputs = random_inputs()

    kl = make_beta(framework, inputs).kl(make_beta(framework, inputs))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-5)


def test_kl_with_other_bounds_is_an_error(framework):
    inputs = random_inputs()

    with pytest.raises(ModelContractError, match="same bounds"):
        make_beta(framework, inputs, low=LOW).kl(make_beta(framework, inputs, low=LOW - 1))


def test_kl_with_other_kind_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expects another Beta"):
        make_beta(framework, random_inputs()).kl(object())


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_beta(framework, random_inputs(seed=0))
        other = make_beta(framework, random_inputs(seed=1))
        tensors = [
            dist.logp(random_actions()),
            dist.entropy(),
            dist.kl(other),
            dist.deterministic_sample(),
        ]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, rtol=1e-5, atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_have_a_column_per_value(framework, method, rows, d):
    dist = make_beta(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)

    assert tuple(getattr(dist, method)().shape) == (rows, d)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
def test_densities_have_one_number_per_row(framework, rows, d):
    dist = make_beta(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)
    sample = dist.sample()

    # RLlib returns [B, d] in PyTorch, and nothing in TensorFlow.
    for value in [
        dist.logp(sample),
        dist.sampled_action_logp(),
        dist.entropy(),
        dist.multi_entropy(),
        dist.kl(dist),
        dist.multi_kl(dist),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
@pytest.mark.parametrize("form", ["array", "float64", "column"])
def test_logp_takes_actions_in_any_form(framework, method, rows, d, form):
    dist = make_beta(framework, np.zeros((rows, 2 * d), np.float32), low=-1.0, high=1.0)
    sample = getattr(dist, method)()
    array = framework.numpy(sample)
    actions = {
        "array": array,
        "float64": array.astype(np.float64),
        "column": array.reshape(rows, d, 1),
    }[form]

    logp = framework.numpy(dist.logp(actions))

    assert logp.shape == (rows,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 7])
def test_logp_takes_one_flat_number_per_row(framework, rows):
    dist = make_beta(framework, np.zeros((rows, 2), np.float32), low=-1.0, high=1.0)
    sample = dist.sample()

    logp = framework.numpy(dist.logp(framework.numpy(sample)[:, 0]))

    assert logp.shape == (rows,)
    np.testing.assert_allclose(logp, framework.numpy(dist.logp(sample)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logp_in_half_precision_is_that_of_widened_inputs(framework, dtype):
    half_inputs = framework.tensor(random_inputs(), dtype)
    actions = random_actions()

    dist = framework.load("Beta")(half_inputs, None, LOW, HIGH)

    expected = make_beta(framework, framework.numpy(half_inputs)).logp(actions)  # float32
    np.testing.assert_array_equal(framework.numpy(dist.logp(actions)), framework.numpy(expected))
    assert np.isfinite(framework.numpy(dist.sample())).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_extreme_half_precision_gives_finite_numbers(framework, dtype):
    dist = framework.load("Beta")(framework.tensor(np.float32([[3e4, -3e4]]), dtype))

    assert np.isfinite(framework.numpy(dist.sample())).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.logp(np.float32([[1]])))).all()


def test_stored_inputs_give_the_same_logp(framework):
    inputs = random_inputs()
    dist = make_beta(framework, inputs)
    stored_action = framework.numpy(dist.sample())

    restored = make_beta(framework, framework.numpy(dist.inputs))

    # RLlib stores concentrations, from which it rebuilds a different distribution.
    np.testing.assert_array_equal(framework.numpy(dist.inputs), inputs)
    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_action)), framework.numpy(dist.sampled_action_logp())
    )


# --- samples --------------------------------------------------------------------------------------


def test_samples_follow_the_density(framework):
    framework.seed(1)
    inputs = np.tile(np.float32([-20, 0, 2, 1, 0, 5]), (10_000, 1))

    samples = framework.numpy(make_beta(framework, inputs).sample()).astype(np.float64)

    first, second = concentrations(inputs[:1])
    for i in range(3):
        bounds = {"loc": float(LOW[i]), "scale": float(HIGH[i] - LOW[i])}
        exact = stats.beta(first[0, i], second[0, i], **bounds)
        assert stats.kstest(samples[:, i], exact.cdf).pvalue > 1e-3
        # The test can tell: a slightly larger concentration does not fit.
        wrong = stats.beta(1.1 * first[0, i], second[0, i], **bounds)
        assert stats.kstest(samples[:, i], wrong.cdf).pvalue < 1e-3


def test_samples_are_independent(framework):
    framework.seed(1)
    inputs = np.tile(np.float32([-20, 0, 2, 1, 0, 5]), (10_000, 1))

    samples = framework.numpy(make_beta(framework, inputs).sample())

    between_values = np.corrcoef(samples.T)[np.triu_indices(3, 1)]
    assert np.abs(between_values).max() < 0.04


def test_samples_are_new(framework):
    dist = make_beta(framework, random_inputs())

    samples = [framework.numpy(dist.sample()) for _ in range(3)]

    for first, second in itertools.combinations(samples, 2):
        assert (first != second).all()


def test_samples_are_new_inside_tf_function():
    @tf.function
    def sample_twice(inputs):
        dist = TFBeta(inputs, None, LOW, HIGH)
        return dist.sample(), dist.sample()

    inputs = tf.constant(random_inputs())
    samples = [*sample_twice(inputs), *sample_twice(inputs)]

    for first, second in itertools.combinations(samples, 2):
        assert (first.numpy() != second.numpy()).all()


def test_sampled_action_logp_in_tf_function_is_of_last_sample():
    @tf.function
    def sample_twice(inputs):
        dist = TFBeta(inputs, None, LOW, HIGH)
        dist.sample()
        return dist.sample(), dist.sampled_action_logp(), dist.entropy()

    inputs = random_inputs()
    last_sample, logp, _ = sample_twice(tf.constant(inputs))

    expected = scipy_beta(inputs).logpdf(last_sample.numpy()).sum(axis=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=1e-3)


def test_deterministic_sample_is_the_mean(framework):
    inputs = random_inputs()

    sample = make_beta(framework, inputs).deterministic_sample()

    expected = scipy_beta(inputs).mean()
    np.testing.assert_allclose(framework.numpy(sample), expected, rtol=1e-5, atol=1e-5)


def sample_close_to_bounds(framework):
    """Return a sampled distribution: the first value is close to LOW, the second to HIGH."""
    framework.seed(2)
    dist = make_beta(framework, np.tile(np.float32([-3, 60, 0, 60, -3, 0]), (500, 1)))
    dist.sample()
    return dist


def test_stored_sample_has_same_logp_close_to_bounds(framework):
    dist = sample_close_to_bounds(framework)
    stored_action = framework.numpy(dist.last_sample).copy()

    restored = make_beta(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_action)), framework.numpy(dist.sampled_action_logp())
    )


def test_sampled_action_logp_close_to_bounds_is_exact(framework):
    dist = sample_close_to_bounds(framework)
    actions = framework.numpy(dist.last_sample)

    logp = framework.numpy(dist.sampled_action_logp())

    is_inside = ((actions > LOW) & (actions < HIGH)).all(axis=1)
    exact = scipy_beta(framework.numpy(dist.inputs))
    expected = exact.logpdf(actions.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(logp[is_inside], expected[is_inside], rtol=1e-3, atol=1e-2)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = np.float32([0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, 20])
#: All pairs of extreme inputs, for one value.
EXTREME_INPUTS = np.array(list(itertools.product(EXTREMES, EXTREMES)), np.float32)
extreme_bounds = pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-1e30, 1e30), (1e8, 1e8 + 64), (-1e-20, 1e-20)]
)


@extreme_bounds
@pytest.mark.parametrize("method", ["sample", "rsample", "deterministic_sample"])
def test_samples_of_extreme_inputs_are_within_bounds(framework, method, low, high):
    dist = make_beta(framework, EXTREME_INPUTS, low, high)

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

    logp = make_beta(framework, EXTREME_INPUTS, low, high).logp(framework.tensor(actions))

    assert np.isfinite(framework.numpy(logp)).all()


@extreme_bounds
def test_entropy_and_kl_of_extreme_inputs_are_finite(framework, low, high):
    dist = make_beta(framework, EXTREME_INPUTS, low, high)
    other = make_beta(framework, EXTREME_INPUTS[::-1].copy(), low, high)

    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.entropy_estimate())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()
    assert (framework.numpy(dist.kl(other)) > -1e-3).all()


def logp_at_upper_bound(dist):
    return dist.logp(np.tile(HIGH, (len(EXTREME_INPUTS), 1)))


def logp_of_rsample(dist):
    return dist.logp(dist.rsample())


def entropy(dist):
    return dist.entropy()


def kl_from_reversed(dist):
    reversed_inputs = EXTREME_INPUTS.repeat(3, axis=1)[::-1].copy()
    return dist.kl(type(dist)(reversed_inputs, None, LOW, HIGH))


@pytest.mark.parametrize(
    "quantity", [logp_at_upper_bound, logp_of_rsample, entropy, kl_from_reversed]
)
def test_gradients_of_extreme_inputs_are_finite(framework, quantity):
    cls = framework.load("Beta")
    inputs = EXTREME_INPUTS.repeat(3, axis=1)  # three equal values

    gradient = framework.gradient(lambda x: quantity(cls(x, None, LOW, HIGH)), at=inputs)

    assert np.isfinite(gradient).all()


# --- gradients ------------------------------------------------------------------------------------


def logp_of_actions(dist):
    return dist.logp(random_actions())


def kl(dist):
    return dist.kl(type(dist)(random_inputs(seed=1).astype(np.float64), None, LOW, HIGH))


def reverse_kl(dist):
    return type(dist)(random_inputs(seed=1).astype(np.float64), None, LOW, HIGH).kl(dist)


def deterministic_sample(dist):
    return dist.deterministic_sample()


@pytest.mark.parametrize(
    "quantity", [logp_of_actions, entropy, kl, reverse_kl, deterministic_sample]
)
def test_gradient_passes_gradcheck(quantity):
    inputs = torch.from_numpy(random_inputs(seed=0).astype(np.float64)).requires_grad_()

    assert torch.autograd.gradcheck(lambda x: quantity(TorchBeta(x, None, LOW, HIGH)), [inputs])


@pytest.mark.parametrize("quantity", [logp_of_actions, entropy, kl])
def test_gradients_agree_between_frameworks(torch_framework, tf_framework, quantity):
    inputs = random_inputs(seed=0).astype(np.float64)

    by_torch = torch_framework.gradient(
        lambda x: quantity(TorchBeta(x, None, LOW, HIGH)), at=inputs
    )
    by_tf = tf_framework.gradient(lambda x: quantity(TFBeta(x, None, LOW, HIGH)), at=inputs)

    np.testing.assert_allclose(by_torch, by_tf, rtol=1e-3, atol=1e-4)


def test_rsample_gradient_has_expectation_of_mean_gradient(framework):
    framework.seed(3)
    cls = framework.load("Beta")
    draws = 20_000
    inputs = random_inputs(rows=1)

    of_samples = framework.gradient(
        lambda x: cls(x, None, LOW, HIGH).rsample(), at=np.tile(inputs, (draws, 1))
    )
    of_mean = framework.gradient(
        lambda x: cls(x, None, LOW, HIGH).deterministic_sample(), at=inputs
    )[0]

    distance = np.abs(of_samples.mean(axis=0) - of_mean)
    standard_error = of_samples.std(axis=0) / np.sqrt(draws)
    assert (distance < 4 * standard_error + 1e-5).all()
    assert np.abs(of_mean).min() > 1e-4


def test_sample_has_no_gradient_in_torch():
    inputs = torch.from_numpy(random_inputs()).requires_grad_()

    assert not TorchBeta(inputs, None, LOW, HIGH).sample().requires_grad


def test_sample_has_no_gradient_in_tf():
    inputs = tf.Variable(random_inputs())

    with tf.GradientTape() as tape:
        sample = TFBeta(inputs, None, LOW, HIGH).sample()

    assert tape.gradient(sample, inputs) is None


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((2, 3), 6)], ids=str)
def test_policy_acts_and_scores_within_bounds(framework, shape, width):
    low = np.full(shape, -0.5, np.float32)
    high = np.full(shape, 3, np.float32)
    box = spaces.Box(low, high, dtype=np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "beta", "action_bounds": "affine"}
    policy = build(spaces.Discrete(3), box, config, framework.name)

    step = policy.act(np.array([0, 1, 2, 0]))

    # Raw actions are within the bounds already, and not changed.
    np.testing.assert_array_equal(step.action.reshape(4, width), step.raw_action)
    assert step.raw_action.shape == (4, width)
    assert all(np.asarray(action) in box for action in step.action)
    exact = scipy_beta(step.dist_inputs, low=-0.5, high=3)
    expected_logp = exact.logpdf(step.raw_action).sum(axis=1)
    np.testing.assert_allclose(step.logp, expected_logp, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("shape", "width"), [((), 1), ((2, 3), 6)], ids=str)
def test_output_shape_is_two_concentrations_per_value(framework, shape, width):
    box = spaces.Box(-0.5, 3, shape, np.float32)

    assert framework.load("Beta").required_model_output_shape(box, {}) == 2 * width


def test_catalog_prefers_diag_gaussian(framework):
    box = spaces.Box(-0.5, 3, (2, 3), np.float32)

    dist_class, _ = ModelCatalog.get_action_dist(box, {}, framework=framework.name)

    assert dist_class.__name__ == "DiagGaussian"


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
        make_beta(framework, random_inputs(), low=1.0, high=1.0)


def test_empty_mask_leaves_inputs_alone(framework):
    inputs = framework.tensor(random_inputs(rows=7))

    assert framework.load("Beta").masked(inputs, np.ones((7, 0), bool)) is inputs


def test_mask_is_an_error(framework):
    inputs = framework.tensor(random_inputs(rows=7))

    with pytest.raises(NotServedError, match="does not support action masks") as caught:
        framework.load("Beta").masked(inputs, np.ones((7, 2), bool))

    assert "Beta" in str(caught.value)
    assert "but got a mask with 2 columns" in str(caught.value)
