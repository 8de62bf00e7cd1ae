"""The squashed Gaussian against torch.distributions, numerical integrals and one framework against
the other.
"""

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

pytestmark = pytest.mark.twins

D, ROWS = 3, 7
RANDOM = np.random.default_rng(0)
LOW, HIGH = np.float32([-2, 0, 10]), np.float32([2, 0.5, 30])


def draw_inputs():
    return np.concatenate(
        [RANDOM.normal(0, 1, (ROWS, D)), RANDOM.uniform(-3, 1, (ROWS, D))], axis=1
    ).astype("f4")


INPUTS, OTHER = draw_inputs(), draw_inputs()
ACTIONS = (LOW + (HIGH - LOW) * RANDOM.uniform(0.02, 0.98, (ROWS, D))).astype(np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchSquashed, TFSquashed], ids=["torch", "tf"])


def tensor(cls, value, dtype=None):
    if cls is TorchSquashed:
        made = torch.as_tensor(value)
        return made if dtype is None else made.to(getattr(torch, dtype))
    return tf.constant(value) if dtype is None else tf.cast(tf.constant(value), dtype)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def make(cls, inputs=INPUTS, low=LOW, high=HIGH, **options):
    return cls(tensor(cls, inputs), None, low, high, **options)


def truth(inputs=INPUTS, low=LOW, high=HIGH):
    mean, log_std = (
        torch.from_numpy(part) for part in np.split(np.asarray(inputs, np.float64), 2, axis=1)
    )
    low, high = (
        torch.from_numpy(np.broadcast_to(bound, mean.shape).astype(np.float64))
        for bound in (low, high)
    )
    steps = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
    return Independent(TransformedDistribution(Normal(mean, log_std.exp()), steps), 1)


def seed(value):
    torch.manual_seed(value)
    tf.random.set_seed(value)


def gradient(cls, function, inputs=INPUTS):
    """The gradient of the sum of a function of the distribution."""
    if cls is TorchSquashed:
        leaf = torch.from_numpy(inputs.copy()).requires_grad_()
        function(cls(leaf, None, LOW, HIGH)).sum().backward()
        return leaf.grad.numpy()
    variable = tf.Variable(inputs)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(function(cls(variable, None, LOW, HIGH)))
    return tape.gradient(value, variable).numpy()


@frameworks
def test_the_parameters_of_the_normal_values_can_be_read(cls):
    mean, log_std = np.split(INPUTS.astype(np.float64), 2, axis=1)
    np.testing.assert_allclose(array(make(cls).mean), mean, rtol=1e-6)
    np.testing.assert_allclose(array(make(cls).std), np.exp(log_std), rtol=1e-6)


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_squashed_logp_is_that_of_torch_distributions_with_its_jacobian(cls):
    # RLlib omits the term log((high - low) / 2).
    expected = truth().log_prob(torch.from_numpy(ACTIONS.astype(np.float64)))
    np.testing.assert_allclose(
        array(make(cls).logp(tensor(cls, ACTIONS))), expected, rtol=1e-4, atol=1e-4
    )


@frameworks
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 10.0), (-3.0, -2.5)])
@pytest.mark.parametrize("inputs", [(0.0, 0.0), (0.7, -1.0), (-1.0, 0.5)])
def test_the_squashed_density_integrates_to_one(cls, low, high, inputs):
    x = (low + (high - low) * (np.arange(200_000) + 0.5) / 200_000).astype(np.float32)
    logp = array(
        make(cls, np.tile(np.float32([inputs]), (len(x), 1)), low, high).logp(tensor(cls, x))
    )
    np.testing.assert_allclose(np.exp(logp.astype(np.float64)).mean() * (high - low), 1, rtol=1e-3)


