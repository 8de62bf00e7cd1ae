"""Independent bits: densities, samples, masks and gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog.errors import ActionMaskError, ModelContractError, UnsupportedSpaceError

TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCES)


def random_logits(rows=7, bits=4, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, bits)).astype(np.float32)


def make_bernoulli(framework, logits, dtype="float32"):
    return framework.load("Bernoulli")(framework.tensor(logits, dtype))


def make_masked(framework, logits, mask, dtype="float32"):
    cls = framework.load("Bernoulli")
    return cls(cls.masked(framework.tensor(logits, dtype), framework.tensor(mask)))


def exact_bernoulli(framework, logits, dtype="float32"):
    """Return the distribution of torch.distributions, of the logits as the dtype holds them."""
    rounded = framework.numpy(framework.tensor(logits, dtype))
    return torch.distributions.Bernoulli(logits=torch.tensor(rounded, dtype=torch.float64))


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_sum_of_bits_log_probabilities(framework):
    logits = random_logits(rows=16, bits=4)
    all_actions = np.array(list(itertools.product([0, 1], repeat=4)))  # one per row

    logp = make_bernoulli(framework, logits).logp(framework.tensor(all_actions))

    exact = exact_bernoulli(framework, logits)
    expected = exact.log_prob(torch.tensor(all_actions, dtype=torch.float64)).sum(dim=1)
    np.testing.assert_allclose(logp, expected, rtol=1e-5)


def test_multi_entropy_is_entropy_of_each_bit(framework):
    logits = random_logits()

    dist = make_bernoulli(framework, logits)

    expected = exact_bernoulli(framework, logits).entropy()
    np.testing.assert_allclose(dist.multi_entropy(), expected, rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(), expected.sum(dim=1), rtol=1e-5)


def test_multi_kl_is_kl_of_each_bit(framework):
    p_logits = random_logits(seed=0)
    q_logits = random_logits(seed=1)

    p = make_bernoulli(framework, p_logits)
    q = make_bernoulli(framework, q_logits)

    expected = torch.distributions.kl_divergence(
        exact_bernoulli(framework, p_logits), exact_bernoulli(framework, q_logits)
    )
    np.testing.assert_allclose(p.multi_kl(q), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(p.kl(q), expected.sum(dim=1), rtol=1e-5)


def test_kl_with_other_kind_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expects another Bernoulli"):
        make_bernoulli(framework, random_logits()).kl(None)


@pytest.mark.parametrize("logit", [9.0, 20.0, 60.0])
def test_small_probabilities_are_not_lost(framework, logit):
    # Two bits, of which the first is nearly always 1 and the second nearly always 0.
    dist = make_bernoulli(framework, [[logit, -logit]])

    likely_logp = dist.logp([[1, 0]])
    rare_logp = dist.logp([[0, 1]])

    # In float32, 1 - sigmoid(20) would be 0 and its log -inf.
    np.testing.assert_allclose(likely_logp, [2 * special.log_expit(logit)], rtol=1e-5)
    np.testing.assert_allclose(rare_logp, [2 * special.log_expit(-logit)], rtol=1e-5)


@pytest.mark.parametrize(
    "bits",
    [
        np.array([[0, 1, 1, 0]]),
        np.array([[0, 1, 1, 0]], np.float32),
        np.array([[0, 1, 1, 0]], np.int8),
        np.array([[0, 1, 1, 0]], bool),
        [[0, 1, 1, 0]],
        np.array([[[0, 1], [1, 0]]]),
    ],
    ids=["int64", "float32", "int8", "bool", "list", "2 x 2 bits"],
)
def test_logp_takes_bits_in_any_form(framework, bits):
    # A bit with the logit log 3 is 1 with probability 3/4.
    dist = make_bernoulli(framework, [[np.log(3), np.log(3), np.log(3), np.log(3)]])

    np.testing.assert_allclose(dist.logp(bits), [2 * np.log(1 / 4) + 2 * np.log(3 / 4)], rtol=1e-5)


def test_inputs_may_be_an_array(framework):
    dist = framework.load("Bernoulli")(np.array([[0.5, -0.5]], np.float32))

    np.testing.assert_array_equal(dist.deterministic_sample(), [[1, 0]])


@pytest.mark.parametrize(("shape", "size"), [(5, 5), ((2, 3, 4), 24), ([1], 1)], ids=str)
def test_output_shape_is_number_of_bits(framework, shape, size):
    space = spaces.MultiBinary(shape)

    assert framework.load("Bernoulli").required_model_output_shape(space, {}) == size


def test_output_shape_for_discrete_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="requires a MultiBinary, found Discrete"):
        framework.load("Bernoulli").required_model_output_shape(spaces.Discrete(2))


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_bit(framework, method):
    sample = getattr(make_bernoulli(framework, random_logits(rows=7, bits=4)), method)()

    assert tuple(sample.shape) == (7, 4)
    assert framework.numpy(sample).dtype == np.int64


def test_samples_follow_the_probabilities(framework):
    framework.seed(1)
    # A bit with the logit log 3 is 1 with probability 3/4.
    dist = make_bernoulli(framework, np.tile([np.log(3), 0], (20_000, 1)))

    first, second = framework.numpy(dist.sample()).T

    counts = np.bincount(2 * first + second)  # of 00, 01, 10 and 11
    expected_counts = 20_000 * np.array([1 / 8, 1 / 8, 3 / 8, 3 / 8])
    assert stats.chisquare(counts, expected_counts).pvalue > 1e-3
    # The test can tell: a probability of 0.77 does not fit the first bit.
    assert stats.binomtest(int(first.sum()), 20_000, 0.77).pvalue < 1e-3


# --- masks ----------------------------------------------------------------------------------------

#: The mask of three bits: the first is free, the second must be 0, the third must be 1. There are
#: two columns for each bit: may it be 0, may it be 1.
FREE_BIT_THEN_0_THEN_1 = np.array([[1, 1, 1, 0, 0, 1]], np.int8)


@each_dtype
def test_masked_entropy_is_that_of_free_bits(framework, dtype):
    logits = np.array([[0.5, 1.5, -2.0]])

    entropy = make_masked(framework, logits, FREE_BIT_THEN_0_THEN_1, dtype).entropy()

    expected = exact_bernoulli(framework, logits, dtype).entropy()[:, 0]
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=TOLERANCES[dtype])


@each_dtype
def test_masked_kl_is_that_of_free_bits(framework, dtype):
    p_logits = np.array([[0.5, 1.5, -2.0]])
    q_logits = np.array([[-1.0, 0.5, 2.0]])

    p = make_masked(framework, p_logits, FREE_BIT_THEN_0_THEN_1, dtype)
    q = make_masked(framework, q_logits, FREE_BIT_THEN_0_THEN_1, dtype)

    expected = torch.distributions.kl_divergence(
        exact_bernoulli(framework, p_logits, dtype), exact_bernoulli(framework, q_logits, dtype)
    )
    # Only the first bit is free; the others have a divergence of 0.
    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected[:, 0], rtol=TOLERANCES[dtype])


@each_dtype
def test_masked_logp_is_that_of_free_bits(framework, dtype):
    logits = np.array([[0.5, 1.5, -2.0]])

    logp = make_masked(framework, logits, FREE_BIT_THEN_0_THEN_1, dtype).logp([[1, 0, 1]])

    # The other two bits are certain.
    p_of_first = exact_bernoulli(framework, logits, dtype).probs[:, 0]
    np.testing.assert_allclose(framework.numpy(logp), p_of_first.log(), rtol=TOLERANCES[dtype])


@each_dtype
@pytest.mark.parametrize("forbidden", [[1, 1, 1], [1, 0, 0], [1, 1, 0]], ids=str)
def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework, dtype, forbidden):
    dist = make_masked(framework, [[0.5, 1.5, -2.0]], FREE_BIT_THEN_0_THEN_1, dtype)

    logp = framework.numpy(dist.logp([forbidden]))

    assert np.isfinite(logp).all()
    assert (logp < -6e4).all()  # float16 ends at -65504


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_bits_are_not_drawn_in_a_million_draws(framework, dtype):
    framework.seed(0)
    # The forbidden values of the second and third bit would be very likely.
    rows = 10**6 // 3 + 1  # of three bits
    logits = np.tile([0, 60, -60], (rows, 1))
    mask = np.tile(FREE_BIT_THEN_0_THEN_1, (rows, 1))

    bits = framework.numpy(make_masked(framework, logits, mask, dtype).sample())

    assert 0.49 < bits[:, 0].mean() < 0.51  # the first bit is free
    assert (bits[:, 1] == 0).all()
    assert (bits[:, 2] == 1).all()


def test_mask_of_wrong_width_is_an_error(framework):
    logits = framework.tensor(np.zeros((7, 4), np.float32))
    mask = framework.tensor(np.ones((7, 4), bool))

    with pytest.raises(ActionMaskError, match="two columns per bit") as caught:
        framework.load("Bernoulli").masked(logits, mask)

    assert str(caught.value).endswith("expected 8 columns, found shape (7, 4).")


@pytest.mark.parametrize("quantity", ["logp", "entropy", "kl"])
def test_masked_gradient_is_zero_for_forced_bits(framework, quantity):
    cls = framework.load("Bernoulli")
    mask = framework.tensor(FREE_BIT_THEN_0_THEN_1)

    def compute(logits):
        dist = cls(cls.masked(logits, mask))
        if quantity == "logp":
            return dist.logp([[1, 0, 1]])
        if quantity == "entropy":
            return dist.entropy()
        return dist.kl(make_bernoulli(framework, [[0, 0, 0]]))

    gradient = framework.gradient(compute, at=np.array([[0.5, 1.5, -2.0]], np.float32))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[0, 1:], [0, 0])  # of the second and the third bit


# --- extreme inputs -------------------------------------------------------------------------------


def extreme_logits(dtype):
    """Return all triples of extreme logits, `[343, 3]`."""
    extremes = np.array([0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6])
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    return np.array(list(itertools.product(extremes, repeat=3)))


@each_dtype
def test_samples_of_extreme_logits_are_certain(framework, dtype):
    logits = extreme_logits(dtype)

    bits = framework.numpy(make_bernoulli(framework, logits, dtype).sample())

    assert (bits[logits > 1e4] == 1).all()
    assert (bits[logits < -1e4] == 0).all()


@each_dtype
def test_densities_of_extreme_logits_are_finite(framework, dtype):
    logits = extreme_logits(dtype)
    dist = make_bernoulli(framework, logits, dtype)
    reversed_dist = make_bernoulli(framework, logits[::-1].copy(), dtype)
    likely_bits = framework.numpy(dist.deterministic_sample())

    assert framework.all_finite(dist.logp(likely_bits))
    assert framework.all_finite(dist.logp(1 - likely_bits))
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.kl(reversed_dist))


def test_entropy_gradient_of_extreme_logits_is_finite(framework):
    cls = framework.load("Bernoulli")
    logits = extreme_logits("float32").astype(np.float32)

    gradient = framework.gradient(lambda x: cls(x).entropy(), at=logits)

    assert np.isfinite(gradient).all()


# --- tracing --------------------------------------------------------------------------------------


def test_tf_function_draws_and_scores_new_samples():
    import tensorflow as tf

    from rlcatalog_categorical.tf import Bernoulli

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def sample_and_score(inputs):
        dist = Bernoulli(inputs)
        first = dist.sample()
        second = dist.sample()
        return first, second, dist.logp(first), dist.logp(tf.cast(first, tf.float32))

    first, second, logp, logp_of_floats = sample_and_score(tf.zeros([200, 4]))

    assert (first.numpy() != second.numpy()).any()  # each call of sample draws anew
    np.testing.assert_allclose(logp, 4 * np.log(1 / 2), rtol=1e-5)  # four bits of logit 0
    np.testing.assert_array_equal(logp_of_floats, logp)  # bits may also be floats
