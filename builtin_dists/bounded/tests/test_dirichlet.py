"""Dirichlet against SciPy, torch.distributions, numerical integrals and one framework against the
other.
"""

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

pytestmark = pytest.mark.twins

N, ROWS = 4, 7
RANDOM = np.random.default_rng(0)
INPUTS, OTHER = (RANDOM.normal(0, 1.5, (ROWS, N)).astype(np.float32) for _ in range(2))
POINTS = RANDOM.dirichlet(np.ones(N), ROWS).astype(np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchDirichlet, TFDirichlet], ids=["torch", "tf"])


def tensor(cls, value, dtype=None):
    if cls is TorchDirichlet:
        made = torch.as_tensor(value)
        return made if dtype is None else made.to(getattr(torch, dtype))
    return tf.constant(value) if dtype is None else tf.cast(tf.constant(value), dtype)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def make(cls, inputs=INPUTS, components=None):
    return cls(tensor(cls, inputs), None, components)


def truth(inputs=INPUTS):
    return torch.distributions.Dirichlet(
        torch.from_numpy(np.exp(np.asarray(inputs, np.float64)) + 1e-7)
    )


def seed(value):
    torch.manual_seed(value)
    tf.random.set_seed(value)


def gradient(cls, function, inputs=INPUTS):
    """The gradient of the sum of a function of the distribution."""
    if cls is TorchDirichlet:
        leaf = torch.from_numpy(inputs.copy()).requires_grad_()
        function(cls(leaf)).sum().backward()
        return leaf.grad.numpy()
    variable = tf.Variable(inputs)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(function(cls(variable)))
    return tape.gradient(value, variable).numpy()


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_dirichlet_logp_is_scipys(cls):
    exact = POINTS.astype(np.float64) / POINTS.astype(np.float64).sum(axis=1, keepdims=True)
    expected = [
        stats.dirichlet.logpdf(x, np.exp(i.astype(np.float64)))
        for x, i in zip(exact, INPUTS, strict=True)
    ]
    np.testing.assert_allclose(
        array(make(cls).logp(tensor(cls, POINTS))), expected, rtol=1e-4, atol=1e-5
    )


@frameworks
def test_the_dirichlet_density_integrates_to_one(cls):
    # Two shares: over the first one. Three shares: over the triangle of the first two.
    x = (np.arange(50_000) + 0.5) / 50_000
    inputs = np.tile(np.float32([[0.7, 1.2]]), (len(x), 1))
    logp = array(make(cls, inputs).logp(np.stack([x, 1 - x], 1))).astype(np.float64)
    np.testing.assert_allclose(np.exp(logp).mean(), 1, rtol=1e-3)
    axis = (np.arange(400) + 0.5) / 400
    x, y = (a.ravel() for a in np.meshgrid(axis, axis))
    points = np.stack([x, y, 1 - x - y], 1)[x + y < 1 - 1e-9]
    inputs = np.tile(np.float32([[0.7, 1.2, 1.0]]), (len(points), 1))
    logp = array(make(cls, inputs).logp(points)).astype(np.float64)
    np.testing.assert_allclose(np.exp(logp).sum() / 400**2, 1, rtol=1e-3)


