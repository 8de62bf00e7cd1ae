"""The diagonal Gaussian against SciPy, torch.distributions, numerical integrals and one framework
against the other.
"""

from __future__ import annotations

import itertools
import math

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

D, ROWS = 3, 6
RANDOM = np.random.default_rng(0)
INPUTS = np.concatenate(
    [RANDOM.normal(0, 2, (ROWS, D)), RANDOM.uniform(-3, 1, (ROWS, D))], axis=1
).astype(np.float32)
OTHER = np.concatenate(
    [RANDOM.normal(0, 2, (ROWS, D)), RANDOM.uniform(-2, 1, (ROWS, D))], axis=1
).astype(np.float32)
ACTIONS = RANDOM.normal(0, 2, (ROWS, D)).astype(np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchGaussian, TFGaussian], ids=["torch", "tf"])


def tensor(cls, value):
    return torch.from_numpy(np.asarray(value)) if cls is TorchGaussian else tf.constant(value)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def make(cls, inputs=INPUTS):
    return cls(tensor(cls, inputs))


def parameters(inputs=INPUTS):
    mean, log_std = np.split(np.asarray(inputs, np.float64), 2, axis=1)
    return mean, np.exp(log_std)


def truth(inputs=INPUTS):
    mean, std = (torch.from_numpy(part) for part in parameters(inputs))
    return torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)


def seed(value):
    torch.manual_seed(value)
    tf.random.set_seed(value)