@frameworks
def test_the_squashed_density_integrates_to_one_in_two_dimensions(cls):
    low, high = np.float32([-1, 2]), np.float32([3, 2.5])
    axes = [a + (b - a) * (np.arange(500) + 0.5) / 500 for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2).astype(np.float32)
    inputs = np.tile(np.float32([[0.3, -0.5, -0.7, -0.2]]), (len(grid), 1))
    logp = array(make(cls, inputs, low, high).logp(tensor(cls, grid))).astype(np.float64)
    np.testing.assert_allclose(np.exp(logp).mean() * np.prod(high - low), 1, rtol=1e-3)


@pytest.fixture(scope="module")
def pair_and_kl():
    """Inputs of two distributions over (0, 4), and their divergence as an integral over the
    actions.
    """
    p, q = np.float32([[0.5, -0.3]]), np.float32([[-0.2, 0.1]])
    dists = [truth(i, 0, 4) for i in (p, q)]

    def term(x):
        one, other = (
            float(dist.log_prob(torch.tensor([[x]], dtype=torch.float64))) for dist in dists
        )
        return np.exp(one) * (one - other)

    return p, q, integrate.quad(term, 1e-9, 4 - 1e-9, limit=200)[0]


@frameworks
def test_the_kl_of_squashed_gaussians_is_the_integral_over_the_actions(cls, pair_and_kl):
    p, q, expected = pair_and_kl
    np.testing.assert_allclose(
        array(make(cls, p, 0.0, 4.0).kl(make(cls, q, 0.0, 4.0))), expected, rtol=1e-4
    )


@frameworks
def test_squashed_kl_is_that_of_the_normal_values_where_rllib_has_none(cls):
    p, q = (
        Normal(*(torch.from_numpy(x) for x in (i[:, :D], np.exp(i[:, D:]))))
        for i in (INPUTS, OTHER)
    )
    expected = torch.distributions.kl_divergence(p, q).sum(-1)
    np.testing.assert_allclose(array(make(cls).kl(make(cls, OTHER))), expected, rtol=1e-4)
    np.testing.assert_allclose(array(make(cls).kl(make(cls))), 0, atol=1e-6)
    np.testing.assert_array_equal(
        array(make(cls).multi_kl(make(cls, OTHER))), array(make(cls).kl(make(cls, OTHER)))
    )


@frameworks
def test_squashed_kl_needs_the_same_bounds(cls):
    with pytest.raises(ModelContractError, match="same bounds"):
        make(cls).kl(make(cls, low=LOW - 1))
    with pytest.raises(ModelContractError, match="expects another SquashedGaussian"):
        make(cls).kl(object())


@frameworks
def test_the_squashed_entropy_has_no_closed_form_and_an_unbiased_estimate(cls):
    assert cls.entropy_kind == "estimate"
    with pytest.raises(NoClosedFormError, match="entropy_estimate"):
        make(cls).entropy()
    seed(0)
    inputs = np.float32([0.3, -0.5])
    estimates = array(make(cls, np.tile(inputs, (20_000, 1)), -1.0, 3.0).entropy_estimate())
    x = np.linspace(-1, 3, 200_002)[1:-1]
    logp = truth(np.tile(inputs, (len(x), 1)), -1, 3).log_prob(torch.from_numpy(x[:, None])).numpy()
    exact = -(np.exp(logp) * logp).mean() * 4
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / np.sqrt(len(estimates)) + 1e-4


def test_the_frameworks_agree_on_squashed_gaussians():
    one, other = make(TorchSquashed), make(TFSquashed)
    np.testing.assert_allclose(
        array(one.logp(ACTIONS)), array(other.logp(ACTIONS)), rtol=1e-5, atol=1e-5
    )
    kl = array(one.kl(make(TorchSquashed, OTHER))), array(other.kl(make(TFSquashed, OTHER)))
    np.testing.assert_allclose(*kl, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        array(one.deterministic_sample()), array(other.deterministic_sample()), rtol=1e-5
    )


