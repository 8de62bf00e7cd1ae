"""Independent bits: densities, samples, masks and gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog.errors import ActionMaskError, ModelContractError, UnsupportedSpaceError

#: For each of four bits: may it be 0, may it be 1. In row 3 everything is allowed.
MASK = np.array([[[1, 1], [1, 0], [0, 1], [1, 1]]] * 7, np.int8)
MASK[3] = 1
#: Bits that may be both.
IS_FREE = MASK.all(axis=2)
#: All 16 actions of four bits.
ALL_ACTIONS = np.array(list(itertools.product((0, 1), repeat=4)))
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES)


def random_logits(rows=7, bits=4, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, bits)).astype(np.float32)


def make_bernoulli(framework, logits, dtype=None):
    return framework.load("Bernoulli")(framework.tensor(logits, dtype))


def make_masked(framework, logits, mask, dtype=None):
    cls = framework.load("Bernoulli")
    columns = framework.tensor(mask.reshape(len(mask), -1))
    return cls(cls.masked(framework.tensor(logits, dtype), columns))


def exact_bits(logits):
    """Return the bits' distributions of torch.distributions in float64."""
    logits = torch.from_numpy(np.asarray(logits, np.float64))
    return torch.distributions.Bernoulli(logits=logits)


def exact_logp(logits, action):
    """Return the exact log probability of each bit, `[rows, bits]`."""
    action = np.broadcast_to(action, logits.shape).astype(np.float64)
    return exact_bits(logits).log_prob(torch.from_numpy(action)).numpy()


def logp_of_all(framework, dist):
    """Return the log probability of every action in every row, `[16, rows]`."""
    rows = dist.inputs.shape[0]
    return np.stack(
        [
            framework.numpy(dist.logp(framework.tensor(np.tile(action, (rows, 1)))))
            for action in ALL_ACTIONS
        ]
    )


# --- densities ------------------------------------------------------------------------------------


def test_logp_is_sum_of_bits_log_probabilities(framework):
    logits = random_logits(rows=7, bits=4)

    logp = logp_of_all(framework, make_bernoulli(framework, logits))

    expected = [exact_logp(logits, action).sum(axis=1) for action in ALL_ACTIONS]
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-6)


def test_probabilities_sum_to_one(framework):
    logp = logp_of_all(framework, make_bernoulli(framework, random_logits()))

    np.testing.assert_allclose(np.exp(logp).sum(axis=0), 1, rtol=1e-5)


def test_multi_entropy_is_entropy_of_each_bit(framework):
    logits = random_logits()

    entropies = make_bernoulli(framework, logits).multi_entropy()

    np.testing.assert_allclose(framework.numpy(entropies), exact_bits(logits).entropy(), rtol=1e-5)


def test_entropy_is_sum_of_bits_entropies(framework):
    logits = random_logits()

    entropy = make_bernoulli(framework, logits).entropy()

    expected = exact_bits(logits).entropy().sum(dim=1)
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5)


def test_entropy_is_sum_over_all_actions(framework):
    dist = make_bernoulli(framework, random_logits())

    logp = logp_of_all(framework, dist).astype(np.float64)

    expected = -(np.exp(logp) * logp).sum(axis=0)
    np.testing.assert_allclose(framework.numpy(dist.entropy()), expected, rtol=1e-5)


def test_multi_kl_is_kl_of_each_bit(framework):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kls = make_bernoulli(framework, p).multi_kl(make_bernoulli(framework, q))

    expected = torch.distributions.kl_divergence(exact_bits(p), exact_bits(q))
    np.testing.assert_allclose(framework.numpy(kls), expected, rtol=1e-4, atol=1e-6)


def test_kl_is_sum_of_bits_kls(framework):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_bernoulli(framework, p).kl(make_bernoulli(framework, q))

    expected = torch.distributions.kl_divergence(exact_bits(p), exact_bits(q)).sum(dim=1)
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-5)


def test_kl_of_same_logits_is_zero(framework):
    logits = random_logits()

    kl = make_bernoulli(framework, logits).kl(make_bernoulli(framework, logits))

    np.testing.assert_array_equal(framework.numpy(kl), 0)


def test_kl_with_other_kind_is_an_error(framework):
    with pytest.raises(ModelContractError, match="expects another Bernoulli"):
        make_bernoulli(framework, random_logits()).kl(None)