@frameworks
def test_its_parameters_can_be_read(cls):
    mean, std = parameters()
    np.testing.assert_allclose(array(make(cls).mean), mean, rtol=1e-6)
    np.testing.assert_allclose(array(make(cls).std), std, rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_logp_is_scipys(cls):
    mean, std = parameters()
    expected = stats.norm.logpdf(ACTIONS, mean, std).sum(axis=1)
    np.testing.assert_allclose(array(make(cls).logp(tensor(cls, ACTIONS))), expected, rtol=1e-5)


@frameworks
def test_the_density_integrates_to_one(cls):
    inputs = np.array([[0.3, -0.5, -0.7, 0.2]], np.float32)  # two dimensions
    axes = np.linspace(-8, 8, 401, dtype=np.float32)
    grid = np.stack(np.meshgrid(axes, axes), axis=-1).reshape(-1, 2)
    logp = array(make(cls, np.tile(inputs, (len(grid), 1))).logp(tensor(cls, grid))).astype(
        np.float64
    )
    cell = float(axes[1] - axes[0]) ** 2
    assert math.isclose(np.exp(logp).sum() * cell, 1, rel_tol=1e-4)
    # And -Σ p log p over the same grid is the entropy.
    entropy = -(np.exp(logp) * logp).sum() * cell
    np.testing.assert_allclose(array(make(cls, inputs).entropy()), entropy, rtol=1e-4)


@frameworks
def test_entropy_and_kl_are_those_of_torch_distributions(cls):
    one, other = make(cls), make(cls, OTHER)
    np.testing.assert_allclose(array(one.entropy()), truth().entropy(), rtol=1e-5, atol=1e-5)
    expected = torch.distributions.kl_divergence(truth(), truth(OTHER))
    np.testing.assert_allclose(array(one.kl(other)), expected, rtol=1e-5)
    assert not np.allclose(array(one.kl(other)), array(other.kl(one)))
    np.testing.assert_allclose(array(one.kl(make(cls))), 0, atol=1e-6)


@frameworks
def test_kl_is_the_integral(cls):
    p, q = np.array([[0.5, -0.3]], np.float32), np.array([[-0.5, 0.4]], np.float32)
    x = np.linspace(-12, 12, 20001)
    logp, logq = (stats.norm.logpdf(x, float(i[0, 0]), float(np.exp(i[0, 1]))) for i in (p, q))
    expected = np.trapezoid(np.exp(logp) * (logp - logq), x)
    np.testing.assert_allclose(array(make(cls, p).kl(make(cls, q))), expected, rtol=1e-5)


@frameworks
def test_the_distribution_has_one_component(cls):
    one, other = make(cls), make(cls, OTHER)
    np.testing.assert_array_equal(array(one.multi_entropy()), array(one.entropy()))
    np.testing.assert_array_equal(array(one.multi_kl(other)), array(one.kl(other)))
    assert cls.entropy_kind == "exact"


def test_the_frameworks_agree():
    one, other = make(TorchGaussian), make(TFGaussian)
    np.testing.assert_allclose(
        array(one.logp(ACTIONS)), array(other.logp(ACTIONS)), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(array(one.entropy()), array(other.entropy()), rtol=1e-5, atol=1e-5)
    kl = array(one.kl(make(TorchGaussian, OTHER))), array(other.kl(make(TFGaussian, OTHER)))
    np.testing.assert_allclose(*kl, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        array(one.deterministic_sample()), array(other.deterministic_sample())
    )


# --- shapes and types -----------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_samples_are_rows_and_the_rest_one_number_per_row(cls, rows, d):
    dist = make(cls, np.zeros((rows, 2 * d), np.float32))
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert tuple(sample.shape) == (rows, d)
        assert sample.dtype == dist.inputs.dtype
        for value in (dist.logp(sample), dist.entropy(), dist.kl(dist), dist.sampled_action_logp()):
            assert tuple(value.shape) == (rows,)
    assert tuple(dist.entropy_estimate().shape) == (rows,)


@frameworks
def test_a_single_number_per_action_may_come_flat(cls):
    # RLlib's logp broadcast such actions to [B, B] and summed.
    inputs = INPUTS[:, [0, 3]]
    mean, std = parameters(inputs)
    expected = stats.norm.logpdf(ACTIONS[:, :1], mean, std)[:, 0]
    for form in (ACTIONS[:, 0], ACTIONS[:, :1]):
        found = array(make(cls, inputs).logp(tensor(cls, form.copy())))
        assert found.shape == (ROWS,)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@frameworks
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_actions_may_come_in_any_type_and_the_result_keeps_its_own(cls, dtype):
    actions = np.round(ACTIONS).astype(dtype)
    mean, std = parameters()
    for form in (actions, tensor(cls, actions)):
        found = make(cls).logp(form)
        np.testing.assert_allclose(
            array(found), stats.norm.logpdf(actions, mean, std).sum(axis=1), rtol=1e-5
        )
        assert array(found).dtype == np.float32


@frameworks
def test_actions_may_come_in_the_shape_of_their_box(cls):
    inputs = np.concatenate([np.zeros((2, 6)), np.zeros((2, 6))], axis=1).astype(np.float32)
    actions = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 10
    found = array(make(cls, inputs).logp(tensor(cls, actions)))
    np.testing.assert_allclose(found, stats.norm.logpdf(actions).sum(axis=(1, 2)), rtol=1e-5)


@frameworks
def test_inputs_may_be_an_array_and_are_all_it_takes(cls):
    dist = cls(INPUTS.copy())
    stored = array(dist.inputs)
    np.testing.assert_array_equal(stored, INPUTS)
    np.testing.assert_array_equal(array(cls(stored).logp(ACTIONS)), array(dist.logp(ACTIONS)))


# --- samples --------------------------------------------------------------------------------------

DRAWS = 10_000
FIXED = np.array([0.5, -3.0, 0.0, -1.5, 0.5, 0.0], np.float32)


@frameworks
def test_samples_are_normal_and_independent(cls):
    seed(0)
    samples = array(make(cls, np.tile(FIXED, (DRAWS, 1))).sample()).astype(np.float64)
    mean, std = parameters(FIXED[None])
    for i in range(D):
        assert stats.kstest(samples[:, i], stats.norm(mean[0, i], std[0, i]).cdf).pvalue > 1e-3
        # The control.
        assert (
            stats.kstest(samples[:, i], stats.norm(mean[0, i], 1.1 * std[0, i]).cdf).pvalue < 1e-3
        )
    correlation = np.corrcoef(samples.T)[np.triu_indices(D, 1)]
    assert np.abs(correlation).max() < 4 / np.sqrt(DRAWS)
    # Nor along the rows.
    assert abs(np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]) < 4 / np.sqrt(DRAWS)


@frameworks
def test_each_sample_is_fresh(cls):
    dist = make(cls)
    samples = [array(dist.sample()) for _ in range(4)]
    for one, other in itertools.combinations(samples, 2):
        assert (one != other).all()


def test_each_sample_is_fresh_inside_a_trace():
    @tf.function
    def draw(inputs):
        dist = TFGaussian(inputs)
        return dist.sample(), dist.sample(), dist.sampled_action_logp()

    seed(1)
    first, second, logp = draw(tf.constant(INPUTS))
    third, *_ = draw(tf.constant(INPUTS))
    for one, other in itertools.combinations((first, second, third), 2):
        assert (array(one) != array(other)).all()
    mean, std = parameters()
    np.testing.assert_allclose(
        logp, stats.norm.logpdf(array(second), mean, std).sum(axis=1), rtol=1e-4
    )
    samples = array(draw(tf.constant(np.tile(FIXED, (DRAWS, 1))))[0])
    assert stats.kstest(samples[:, 0], stats.norm(0.5, np.exp(-1.5)).cdf).pvalue > 1e-3


@frameworks
def test_a_seed_repeats_a_sample(cls):
    seed(2)
    one = array(make(cls).sample())
    seed(2)
    np.testing.assert_array_equal(array(make(cls).sample()), one)


@frameworks
def test_the_logp_of_the_last_sample(cls):
    dist = make(cls)
    with pytest.raises(StaleOutputError, match=r"call sample\(\) before sampled_action_logp\(\)"):
        dist.sampled_action_logp()
    for draw in (dist.sample, dist.deterministic_sample, dist.sample):
        sample = draw()
        np.testing.assert_array_equal(array(dist.last_sample), array(sample))
        np.testing.assert_array_equal(array(dist.sampled_action_logp()), array(dist.logp(sample)))


@frameworks
def test_the_most_likely_action_is_the_mean(cls):
    np.testing.assert_array_equal(array(make(cls).deterministic_sample()), INPUTS[:, :D])


@frameworks
def test_the_estimate_of_the_entropy_is_unbiased(cls):
    seed(3)
    estimates = array(make(cls, np.tile(FIXED, (DRAWS, 1))).entropy_estimate())
    exact = float(truth(FIXED[None]).entropy()[0])
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / np.sqrt(DRAWS)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -1e-6]