# --- shapes and types -----------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
def test_squashed_samples_are_rows_and_the_rest_one_number_per_row(cls, rows, d):
    seed(6)
    dist = make(cls, np.zeros((rows, 2 * d), np.float32), -1.0, 1.0)
    for sample in (dist.sample(), dist.rsample(), dist.deterministic_sample()):
        assert tuple(sample.shape) == (rows, d)
        forms = [
            sample,
            array(sample),
            array(sample).astype(np.float64),
            array(sample).reshape(rows, d, 1),
        ]
        # Flat: RLlib's Gaussian broadcast it to [B, B].
        forms += [array(sample)[:, 0]] if d == 1 else []
        for form in forms:
            assert tuple(dist.logp(form).shape) == (rows,)
            np.testing.assert_allclose(
                array(dist.logp(form)), array(dist.logp(sample)), rtol=1e-4, atol=1e-4
            )
    for value in (dist.kl(dist), dist.sampled_action_logp(), dist.entropy_estimate()):
        assert tuple(value.shape) == (rows,)


@frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precisions_are_widened_for_squashed_gaussians(cls, dtype):
    dist = cls(tensor(cls, INPUTS, dtype), None, LOW, HIGH)
    exact = array(dist.inputs.float() if cls is TorchSquashed else tf.cast(dist.inputs, tf.float32))
    np.testing.assert_array_equal(array(dist.logp(ACTIONS)), array(make(cls, exact).logp(ACTIONS)))
    for sample in (dist.sample(), dist.deterministic_sample()):
        assert ((array(sample) >= LOW) & (array(sample) <= HIGH)).all()
        assert np.isfinite(array(dist.logp(sample))).all()


@frameworks
def test_squashed_gaussians_are_rebuilt_from_inputs_alone(cls):
    dist = make(cls)
    sample = array(dist.sample())
    again = make(cls, array(dist.inputs))
    np.testing.assert_array_equal(array(again.logp(sample)), array(dist.sampled_action_logp()))


# --- samples --------------------------------------------------------------------------------------


@frameworks
def test_squashed_samples_follow_the_density(cls):
    seed(1)
    inputs = np.tile(np.float32([0.5, -3.0, 0.0, -0.5, 0.5, 0.0]), (10_000, 1))
    samples = array(make(cls, inputs).sample())
    normal = np.arctanh(
        np.clip(2 * (samples.astype(np.float64) - LOW) / (HIGH - LOW) - 1, -1 + 1e-7, 1 - 1e-7)
    )
    for i in range(D):
        mean, std = inputs[0, i], np.exp(inputs[0, D + i])
        assert stats.kstest(normal[:, i], stats.norm(mean, std).cdf).pvalue > 1e-3
        # The control.
        assert stats.kstest(normal[:, i], stats.norm(mean, 1.1 * std).cdf).pvalue < 1e-3
    assert np.abs(np.corrcoef(normal.T)[np.triu_indices(D, 1)]).max() < 0.04


@frameworks
def test_each_squashed_sample_is_fresh(cls):
    dist = make(cls)
    for one, other in itertools.combinations([array(dist.sample()) for _ in range(3)], 2):
        assert (one != other).all()


def test_each_squashed_sample_is_fresh_inside_a_trace():
    @tf.function
    def draw(inputs):
        dist = TFSquashed(inputs, None, LOW, HIGH)
        return dist.sample(), dist.sample(), dist.sampled_action_logp(), dist.entropy_estimate()

    seed(4)
    first, second, logp, _ = draw(tf.constant(INPUTS))
    third = draw(tf.constant(INPUTS))[0]
    for one, other in itertools.combinations((first, second, third), 2):
        assert (array(one) != array(other)).all()
    expected = truth().log_prob(torch.from_numpy(array(second).astype(np.float64)))
    np.testing.assert_allclose(logp, expected, rtol=1e-3, atol=1e-3)