@pytest.mark.parametrize("logits", [[20.0, -30.0], [-60.0, 80.0], [-9.0, 9.0]], ids=str)
def test_small_probabilities_are_not_lost(framework, logits):
    logits = np.array([logits])
    rare_logp = special.log_expit(-np.abs(logits))
    common_logp = special.log_expit(np.abs(logits))

    dist = make_bernoulli(framework, logits.astype(np.float32))

    common = framework.numpy(dist.deterministic_sample())
    near = {"rtol": 1e-5, "atol": 1e-6}  # the rounding error of a float32 logit
    np.testing.assert_array_equal(common, logits > 0)
    np.testing.assert_allclose(framework.numpy(dist.logp(common)), common_logp.sum(axis=1), **near)
    np.testing.assert_allclose(
        framework.numpy(dist.logp(1 - common)), rare_logp.sum(axis=1), **near
    )
    expected_entropy = -(np.exp(rare_logp) * rare_logp + np.exp(common_logp) * common_logp)
    np.testing.assert_allclose(framework.numpy(dist.multi_entropy()), expected_entropy, **near)


def test_densities_agree_between_frameworks(torch_framework, tf_framework):
    actions = np.tile([0, 1, 1, 0], (7, 1))
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_bernoulli(framework, random_logits(seed=0))
        other = make_bernoulli(framework, random_logits(seed=1))
        tensors = [
            dist.logp(actions),
            dist.multi_entropy(),
            dist.multi_kl(other),
            dist.deterministic_sample(),
        ]
        results.append([framework.numpy(tensor) for tensor in tensors])

    for by_torch, by_tf in zip(*results, strict=True):
        np.testing.assert_allclose(by_torch, by_tf, atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [1, 4])
def test_densities_have_one_number_per_row(framework, rows, bits):
    dist = make_bernoulli(framework, random_logits(rows, bits))
    sample = dist.sample()

    for value in [
        dist.logp(sample),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
        dist.sampled_action_logp(),
    ]:
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [1, 4])
def test_multi_entropy_and_multi_kl_have_a_column_per_bit(framework, rows, bits):
    dist = make_bernoulli(framework, random_logits(rows, bits))

    assert tuple(dist.multi_entropy().shape) == (rows, bits)
    assert tuple(dist.multi_kl(dist).shape) == (rows, bits)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_a_column_per_bit(framework, method, rows, bits):
    dist = make_bernoulli(framework, random_logits(rows, bits))

    sample = framework.numpy(getattr(dist, method)())

    assert sample.shape == (rows, bits)
    assert sample.dtype == np.int64


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_sampled_action_logp_is_that_of_the_last_sample(framework, method, rows, bits):
    dist = make_bernoulli(framework, random_logits(rows, bits))

    sample = framework.numpy(getattr(dist, method)())

    logp = framework.numpy(dist.logp(sample.astype(np.float32)))
    np.testing.assert_array_equal(framework.numpy(dist.last_sample), sample)
    np.testing.assert_array_equal(framework.numpy(dist.sampled_action_logp()), logp)


@pytest.mark.parametrize(
    "convert",
    [
        lambda framework, bits: bits,
        lambda framework, bits: bits.astype(np.float32),
        lambda framework, bits: bits.astype(np.int8),
        lambda framework, bits: bits.astype(bool),
        lambda framework, bits: bits.tolist(),
        lambda framework, bits: bits.reshape(7, 2, 2),
        lambda framework, bits: framework.tensor(bits),
        lambda framework, bits: framework.tensor(bits, "bfloat16"),
    ],
    ids=["int64", "float32", "int8", "bool", "list", "2 x 2 bits", "tensor", "bfloat16"],
)
def test_logp_takes_bits_in_any_form(framework, convert):
    logits = random_logits()
    bits = np.random.default_rng(0).integers(0, 2, (7, 4))

    logp = make_bernoulli(framework, logits).logp(convert(framework, bits))

    expected = exact_logp(logits, bits).sum(axis=1)
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


def test_inputs_may_be_an_array(framework):
    logits = random_logits()
    cls = framework.load("Bernoulli")

    from_array = cls(logits)
    from_tensor = cls(framework.tensor(logits))

    bits = framework.numpy(from_array.deterministic_sample())
    np.testing.assert_array_equal(bits, framework.numpy(from_tensor.deterministic_sample()))
    np.testing.assert_array_equal(
        framework.numpy(from_array.logp(bits)), framework.numpy(from_tensor.logp(bits))
    )


def test_stored_inputs_give_the_same_distribution(framework):
    dist = make_masked(framework, random_logits(), MASK)
    stored_bits = framework.numpy(dist.sample()).astype(np.float32)

    restored = make_bernoulli(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.logp(stored_bits)), framework.numpy(dist.sampled_action_logp())
    )
    np.testing.assert_array_equal(
        framework.numpy(restored.entropy()), framework.numpy(dist.entropy())
    )