def assert_finite(cls, pairs):
    dist = make(cls, np.array(pairs, np.float32))
    seed(4)
    for _ in range(3):
        for draw in (dist.sample, dist.deterministic_sample):
            sample = draw()
            assert np.isfinite(array(sample)).all()
            assert np.isfinite(array(dist.logp(sample))).all()
    assert np.isfinite(array(dist.entropy())).all()
    assert np.isfinite(array(dist.kl(dist))).all()


@frameworks
def test_extreme_means_give_finite_numbers(cls):
    assert_finite(cls, list(itertools.product(EXTREMES, [0.0, 1.0, -1.0, -20.0, 20.0])))


@frameworks
def test_tiny_and_huge_scales_give_finite_numbers(cls):
    assert_finite(
        cls, list(itertools.product([0.0, 1.0, -1e8, 1.1e34], [-40.0, -80.0, 40.0, 60.0]))
    )


@frameworks
@pytest.mark.parametrize("log_std", [-100.0, 100.0, -1e8, 1e8, -1.1e34, 1.1e34])
def test_scales_beyond_what_float32_holds_give_finite_numbers(cls, log_std):
    assert_finite(cls, list(itertools.product(EXTREMES, [log_std])))


@frameworks
def test_a_tiny_scale_is_scored_exactly(cls):
    inputs = np.array([[0.0, -30.0]], np.float32)
    actions = np.array([[2e-13]], np.float32)
    expected = stats.norm.logpdf(actions.astype(np.float64), 0, np.exp(-30.0))[0]
    np.testing.assert_allclose(
        array(make(cls, inputs).logp(tensor(cls, actions))), expected, rtol=1e-4
    )


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_are_those_of_finite_differences():
    inputs = torch.from_numpy(INPUTS.astype(np.float64)).requires_grad_()
    other = torch.from_numpy(OTHER.astype(np.float64))
    actions = torch.from_numpy(ACTIONS.astype(np.float64))
    for function in (
        lambda x: TorchGaussian(x).logp(actions),
        lambda x: TorchGaussian(x).entropy(),
        lambda x: TorchGaussian(x).kl(TorchGaussian(other)),
        lambda x: TorchGaussian(other).kl(TorchGaussian(x)),
    ):
        assert torch.autograd.gradcheck(function, (inputs,))