@frameworks
def test_the_deterministic_squashed_action_is_the_squashed_mean(cls):
    expected = LOW + (np.tanh(INPUTS[:, :D]) + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(
        array(make(cls).deterministic_sample()), expected, rtol=1e-5, atol=1e-6
    )


@frameworks
def test_a_stored_squashed_sample_scores_the_same_even_near_the_bounds(cls):
    # RLlib's sample_logp() used the rescaled action and was NaN where |a| > 1.
    seed(2)
    means = np.linspace(-9, 9, 2001, dtype=np.float32)
    inputs = np.stack([means, np.full_like(means, -2)], axis=1)
    for low, high in ((-1.0, 1.0), (0.0, 1.0), (-50.0, 100.0)):
        dist = make(cls, inputs, low, high)
        drawn = dist.sample()
        at_once, stored = array(dist.sampled_action_logp()), array(drawn).astype(np.float32)
        np.testing.assert_array_equal(
            array(make(cls, inputs, low, high).logp(tensor(cls, stored))), at_once
        )
        inside = (stored[:, 0] > low) & (stored[:, 0] < high)
        # The density of that very number, in float64 and from the exact distances to the bounds.
        below, above = stored[:, 0].astype(np.float64) - low, high - stored[:, 0].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = stats.norm.logpdf((np.log(below) - np.log(above)) / 2, means, np.exp(-2.0))
            expected -= np.log(2 * below * above / (high - low))
        np.testing.assert_allclose(at_once[inside], expected[inside], rtol=1e-3, atol=2e-2)
        assert np.isfinite(at_once).all()


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, 20.0]


@frameworks
@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-1e30, 1e30), (1e8, 1e8 + 64), (-1e-20, 1e-20)]
)
def test_extreme_inputs_give_finite_squashed_numbers_within_the_bounds(cls, low, high):
    inputs = np.array(list(itertools.product(EXTREMES, EXTREMES)), np.float32)
    dist, other = make(cls, inputs, low, high), make(cls, inputs[::-1].copy(), low, high)
    ends = [
        np.full(len(inputs), x, np.float32)
        for x in (low, high, 0.5 * low + 0.5 * high, -3e38, 3e38)
    ]
    for draw in (dist.sample, dist.rsample, dist.deterministic_sample):
        sample = array(draw())
        assert (sample >= np.float32(low)).all()
        assert (sample <= np.float32(high)).all()
        ends.append(sample)
    for actions in ends:
        assert np.isfinite(array(dist.logp(tensor(cls, actions)))).all()
    for value in (dist.entropy_estimate(), dist.kl(dist), dist.kl(other)):
        assert np.isfinite(array(value)).all()


@frameworks
def test_gradients_of_extreme_squashed_inputs_are_finite(cls):
    inputs = np.array(list(itertools.product(EXTREMES, EXTREMES)), np.float32).repeat(3, 1)[
        :, [0, 1, 2, 3, 4, 5]
    ]
    for function in (
        lambda d: d.logp(np.tile(HIGH, (len(inputs), 1))),
        lambda d: d.logp(d.rsample()),
        lambda d: d.entropy_estimate(),
        lambda d: d.rsample(),
    ):
        assert np.isfinite(gradient(cls, function, inputs)).all()


@frameworks
def test_squashed_scales_are_cut_off_as_in_rllib_unless_asked_otherwise(cls):
    inputs = np.float32([[0, -100], [0, 100]])
    np.testing.assert_allclose(array(make(cls, inputs, -1.0, 1.0).log_std)[:, 0], [-5, 2])
    asked = make(cls, inputs, -1.0, 1.0, log_std_min=-3.0, log_std_max=0.5)
    np.testing.assert_allclose(array(asked.log_std)[:, 0], [-3, 0.5])
    with pytest.raises(ConfigError, match="log_std_min must not be above"):
        make(cls, inputs, -1.0, 1.0, log_std_min=3.0)


# --- gradients ------------------------------------------------------------------------------------