@frameworks
def test_dirichlet_entropy_and_kl_are_those_of_torch_distributions(cls):
    one, other = make(cls), make(cls, OTHER)
    np.testing.assert_allclose(array(one.entropy()), truth().entropy(), rtol=1e-4, atol=1e-4)
    expected = torch.distributions.kl_divergence(truth(), truth(OTHER))
    np.testing.assert_allclose(array(one.kl(other)), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(array(one.kl(make(cls))), 0, atol=1e-5)
    np.testing.assert_array_equal(array(one.multi_kl(other)), array(one.kl(other)))
    assert cls.entropy_kind == "exact"


@frameworks
def test_the_estimate_of_the_dirichlet_entropy_is_unbiased(cls):
    seed(0)
    estimates = array(make(cls, np.tile(INPUTS[:1], (10_000, 1))).entropy_estimate())
    assert abs(estimates.mean() - float(truth(INPUTS[:1]).entropy())) < 4 * estimates.std() / 100


@frameworks
def test_several_rows_are_one_dirichlet_each(cls):
    inputs, others = INPUTS.reshape(-1)[:24].reshape(2, 12), OTHER.reshape(-1)[:24].reshape(2, 12)
    dist, other = make(cls, inputs, 4), make(cls, others, 4)
    apart, points = truth(inputs.reshape(6, 4)), POINTS[:6]
    each = (
        apart.log_prob(torch.from_numpy(points / points.sum(1, keepdims=True)).double())
        .reshape(2, 3)
        .sum(1)
    )
    for form in (
        points.reshape(2, 12),
        points.reshape(2, 3, 4),
        points.reshape(2, 12).astype(np.float64),
    ):
        np.testing.assert_allclose(array(dist.logp(form)), each, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        array(dist.entropy()), apart.entropy().reshape(2, 3).sum(1), rtol=1e-4, atol=1e-4
    )
    kl = torch.distributions.kl_divergence(apart, truth(others.reshape(6, 4))).reshape(2, 3).sum(1)
    np.testing.assert_allclose(array(dist.kl(other)), kl, rtol=1e-4, atol=1e-4)
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert tuple(sample.shape) == (2, 12)
        np.testing.assert_allclose(array(sample).reshape(2, 3, 4).sum(-1), 1, rtol=1e-5)
    with pytest.raises(ModelContractError, match="same simplex"):
        dist.kl(make(cls, others))
    with pytest.raises(ConfigError, match="components must divide"):
        make(cls, inputs, 5)


def test_the_frameworks_agree_on_dirichlet():
    one, other = make(TorchDirichlet), make(TFDirichlet)
    pairs = [
        (d.logp(POINTS), d.entropy(), d.kl(make(type(d), OTHER)), d.deterministic_sample())
        for d in (one, other)
    ]
    for left, right in zip(*pairs, strict=True):
        np.testing.assert_allclose(array(left), array(right), rtol=1e-5, atol=2e-5)


# --- shapes and types -----------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_dirichlet_samples_are_rows_and_the_rest_one_number_per_row(cls, rows, n):
    dist = make(cls, np.zeros((rows, n), np.float32))
    for sample in (dist.sample(), dist.rsample(), dist.deterministic_sample()):
        assert tuple(sample.shape) == (rows, n)
        for form in (sample, array(sample), array(sample).astype(np.float64)):
            assert tuple(dist.logp(form).shape) == (rows,)
            np.testing.assert_allclose(array(dist.logp(form)), array(dist.logp(sample)), rtol=1e-6)
    for value in (
        dist.kl(dist),
        dist.entropy(),
        dist.sampled_action_logp(),
        dist.entropy_estimate(),
    ):
        assert tuple(value.shape) == (rows,)


@frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precisions_are_widened_for_dirichlet(cls, dtype):
    dist = cls(tensor(cls, INPUTS, dtype))
    exact = array(
        dist.inputs.float() if cls is TorchDirichlet else tf.cast(dist.inputs, tf.float32)
    )
    np.testing.assert_array_equal(array(dist.logp(POINTS)), array(make(cls, exact).logp(POINTS)))
    extreme = cls(tensor(cls, np.float32([[3e4, -3e4, 0]]), dtype))
    for value in (
        extreme.sample(),
        extreme.entropy(),
        extreme.kl(extreme),
        extreme.logp(np.float32([[1, 0, 0]])),
    ):
        assert np.isfinite(array(value)).all()


@frameworks
def test_dirichlet_is_rebuilt_from_inputs_alone(cls):
    # RLlib's inputs held the concentrations, and its PyTorch class took no NumPy array.
    dist = make(cls)
    sample = array(dist.sample())
    again = cls(array(dist.inputs))
    np.testing.assert_array_equal(array(dist.inputs), INPUTS)
    np.testing.assert_array_equal(array(again.logp(sample)), array(dist.sampled_action_logp()))


# --- samples --------------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("shift", [0.0, -1.5])
def test_dirichlet_samples_follow_the_density(cls, shift):
    seed(1)
    inputs = np.tile(np.float32([[0, 1, -1, 0.5]]) + np.float32(shift), (10_000, 1))
    samples = array(make(cls, inputs).sample()).astype(np.float64)
    concentration = np.exp(inputs[0].astype(np.float64))
    for i in range(N):
        marginal = stats.beta(concentration[i], concentration.sum() - concentration[i])
        assert stats.kstest(samples[:, i], marginal.cdf).pvalue > 1e-3
        assert (
            stats.kstest(
                samples[:, i], stats.beta(1.2 * concentration[i], 2 * concentration.sum()).cdf
            ).pvalue
            < 1e-3
        )
    total = concentration.sum()
    expected = -np.outer(concentration, concentration) / (total**2 * (total + 1))
    upper = np.triu_indices(N, 1)
    np.testing.assert_allclose(np.cov(samples.T)[upper], expected[upper], atol=6e-3)


@frameworks
def test_each_dirichlet_sample_is_fresh(cls):
    dist = make(cls)
    for one, other in itertools.combinations([array(dist.sample()) for _ in range(3)], 2):
        assert (one != other).any(axis=1).all()


def test_each_dirichlet_sample_is_fresh_inside_a_trace():
    @tf.function
    def draw(inputs):
        dist = TFDirichlet(inputs)
        return dist.sample(), dist.sample(), dist.sampled_action_logp(), dist.entropy()

    first, second, logp, _ = draw(tf.constant(INPUTS))
    third = draw(tf.constant(INPUTS))[0]
    for one, other in itertools.combinations((first, second, third), 2):
        assert (array(one) != array(other)).any(axis=1).all()
    np.testing.assert_allclose(logp, array(make(TFDirichlet).logp(second)), rtol=1e-4, atol=1e-4)


@frameworks
def test_the_deterministic_dirichlet_action_is_the_mean_and_not_rllibs_softmax(cls):
    found = array(make(cls).deterministic_sample())
    np.testing.assert_allclose(found, truth().mean, rtol=1e-5)
    assert not np.allclose(found, torch.softmax(truth().concentration, -1), atol=1e-2)


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = np.float32([0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -20])
TRIPLES = np.array(list(itertools.product(EXTREMES, repeat=3)), np.float32)
EDGES = np.float32([[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [1 / 3] * 3, [1e-30, 1, 0], [0, 0, 0]])


@frameworks
def test_extreme_inputs_give_finite_dirichlet_numbers_in_the_simplex(cls):
    seed(2)
    dist, other = make(cls, TRIPLES), make(cls, TRIPLES[::-1].copy())
    simplex = Simplex((3,))
    scored = [np.tile(edge, (len(TRIPLES), 1)) for edge in EDGES]
    for draw in (dist.sample, dist.rsample, dist.deterministic_sample):
        sample = array(draw())
        assert all(row in simplex for row in sample)
        assert all(row in simplex for row in sample.astype(np.float16))
        scored.append(sample)
    for points in scored:
        assert np.isfinite(array(dist.logp(tensor(cls, points)))).all()
    for value in (dist.entropy(), dist.entropy_estimate(), dist.kl(dist), dist.kl(other)):
        assert np.isfinite(array(value)).all()


@frameworks
def test_gradients_of_extreme_dirichlet_inputs_are_finite(cls):
    for function in (
        lambda d: d.logp(np.tile(EDGES[0], (len(TRIPLES), 1))),
        lambda d: d.rsample(),
        lambda d: d.entropy(),
        lambda d: d.kl(cls(TRIPLES[::-1].copy())),
    ):
        assert np.isfinite(gradient(cls, function, TRIPLES)).all()


# --- gradients ------------------------------------------------------------------------------------


def test_dirichlet_gradients_are_those_of_finite_differences():
    inputs = torch.from_numpy(INPUTS.astype(np.float64)).requires_grad_()
    other = TorchDirichlet(OTHER.astype(np.float64))
    for function in (
        lambda d: d.logp(POINTS),
        lambda d: d.entropy(),
        lambda d: d.kl(other),
        lambda d: other.kl(d),
        lambda d: d.deterministic_sample(),
    ):
        assert torch.autograd.gradcheck(lambda x, f=function: f(TorchDirichlet(x)), (inputs,))


def test_dirichlet_gradients_in_tensorflow_are_pytorchs():
    for function in (
        lambda d: d.logp(POINTS),
        lambda d: d.kl(make(type(d), OTHER)),
        lambda d: d.entropy(),
    ):
        found = [gradient(cls, function) for cls in (TorchDirichlet, TFDirichlet)]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


@frameworks
def test_the_gradient_of_a_dirichlet_draw_is_that_of_the_mean(cls):
    seed(3)
    weights = np.float32([1, -2, 3, 0.5])
    inputs = np.tile(np.float32([[0.3, -1, 1, 0]]), (20_000, 1))
    drawn = gradient(cls, lambda d: d.rsample() * tensor(cls, weights), inputs)
    exact = gradient(cls, lambda d: d.deterministic_sample() * tensor(cls, weights), inputs[:1])[0]
    assert (
        np.abs(drawn.mean(axis=0) - exact) < 4 * drawn.std(axis=0) / np.sqrt(len(inputs)) + 1e-5
    ).all()
    assert np.abs(exact).min() > 1e-2


def test_a_dirichlet_sample_carries_no_gradient():
    assert (
        not TorchDirichlet(torch.from_numpy(INPUTS.copy()).requires_grad_()).sample().requires_grad
    )
    variable = tf.Variable(INPUTS)
    with tf.GradientTape() as tape:
        sample = TFDirichlet(variable).sample()
    assert tape.gradient(sample, variable) is None


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchDirichlet), ("tf", TFDirichlet)])
@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3)])
def test_a_policy_over_a_simplex(framework, cls, shape):
    space, width = Simplex(shape), int(np.prod(shape))
    found, size = ModelCatalog.get_action_dist(space, {}, framework=framework)
    assert (found.__name__, size) == ("Dirichlet", width)
    assert (found is cls) == (len(shape) == 1)
    step = build(spaces.Discrete(3), space, {"fcnet_hiddens": [4]}, framework).act(
        np.array([0, 1, 2, 0])
    )
    assert step.raw_action.shape == (4, width)
    assert all(action in space for action in step.action)
    if shape[-1] > 1:
        points = torch.from_numpy(step.raw_action.reshape(4, -1, shape[-1]).astype(np.float64))
        points = points / points.sum(-1, keepdim=True)
        expected = truth(step.dist_inputs.reshape(points.shape)).log_prob(points).sum(-1)
        np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-3)


@frameworks
def test_dirichlet_refuses_what_it_cannot_serve_with_typed_errors(cls):
    assert cls.required_model_output_shape(Simplex((2, 3)), {}) == 6
    with pytest.raises(UnsupportedSpaceError, match="Dirichlet requires a Simplex, found Discrete"):
        cls.required_model_output_shape(spaces.Discrete(3), {})
    inputs = tensor(cls, INPUTS)
    assert cls.masked(inputs, np.ones((ROWS, 0), bool)) is inputs
    with pytest.raises(
        NotServedError,
        match="Dirichlet does not support action masks, but got a mask with 4 columns",
    ):
        cls.masked(inputs, np.ones((ROWS, 4), bool))