@pytest.mark.parametrize(("shape", "size"), [(5, 5), ((2, 3, 4), 24), ([1], 1)], ids=str)
def test_output_shape_is_number_of_bits(framework, shape, size):
    space = spaces.MultiBinary(shape)

    assert framework.load("Bernoulli").required_model_output_shape(space, {}) == size


def test_output_shape_for_discrete_is_an_error(framework):
    with pytest.raises(UnsupportedSpaceError, match="requires a MultiBinary, found Discrete"):
        framework.load("Bernoulli").required_model_output_shape(spaces.Discrete(2))


# --- samples --------------------------------------------------------------------------------------


def test_samples_follow_the_probabilities(framework):
    framework.seed(1)
    draws = 20_000
    logits = random_logits(rows=1, bits=4)

    samples = framework.numpy(make_bernoulli(framework, np.tile(logits, (draws, 1))).sample())

    counts = np.bincount(samples @ [8, 4, 2, 1], minlength=16)  # in the order of all actions
    logp = logp_of_all(framework, make_bernoulli(framework, logits))[:, 0]
    probabilities = np.exp(logp.astype(np.float64))
    probabilities /= probabilities.sum()
    assert stats.chisquare(counts, draws * probabilities).pvalue > 1e-3
    # A test can tell: a slightly larger logit does not fit the first bit.
    wrong = special.expit(logits[0, 0] + 0.15)
    assert stats.binomtest(int(samples[:, 0].sum()), draws, wrong).pvalue < 1e-2


def test_samples_are_new(framework):
    dist = make_bernoulli(framework, np.zeros((500, 4), np.float32))

    first = framework.numpy(dist.sample())
    second = framework.numpy(dist.sample())

    assert 0.4 < (first == second).mean() < 0.6  # by chance: half of them


# --- masks ----------------------------------------------------------------------------------------


@dtypes
def test_masked_entropy_is_that_of_free_bits(framework, dtype):
    logits = random_logits(rows=7, bits=4)

    entropy = framework.numpy(make_masked(framework, logits, MASK, dtype).entropy())

    rounded = framework.numpy(framework.tensor(logits, dtype))  # the logits as the dtype holds them
    expected = (exact_bits(rounded).entropy().numpy() * IS_FREE).sum(axis=1)
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(entropy, expected, rtol=tolerance, atol=4 * tolerance)


@dtypes
def test_masked_kl_is_that_of_free_bits(framework, dtype):
    p = framework.numpy(framework.tensor(random_logits(seed=0), dtype))
    q = framework.numpy(framework.tensor(random_logits(seed=1), dtype))

    kl = framework.numpy(
        make_masked(framework, p, MASK, dtype).kl(make_masked(framework, q, MASK, dtype))
    )

    exact_kl = torch.distributions.kl_divergence(exact_bits(p), exact_bits(q)).numpy()
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(
        kl, (exact_kl * IS_FREE).sum(axis=1), rtol=tolerance, atol=4 * tolerance
    )


@dtypes
def test_masked_logp_is_that_of_free_bits(framework, dtype):
    logits = framework.numpy(framework.tensor(random_logits(rows=7, bits=4), dtype))

    logp = logp_of_all(framework, make_masked(framework, logits, MASK, dtype))

    tolerance = TOLERANCES[dtype]
    for index, action in enumerate(ALL_ACTIONS):
        is_allowed = MASK[:, range(4), action].all(axis=1)  # in each row
        expected = (exact_logp(logits, action) * IS_FREE).sum(axis=1)
        np.testing.assert_allclose(
            logp[index, is_allowed], expected[is_allowed], rtol=tolerance, atol=4 * tolerance
        )


@dtypes
def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework, dtype):
    logp = logp_of_all(
        framework, make_masked(framework, random_logits(rows=7, bits=4), MASK, dtype)
    )

    is_allowed = np.stack([MASK[:, range(4), action].all(axis=1) for action in ALL_ACTIONS])
    # Two of four bits are free; in row 3 all four.
    assert is_allowed.sum(axis=0).tolist() == [4, 4, 4, 16, 4, 4, 4]
    assert np.isfinite(logp).all()
    assert (logp[~is_allowed] < -6e4).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_bits_are_not_drawn_in_a_million_draws(framework, dtype):
    framework.seed(0)
    copies = 10**6 // (7 * 4) + 1  # of seven rows with four bits
    # The forbidden values would be very likely.
    logits = random_logits()
    logits[MASK[..., 0] == 0] = -60
    logits[MASK[..., 1] == 0] = 60
    mask = np.tile(MASK, (copies, 1, 1))

    bits = framework.numpy(
        make_masked(framework, np.tile(logits, (copies, 1)), mask, dtype).sample()
    )

    assert bits.size >= 10**6
    assert np.take_along_axis(mask, bits[..., None], axis=2).all()
    assert 0.01 < bits[:, 0].mean() < 0.99  # the first bit is free


