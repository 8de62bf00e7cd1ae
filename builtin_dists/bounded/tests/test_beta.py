"""Beta against SciPy, torch.distributions, numerical integrals and one framework
against the other.
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
from rlcatalog_bounded.tf import Beta as TFBeta
from rlcatalog_bounded.torch import Beta as TorchBeta

pytestmark = pytest.mark.twins

D, ROWS = 3, 7
RANDOM = np.random.default_rng(0)
LOW, HIGH = np.float32([-2, 0, 10]), np.float32([2, 0.5, 30])
INPUTS, OTHER = (RANDOM.normal(0, 2, (ROWS, 2 * D)).astype(np.float32) for _ in range(2))
ACTIONS = (LOW + (HIGH - LOW) * RANDOM.uniform(0.02, 0.98, (ROWS, D))).astype(np.float32)
frameworks = pytest.mark.parametrize("cls", [TorchBeta, TFBeta], ids=["torch", "tf"])


def tensor(cls, value, dtype=None):
    if cls is TorchBeta:
        made = torch.as_tensor(value)
        return made if dtype is None else made.to(getattr(torch, dtype))
    return tf.constant(value) if dtype is None else tf.cast(tf.constant(value), dtype)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def make(cls, inputs=INPUTS, low=LOW, high=HIGH):
    return cls(tensor(cls, inputs), None, low, high)


def concentrations(inputs=INPUTS):
    return np.split(1 + np.logaddexp(0, np.asarray(inputs, np.float64)), 2, axis=1)


def truth(inputs=INPUTS, low=LOW, high=HIGH):
    return stats.beta(
        *concentrations(inputs), loc=np.float64(low), scale=np.float64(high) - np.float64(low)
    )


def reference(inputs):
    return torch.distributions.Beta(*map(torch.from_numpy, concentrations(inputs)))


def seed(value):
    torch.manual_seed(value)
    tf.random.set_seed(value)


def gradient(cls, function, inputs=INPUTS):
    """The gradient of the sum of a function of the distribution."""
    if cls is TorchBeta:
        leaf = torch.from_numpy(inputs.copy()).requires_grad_()
        function(cls(leaf, None, LOW, HIGH)).sum().backward()
        return leaf.grad.numpy()
    variable = tf.Variable(inputs)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(function(cls(variable, None, LOW, HIGH)))
    return tape.gradient(value, variable).numpy()


# --- densities ------------------------------------------------------------------------------------


@frameworks
def test_beta_logp_is_scipys_with_its_scale(cls):
    # RLlib omits the scale.
    expected = truth().logpdf(ACTIONS.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(
        array(make(cls).logp(tensor(cls, ACTIONS))), expected, rtol=1e-4, atol=1e-5
    )


@frameworks
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (2.0, 2.5)])
def test_the_beta_density_integrates_to_one_between_its_bounds(cls, low, high):
    x = (low + (high - low) * (np.arange(50_000) + 0.5) / 50_000).astype(np.float32)
    for inputs in ([0.0, 0.0], [2.0, -1.0], [-20.0, -20.0], [9.0, 30.0]):
        logp = array(
            make(cls, np.tile(np.float32([inputs]), (len(x), 1)), low, high).logp(x)
        ).astype(np.float64)
        np.testing.assert_allclose(np.exp(logp).mean() * (high - low), 1, rtol=1e-3)


@frameworks
def test_the_beta_density_integrates_to_one_in_two_dimensions(cls):
    low, high = np.float32([-1, 2]), np.float32([3, 2.5])
    axes = [a + (b - a) * (np.arange(300) + 0.5) / 300 for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2).astype(np.float32)
    logp = array(
        make(cls, np.tile(np.float32([[0.3, 2, -0.7, 1]]), (len(grid), 1)), low, high).logp(grid)
    )
    np.testing.assert_allclose(
        np.exp(logp.astype(np.float64)).mean() * np.prod(high - low), 1, rtol=1e-3
    )


@frameworks
def test_beta_entropy_and_kl_are_one_number_per_row_unlike_rllibs(cls):
    # RLlib returned [B, d] in PyTorch and nothing in TensorFlow.
    one, other = make(cls), make(cls, OTHER)
    np.testing.assert_allclose(
        array(one.entropy()), truth().entropy().sum(axis=1), rtol=1e-4, atol=1e-4
    )
    expected = torch.distributions.kl_divergence(reference(INPUTS), reference(OTHER)).sum(-1)
    np.testing.assert_allclose(array(one.kl(other)), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(array(one.kl(make(cls))), 0, atol=1e-5)
    for value in (one.entropy(), one.kl(other), one.multi_entropy(), one.multi_kl(other)):
        assert tuple(value.shape) == (ROWS,)
    assert cls.entropy_kind == "exact"


@frameworks
def test_the_estimate_of_the_beta_entropy_is_unbiased(cls):
    seed(0)
    estimates = array(make(cls, np.tile(INPUTS[:1], (10_000, 1))).entropy_estimate())
    exact = truth(INPUTS[:1]).entropy().sum()
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / 100


@frameworks
def test_beta_kl_needs_the_same_bounds(cls):
    with pytest.raises(ModelContractError, match="same bounds"):
        make(cls).kl(make(cls, low=LOW - 1))
    with pytest.raises(ModelContractError, match="expects another Beta"):
        make(cls).kl(object())


def test_the_frameworks_agree_on_beta():
    one, other = make(TorchBeta), make(TFBeta)
    pairs = [
        (d.logp(ACTIONS), d.entropy(), d.kl(make(type(d), OTHER)), d.deterministic_sample())
        for d in (one, other)
    ]
    for left, right in zip(*pairs, strict=True):
        np.testing.assert_allclose(array(left), array(right), rtol=1e-5, atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [1, 4])
def test_beta_samples_are_rows_and_the_rest_one_number_per_row(cls, rows, d):
    dist = make(cls, np.zeros((rows, 2 * d), np.float32), -1.0, 1.0)
    for sample in (dist.sample(), dist.rsample(), dist.deterministic_sample()):
        assert tuple(sample.shape) == (rows, d)
        forms = [
            sample,
            array(sample),
            array(sample).astype(np.float64),
            array(sample).reshape(rows, d, 1),
        ]
        forms += [array(sample)[:, 0]] if d == 1 else []
        for form in forms:
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
def test_half_precisions_are_widened_for_beta(cls, dtype):
    dist = cls(tensor(cls, INPUTS, dtype), None, LOW, HIGH)
    exact = array(dist.inputs.float() if cls is TorchBeta else tf.cast(dist.inputs, tf.float32))
    np.testing.assert_array_equal(array(dist.logp(ACTIONS)), array(make(cls, exact).logp(ACTIONS)))
    assert np.isfinite(array(dist.sample())).all()
    extreme = cls(tensor(cls, np.float32([[3e4, -3e4]]), dtype))
    for value in (
        extreme.sample(),
        extreme.entropy(),
        extreme.kl(extreme),
        extreme.logp(np.float32([[1]])),
    ):
        assert np.isfinite(array(value)).all()


@frameworks
def test_beta_is_rebuilt_from_inputs_alone(cls):
    # RLlib's inputs held the concentrations; a distribution rebuilt from them was another one.
    dist = make(cls)
    sample = array(dist.sample())
    np.testing.assert_array_equal(array(dist.inputs), INPUTS)
    again = make(cls, array(dist.inputs))
    np.testing.assert_array_equal(array(again.logp(sample)), array(dist.sampled_action_logp()))


# --- samples --------------------------------------------------------------------------------------


@frameworks
def test_beta_samples_follow_the_density(cls):
    seed(1)
    inputs = np.tile(np.float32([[-20, 0, 2, 1, 0, 5]]), (10_000, 1))
    samples = array(make(cls, inputs).sample()).astype(np.float64)
    first, second = concentrations(inputs[:1])
    for i in range(D):
        scale = {"loc": float(LOW[i]), "scale": float(HIGH[i] - LOW[i])}
        assert (
            stats.kstest(samples[:, i], stats.beta(first[0, i], second[0, i], **scale).cdf).pvalue
            > 1e-3
        )
        assert (
            stats.kstest(
                samples[:, i], stats.beta(1.1 * first[0, i], second[0, i], **scale).cdf
            ).pvalue
            < 1e-3
        )
    assert np.abs(np.corrcoef(samples.T)[np.triu_indices(D, 1)]).max() < 0.04


@frameworks
def test_each_beta_sample_is_fresh(cls):
    dist = make(cls)
    for one, other in itertools.combinations([array(dist.sample()) for _ in range(3)], 2):
        assert (one != other).all()


def test_each_beta_sample_is_fresh_inside_a_trace():
    @tf.function
    def draw(inputs):
        dist = TFBeta(inputs, None, LOW, HIGH)
        return dist.sample(), dist.sample(), dist.sampled_action_logp(), dist.entropy()

    first, second, logp, _ = draw(tf.constant(INPUTS))
    third = draw(tf.constant(INPUTS))[0]
    for one, other in itertools.combinations((first, second, third), 2):
        assert (array(one) != array(other)).all()
    np.testing.assert_allclose(
        logp, truth().logpdf(array(second)).sum(axis=1), rtol=1e-3, atol=1e-3
    )


@frameworks
def test_the_deterministic_beta_action_is_the_mean(cls):
    np.testing.assert_allclose(
        array(make(cls).deterministic_sample()), truth().mean(), rtol=1e-5, atol=1e-5
    )


@frameworks
def test_a_stored_beta_sample_scores_the_same(cls):
    seed(2)
    inputs = np.tile(np.float32([[-3, 60, 0, 60, -3, 0]]), (500, 1))  # close to both bounds
    dist = make(cls, inputs)
    stored = array(dist.sample()).copy()
    np.testing.assert_array_equal(
        array(make(cls, inputs).logp(stored)), array(dist.sampled_action_logp())
    )
    inside = ((stored > LOW) & (stored < HIGH)).all(axis=1)
    expected = truth(inputs).logpdf(stored.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(
        array(dist.sampled_action_logp())[inside], expected[inside], rtol=1e-3, atol=1e-2
    )


# --- extreme inputs -------------------------------------------------------------------------------

EXTREMES = np.float32([0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, 20])
PAIRS = np.array(list(itertools.product(EXTREMES, EXTREMES)), np.float32)


@frameworks
@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-1e30, 1e30), (1e8, 1e8 + 64), (-1e-20, 1e-20)]
)
def test_extreme_inputs_give_finite_beta_numbers_within_the_bounds(cls, low, high):
    dist, other = make(cls, PAIRS, low, high), make(cls, PAIRS[::-1].copy(), low, high)
    ends = [
        np.full(len(PAIRS), x, np.float32) for x in (low, high, 0.5 * low + 0.5 * high, -3e38, 3e38)
    ]
    for draw in (dist.sample, dist.rsample, dist.deterministic_sample):
        sample = array(draw())
        assert (sample >= np.float32(low)).all()
        assert (sample <= np.float32(high)).all()
        ends.append(sample)
    for actions in ends:
        assert np.isfinite(array(dist.logp(tensor(cls, actions)))).all()
    for value in (dist.entropy(), dist.entropy_estimate(), dist.kl(dist), dist.kl(other)):
        assert np.isfinite(array(value)).all()
    assert (array(dist.kl(other)) > -1e-3).all()


@frameworks
def test_gradients_of_extreme_beta_inputs_are_finite(cls):
    inputs = PAIRS.repeat(D, 1)
    for function in (
        lambda d: d.logp(np.tile(HIGH, (len(inputs), 1))),
        lambda d: d.logp(d.rsample()),
        lambda d: d.entropy(),
        lambda d: d.kl(cls(inputs[::-1].copy(), None, LOW, HIGH)),
    ):
        assert np.isfinite(gradient(cls, function, inputs)).all()


# --- gradients ------------------------------------------------------------------------------------


def test_beta_gradients_are_those_of_finite_differences():
    inputs = torch.from_numpy(INPUTS.astype(np.float64)).requires_grad_()
    other = TorchBeta(OTHER.astype(np.float64), None, LOW, HIGH)
    for function in (
        lambda d: d.logp(ACTIONS),
        lambda d: d.entropy(),
        lambda d: d.kl(other),
        lambda d: other.kl(d),
        lambda d: d.deterministic_sample(),
    ):
        assert torch.autograd.gradcheck(
            lambda x, f=function: f(TorchBeta(x, None, LOW, HIGH)), (inputs,)
        )


def test_beta_gradients_in_tensorflow_are_pytorchs():
    for function in (
        lambda d: d.logp(ACTIONS),
        lambda d: d.kl(make(type(d), OTHER)),
        lambda d: d.entropy(),
    ):
        found = [gradient(cls, function) for cls in (TorchBeta, TFBeta)]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


@frameworks
def test_the_gradient_of_a_beta_draw_is_that_of_the_mean(cls):
    # E[draw] is the mean, so the expected gradient of draws is the mean's gradient.
    seed(3)
    inputs = np.tile(INPUTS[:1], (20_000, 1))
    drawn = gradient(cls, lambda d: d.rsample(), inputs)
    exact = gradient(cls, lambda d: d.deterministic_sample(), INPUTS[:1])[0]
    assert (
        np.abs(drawn.mean(axis=0) - exact) < 4 * drawn.std(axis=0) / np.sqrt(len(inputs)) + 1e-5
    ).all()
    assert np.abs(exact).min() > 1e-4


def test_a_beta_sample_carries_no_gradient():
    assert (
        not TorchBeta(torch.from_numpy(INPUTS.copy()).requires_grad_(), None, LOW, HIGH)
        .sample()
        .requires_grad
    )
    variable = tf.Variable(INPUTS)
    with tf.GradientTape() as tape:
        sample = TFBeta(variable, None, LOW, HIGH).sample()
    assert tape.gradient(sample, variable) is None


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchBeta), ("tf", TFBeta)])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_policy_with_beta_actions(framework, cls, shape):
    box = spaces.Box(np.full(shape, -0.5, "f4"), np.full(shape, 3, "f4"), dtype=np.float32)
    config = {"fcnet_hiddens": [4], "custom_action_dist": "beta", "action_bounds": "affine"}
    step = build(spaces.Discrete(3), box, config, framework).act(np.array([0, 1, 2, 0]))
    width = max(1, int(np.prod(shape)))
    assert step.raw_action.shape == (4, width)
    # Inside its bounds as it is.
    np.testing.assert_array_equal(step.action.reshape(4, width), step.raw_action)
    assert all(np.asarray(action) in box for action in step.action)
    expected = truth(step.dist_inputs, -0.5, 3).logpdf(step.raw_action).sum(axis=1)
    np.testing.assert_allclose(step.logp, expected, rtol=1e-3, atol=1e-3)
    assert cls.required_model_output_shape(box, {}) == 2 * width
    # By name only.
    assert ModelCatalog.get_action_dist(box, {}, framework=framework)[0].__name__ == "DiagGaussian"


@frameworks
def test_beta_refuses_what_it_cannot_serve_with_typed_errors(cls):
    with pytest.raises(
        UnsupportedSpaceError, match=r"^action: Beta needs finite bounds.*at \[1, 0\]"
    ):
        cls.required_model_output_shape(
            spaces.Box(np.float32([[0], [-np.inf]]), np.float32([[1], [1]])), {}
        )
    with pytest.raises(UnsupportedSpaceError, match="Beta needs a Box of floats, found Discrete"):
        cls.required_model_output_shape(spaces.Discrete(3), {})
    with pytest.raises(ConfigError, match="low must be below high"):
        make(cls, low=1.0, high=1.0)
    inputs = tensor(cls, INPUTS)
    assert cls.masked(inputs, np.ones((ROWS, 0), bool)) is inputs
    with pytest.raises(
        NotServedError, match="Beta does not support action masks, but got a mask with 2 columns"
    ):
        cls.masked(inputs, np.ones((ROWS, 2), bool))