def test_gradients_in_tensorflow_are_pytorchs():
    for name, function in {
        "logp": lambda d, o: d.logp(ACTIONS),
        "entropy": lambda d, o: d.entropy(),
        "kl": lambda d, o: d.kl(o),
        "reverse kl": lambda d, o: o.kl(d),
    }.items():
        inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
        function(TorchGaussian(inputs), make(TorchGaussian, OTHER)).sum().backward()
        variable = tf.Variable(INPUTS)
        with tf.GradientTape() as tape:
            value = function(TFGaussian(variable), make(TFGaussian, OTHER))
        found = tape.gradient(value, variable).numpy()
        np.testing.assert_allclose(found, inputs.grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@frameworks
def test_a_reparameterised_draw_carries_its_gradient(cls):
    # x = mean + std ε, hence dx/dmean = 1 and dx/dlog_std = x - mean.
    seed(5)
    if cls is TorchGaussian:
        inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
        draw = cls(inputs).rsample()
        draw.sum().backward()
        gradient = inputs.grad.numpy()
    else:
        variable = tf.Variable(INPUTS)
        with tf.GradientTape() as tape:
            draw = cls(variable).rsample()
        gradient = tape.gradient(draw, variable).numpy()
    np.testing.assert_allclose(gradient[:, :D], 1)
    np.testing.assert_allclose(gradient[:, D:], array(draw) - INPUTS[:, :D], rtol=1e-4, atol=1e-5)


@frameworks
def test_the_gradient_of_the_estimated_entropy_is_the_entropys(cls):
    # Per draw: d(-logp)/dmean = 0 and d(-logp)/dlog_std = 1, whatever the noise was.
    if cls is TorchGaussian:
        inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
        cls(inputs).entropy_estimate().sum().backward()
        gradient = inputs.grad.numpy()
    else:
        variable = tf.Variable(INPUTS)
        with tf.GradientTape() as tape:
            value = cls(variable).entropy_estimate()
        gradient = tape.gradient(value, variable).numpy()
    np.testing.assert_allclose(gradient, np.tile([0, 0, 0, 1, 1, 1], (ROWS, 1)), atol=1e-4)


def test_a_sample_carries_no_gradient():
    inputs = torch.from_numpy(INPUTS.copy()).requires_grad_()
    dist = TorchGaussian(inputs)
    assert not dist.sample().requires_grad
    # The score function's gradient, as policy gradients need it: that of logp at a fixed action.
    dist.logp(dist.last_sample).sum().backward()
    expected = torch.from_numpy(INPUTS.copy()).requires_grad_()
    TorchGaussian(expected).logp(dist.last_sample.clone()).sum().backward()
    np.testing.assert_allclose(inputs.grad, expected.grad, rtol=1e-5)
    variable = tf.Variable(INPUTS)
    with tf.GradientTape() as tape:
        sample = TFGaussian(variable).sample()
    assert tape.gradient(sample, variable) is None


@frameworks
@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0, 1e4])
def test_the_density_of_a_sample_is_that_of_the_stored_number(cls, mean):
    # Engines store float32 numbers, and score those later: a ratio of densities must start at one.
    seed(6)
    dist = make(cls, np.tile(np.float32([mean, -10.0]), (500, 1)))
    sample = dist.sample()
    stored = array(sample).copy()
    expected = stats.norm.logpdf(stored.astype(np.float64), mean, np.exp(-10.0)).sum(axis=1)
    np.testing.assert_allclose(
        array(dist.logp(tensor(cls, stored))), expected, rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(array(dist.logp(sample)), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(array(dist.sampled_action_logp()), expected, rtol=1e-3, atol=1e-3)


def test_a_sample_changed_in_place_is_scored_as_it_is():
    dist = make(TorchGaussian)
    sample = dist.sample()
    sample.clamp_(-0.1, 0.1)
    mean, std = parameters()
    np.testing.assert_allclose(
        dist.logp(sample), stats.norm.logpdf(sample, mean, std).sum(axis=1), rtol=1e-4
    )


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchGaussian), ("tf", TFGaussian)])
@pytest.mark.parametrize(("shape", "size"), [((), 2), ((1,), 2), ((3,), 6), ((2, 3), 12)])
def test_the_catalog_finds_it(framework, cls, shape, size):
    box = spaces.Box(-1, 1, shape, np.float32)
    found, outputs = ModelCatalog.get_action_dist(box, {}, framework=framework)
    assert (found, outputs) == (cls, size)
    assert type(outputs) is int
    assert cls.required_model_output_shape(box, {}) == size
    assert cls.framework_of_class == framework


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_policy_over_a_box_of_any_rank(framework, shape):
    box = spaces.Box(-0.5, 0.5, shape, np.float32)
    policy = build(spaces.Discrete(3), box, {"fcnet_hiddens": [4]}, framework)
    step = policy.act(np.array([0, 1, 2, 0]))
    assert step.action.shape == (4, *shape)
    assert all(np.asarray(action) in box for action in step.action)
    assert step.raw_action.shape == (4, max(1, int(np.prod(shape))))
    mean, std = parameters(step.dist_inputs)
    np.testing.assert_allclose(
        step.logp, stats.norm.logpdf(step.raw_action, mean, std).sum(axis=1), rtol=1e-4
    )


@frameworks
def test_it_takes_no_mask(cls):
    with pytest.raises(NotServedError, match="DiagGaussian does not support action masks"):
        cls.masked(tensor(cls, INPUTS), tensor(cls, INPUTS > 0))


@frameworks
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiBinary(2)], ids=str)
def test_another_space_is_refused_with_a_typed_error(cls, space):
    with pytest.raises(CatalogError, match="Box"):
        cls.required_model_output_shape(space, {})


def test_named_for_another_space_it_is_refused():
    with pytest.raises(CatalogError, match="Box"):
        build(spaces.Discrete(3), spaces.Discrete(3), {"custom_action_dist": "diag_gaussian"})