def test_squashed_gradients_are_those_of_finite_differences():
    inputs = torch.from_numpy(INPUTS.astype(np.float64)).requires_grad_()
    other, actions = (torch.from_numpy(x.astype(np.float64)) for x in (OTHER, ACTIONS))

    def drawn(function):
        def evaluate(x):
            torch.manual_seed(3)  # the same noise each time
            return function(TorchSquashed(x, None, LOW, HIGH))

        return evaluate

    for function in (
        drawn(lambda d: d.logp(actions)),
        drawn(lambda d: d.kl(TorchSquashed(other, None, LOW, HIGH))),
        drawn(lambda d: TorchSquashed(other, None, LOW, HIGH).kl(d)),
        drawn(lambda d: d.rsample()),
        drawn(lambda d: d.logp(d.rsample())),
        drawn(lambda d: d.entropy_estimate()),
        drawn(lambda d: d.deterministic_sample()),
    ):
        assert torch.autograd.gradcheck(function, (inputs,))


def test_squashed_gradients_in_tensorflow_are_pytorchs():
    for function in (
        lambda d: d.logp(ACTIONS),
        lambda d: d.kl(make(type(d), OTHER)),
        lambda d: d.deterministic_sample(),
    ):
        found = [gradient(cls, function) for cls in (TorchSquashed, TFSquashed)]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


@frameworks
def test_the_score_of_a_squashed_rsample_is_that_of_its_number(cls):
    inputs = tensor(cls, INPUTS.copy())
    dist = make(cls, inputs.requires_grad_()) if cls is TorchSquashed else make(cls)
    seed(5)
    draw = dist.rsample()
    expected = truth().log_prob(torch.from_numpy(array(draw).astype(np.float64)))
    np.testing.assert_allclose(array(dist.logp(draw)), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(array(dist.logp(array(draw))), expected, rtol=1e-3, atol=1e-3)


@frameworks
def test_a_saturated_squashed_draw_still_has_its_gradient(cls):
    # Far beyond where float32 tells actions apart, d(-logp)/dmean = -2 tanh(u): the entropy bonus
    # leads back.
    inputs = np.float32([[15, 15, -15, -5, -5, -5]])
    found = gradient(cls, lambda d: -d.logp(d.rsample()), inputs)
    np.testing.assert_allclose(found[:, :D], [[-2, -2, 2]], rtol=1e-4)


def test_a_squashed_sample_carries_no_gradient():
    dist = TorchSquashed(torch.from_numpy(INPUTS.copy()).requires_grad_(), None, LOW, HIGH)
    assert not dist.sample().requires_grad
    variable = tf.Variable(INPUTS)
    with tf.GradientTape() as tape:
        sample = TFSquashed(variable, None, LOW, HIGH).sample()
    assert tape.gradient(sample, variable) is None


def test_squashed_draws_changed_in_place_are_scored_as_they_are():
    dist = TorchSquashed(torch.from_numpy(INPUTS.copy()).requires_grad_(), None, LOW, HIGH)
    for draw in (dist.sample(), dist.rsample()):
        with torch.no_grad():
            draw.copy_(torch.from_numpy(ACTIONS))
        expected = truth().log_prob(torch.from_numpy(ACTIONS.astype(np.float64)))
        np.testing.assert_allclose(dist.logp(draw).detach(), expected, rtol=1e-4, atol=1e-4)


def test_squashed_constants_first_made_in_inference_mode_serve_in_training():
    low, high = -1.2345, 6.789  # bounds nobody used before
    with torch.inference_mode():
        TorchSquashed(torch.zeros(2, 4), None, low, high).sample()
    inputs = torch.zeros(2, 4, requires_grad=True)
    dist = TorchSquashed(inputs, None, low, high)
    (dist.logp(dist.rsample()) + dist.logp(torch.zeros(2, 2))).sum().backward()
    assert torch.isfinite(inputs.grad).all()