def test_mask_of_wrong_width_is_an_error(framework):
    mask = framework.tensor(np.ones((7, 4), bool))

    with pytest.raises(ActionMaskError, match="two columns per bit") as caught:
        framework.load("Bernoulli").masked(framework.tensor(random_logits(rows=7, bits=4)), mask)

    assert str(caught.value).endswith("expected 8 columns, found shape (7, 4).")


# --- gradients ------------------------------------------------------------------------------------


def logp_of_actions(dist, other):
    return dist.logp(np.array([[0, 1, 1, 0], [1, 0, 1, 0]]))


def entropy(dist, other):
    return dist.entropy()


def kl(dist, other):
    return dist.kl(other)


def reverse_kl(dist, other):
    return other.kl(dist)


quantities = pytest.mark.parametrize("quantity", [logp_of_actions, entropy, kl, reverse_kl])


@quantities
def test_gradient_matches_finite_differences(framework, quantity):
    logits = random_logits(rows=2, seed=0).astype(np.float64)
    other = make_bernoulli(framework, random_logits(rows=2, seed=1).astype(np.float64))

    def compute(inputs):
        return quantity(framework.load("Bernoulli")(inputs), other)

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-7,
    )


@quantities
def test_masked_gradient_is_zero_for_forced_bits(framework, quantity):
    cls = framework.load("Bernoulli")
    columns = framework.tensor(MASK[:2].reshape(2, 8))
    other = make_bernoulli(framework, random_logits(rows=2, seed=1).astype(np.float64))

    def compute(logits):
        return quantity(cls(cls.masked(logits, columns)), other)

    gradient = framework.gradient(compute, at=random_logits(rows=2, seed=0).astype(np.float64))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~IS_FREE[:2]], 0)


# --- extreme inputs -------------------------------------------------------------------------------


def extreme_logits(dtype):
    """Return all triples of extreme logits, `[343, 3]`."""
    extremes = np.array([0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1e-6])
    if dtype == "float16":
        extremes = np.clip(extremes, -3e4, 3e4)
    return np.array(list(itertools.product(extremes, repeat=3)))


@dtypes
def test_samples_of_extreme_logits_are_certain(framework, dtype):
    logits = extreme_logits(dtype)

    bits = framework.numpy(make_bernoulli(framework, logits, dtype).sample())

    assert (bits[logits > 1e4] == 1).all()
    assert (bits[logits < -1e4] == 0).all()


@dtypes
def test_densities_of_extreme_logits_are_finite(framework, dtype):
    logits = extreme_logits(dtype)
    dist = make_bernoulli(framework, logits, dtype)
    other = make_bernoulli(framework, logits[::-1].copy(), dtype)
    bits = dist.sample()

    assert np.isfinite(framework.numpy(dist.logp(bits))).all()
    assert np.isfinite(framework.numpy(dist.logp(1 - framework.numpy(bits)))).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.kl(other))).all()


@dtypes
def test_entropy_gradient_of_extreme_logits_is_finite(framework, dtype):
    cls = framework.load("Bernoulli")

    gradient = framework.gradient(lambda logits: cls(logits).entropy(), extreme_logits(dtype))

    assert np.isfinite(gradient).all()


# --- tracing --------------------------------------------------------------------------------------


def test_tf_function_takes_any_batch_size():
    import tensorflow as tf

    from rlcatalog_categorical.tf import Bernoulli

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def sample_and_score(inputs):
        dist = Bernoulli(inputs)
        first = dist.sample()
        second = dist.sample()
        logp = dist.logp(first)
        logp_of_floats = dist.logp(tf.cast(first, tf.float32))
        return first, second, logp, logp_of_floats, dist.kl(dist)

    first, second, logp, logp_of_floats, kl = sample_and_score(tf.zeros([200, 4]))

    assert (first.numpy() != second.numpy()).any()
    np.testing.assert_allclose(logp, 4 * np.log(1 / 2), rtol=1e-5)  # four bits of logit 0
    np.testing.assert_array_equal(logp, logp_of_floats)
    np.testing.assert_array_equal(kl, 0)
