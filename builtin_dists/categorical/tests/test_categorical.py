"""The categorical distribution: densities, samples, temperature, gradients and masks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import special, stats

from rlcatalog import ModelCatalog, build, default_catalog
from rlcatalog.errors import CatalogError, ConfigError, StaleOutputError
from rlcatalog_tf import Categorical as TFCategorical
from rlcatalog_torch import Categorical as TorchCategorical

DRAWS = 20_000
#: Logits of one row, for tests that sample it many times.
FIVE_LOGITS = np.array([0.0, 1.0, -1.0, 2.0, -3.0], np.float32)


def random_logits(rows=7, n=5, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, n)).astype(np.float32)


def make_categorical(kit, logits, **options):
    return kit.load("Categorical")(kit.tensor(logits), None, **options)


def exact_categorical(logits, mask=True):
    """Return the distribution of torch.distributions in float64."""
    logits = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    return torch.distributions.Categorical(logits=torch.from_numpy(logits))


def logp_of_all(kit, dist, rows=7, n=5):
    """Return the log probability of each action in each row, `[actions, rows]`."""
    return np.stack([kit.numpy(dist.logp(np.full(rows, action))) for action in range(n)])


# Functions of a distribution and another one, for tests of gradients.


def logp(dist, other):
    return dist.logp([0, 1, 2, 3, 4, 0, 1])


def entropy(dist, other):
    return dist.entropy()


def kl(dist, other):
    return dist.kl(other)


def reverse_kl(dist, other):
    return other.kl(dist)


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", range(5))
def test_logp_matches_torch_distributions(kit, action):
    logits = random_logits(rows=7, n=5)
    actions = np.full(7, action)

    logp = make_categorical(kit, logits).logp(kit.tensor(actions))

    expected = exact_categorical(logits).log_prob(torch.from_numpy(actions))
    np.testing.assert_allclose(kit.numpy(logp), expected, rtol=1e-5, atol=1e-6)


def test_probabilities_sum_to_one(kit):
    dist = make_categorical(kit, random_logits(rows=7, n=5))

    probabilities = np.exp(logp_of_all(kit, dist))

    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-5)


def test_entropy_matches_torch_distributions(kit):
    logits = random_logits()

    entropy = make_categorical(kit, logits).entropy()

    np.testing.assert_allclose(kit.numpy(entropy), exact_categorical(logits).entropy(), rtol=1e-5)


def test_entropy_is_sum_over_actions(kit):
    dist = make_categorical(kit, random_logits())

    logp = logp_of_all(kit, dist).astype(np.float64)

    expected = -(np.exp(logp) * logp).sum(axis=0)
    np.testing.assert_allclose(kit.numpy(dist.entropy()), expected, rtol=1e-5)


def test_entropy_of_equal_logits_is_log_of_their_number(kit):
    dist = make_categorical(kit, np.zeros((2, 5), np.float32))

    np.testing.assert_allclose(kit.numpy(dist.entropy()), np.log(5), rtol=1e-6)


def test_kl_matches_torch_distributions(kit):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_categorical(kit, p).kl(make_categorical(kit, q))

    expected = torch.distributions.kl_divergence(exact_categorical(p), exact_categorical(q))
    np.testing.assert_allclose(kit.numpy(kl), expected, rtol=1e-5)


def test_kl_is_not_symmetric(kit):
    p = make_categorical(kit, random_logits(seed=0))
    q = make_categorical(kit, random_logits(seed=1))

    assert not np.allclose(kit.numpy(p.kl(q)), kit.numpy(q.kl(p)))


def test_kl_of_same_logits_is_zero(kit):
    logits = random_logits()

    kl = make_categorical(kit, logits).kl(make_categorical(kit, logits))

    np.testing.assert_allclose(kit.numpy(kl), 0, atol=1e-6)


def test_multi_entropy_and_multi_kl_have_one_component(kit):
    p = make_categorical(kit, random_logits(seed=0))
    q = make_categorical(kit, random_logits(seed=1))

    np.testing.assert_array_equal(kit.numpy(p.multi_entropy()), kit.numpy(p.entropy()))
    np.testing.assert_array_equal(kit.numpy(p.multi_kl(q)), kit.numpy(p.kl(q)))


def test_entropy_is_exact(kit):
    assert kit.load("Categorical").entropy_kind == "exact"


@pytest.mark.parametrize("quantity", [logp, entropy, kl])
def test_densities_agree_between_frameworks(torch_kit, tf_kit, quantity):
    results = []
    for kit in (torch_kit, tf_kit):
        dist = make_categorical(kit, random_logits(seed=0))
        other = make_categorical(kit, random_logits(seed=1))
        results.append(kit.numpy(quantity(dist, other)))

    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_densities_have_one_number_per_row(kit, rows, n):
    dist = make_categorical(kit, random_logits(rows, n))
    sample = dist.sample()

    for value in [
        dist.logp(sample),
        dist.sampled_action_logp(),
        dist.entropy(),
        dist.kl(dist),
        dist.entropy_estimate(),
    ]:
        assert tuple(value.shape) == (rows,)
        assert value.dtype == dist.inputs.dtype


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64_with_one_number_per_row(kit, method, rows, n):
    dist = make_categorical(kit, random_logits(rows, n))

    sample = kit.numpy(getattr(dist, method)())

    assert sample.shape == (rows,)
    assert sample.dtype == np.int64


@pytest.mark.parametrize(
    "actions",
    [
        np.array([0, 1, 2, 3]),
        np.array([[0], [1], [2], [3]]),
        np.array([0, 1, 2, 3], np.int32),
        np.array([0, 1, 2, 3], np.float32),
        [0, 1, 2, 3],
    ],
    ids=["int64", "column", "int32", "float32", "list"],
)
def test_logp_takes_actions_in_any_form(kit, actions):
    dist = make_categorical(kit, random_logits(rows=4))

    expected = kit.numpy(dist.logp(kit.tensor([0, 1, 2, 3])))

    np.testing.assert_array_equal(kit.numpy(dist.logp(actions)), expected)


def test_logp_takes_tensor_with_a_column(kit):
    dist = make_categorical(kit, random_logits(rows=4))

    expected = kit.numpy(dist.logp(kit.tensor([0, 1, 2, 3])))

    column = kit.tensor([[0], [1], [2], [3]])
    np.testing.assert_array_equal(kit.numpy(dist.logp(column)), expected)


def test_inputs_may_be_an_array(kit):
    logits = random_logits()

    from_array = kit.load("Categorical")(logits)
    from_tensor = kit.load("Categorical")(kit.tensor(logits))

    np.testing.assert_array_equal(kit.numpy(from_array.log_probs), kit.numpy(from_tensor.log_probs))
    np.testing.assert_array_equal(
        kit.numpy(from_array.deterministic_sample()), kit.numpy(from_tensor.deterministic_sample())
    )


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
def test_inputs_are_not_changed(kit, as_tensor):
    logits = random_logits()
    inputs = kit.tensor(logits.copy()) if as_tensor else logits.copy()

    dist = kit.load("Categorical")(inputs, None, temperature=3.0)
    dist.sample()
    dist.logp(np.zeros(7, np.int64))
    dist.entropy()

    np.testing.assert_array_equal(kit.numpy(inputs) if as_tensor else inputs, logits)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_stored_inputs_give_the_same_distribution(kit, temperature):
    # An engine stores the inputs alone, so these must contain the temperature.
    dist = make_categorical(kit, random_logits(), temperature=temperature)

    restored = make_categorical(kit, kit.numpy(dist.inputs))

    np.testing.assert_array_equal(kit.numpy(restored.log_probs), kit.numpy(dist.log_probs))


# --- samples --------------------------------------------------------------------------------------


def pvalue_of_fit(samples, logits):
    """Return the p-value of the hypothesis that samples follow logits (a chi-squared test)."""
    counts = np.bincount(samples, minlength=len(logits))
    probabilities = special.softmax(np.asarray(logits, np.float64))
    return stats.chisquare(counts, len(samples) * probabilities).pvalue


def test_samples_follow_the_probabilities(kit):
    kit.seed(0)
    logits = np.array([0, 1, -1, 2, -3], np.float32)

    samples = kit.numpy(make_categorical(kit, np.tile(logits, (20_000, 1))).sample())

    assert pvalue_of_fit(samples, logits) > 1e-3
    # The test can tell: slightly different logits do not fit.
    assert pvalue_of_fit(samples, logits + np.float32([0, 0.1, 0, 0, 0])) < 1e-3


@pytest.mark.parametrize(
    ("shift", "logits"),
    [
        (-1e3, [0, 0, 2, 1]),
        (1e6, [0, 0, 2, 1]),
        # float32 has no fractions and few integers there, so that only equal logits are exact.
        (2e7, [0, 0, 0, 0]),
        (1e8, [0, 0, 0, 0]),
    ],
)
def test_common_shift_of_logits_changes_nothing(kit, shift, logits):
    kit.seed(1)
    logits = np.array(logits, np.float32)
    shifted = logits + np.float32(shift)
    np.testing.assert_array_equal(shifted - np.float32(shift), logits)  # the sum is exact

    dist = make_categorical(kit, np.tile(shifted, (DRAWS, 1)))

    expected_entropy = stats.entropy(special.softmax(logits))
    assert pvalue_of_fit(kit.numpy(dist.sample()), logits) > 1e-3
    np.testing.assert_allclose(kit.numpy(dist.entropy())[0], expected_entropy, rtol=1e-5)


def test_each_sample_is_new(kit):
    kit.seed(2)
    dist = make_categorical(kit, np.zeros((200, 50), np.float32))

    samples = [kit.numpy(dist.sample()) for _ in range(4)]

    for first, second in itertools.combinations(samples, 2):
        assert (first == second).mean() < 0.2  # by chance: 1 of 50


def test_each_sample_is_new_inside_tf_function():
    @tf.function
    def sample_twice(logits):
        dist = TFCategorical(logits)
        return dist.sample(), dist.sample()

    tf.random.set_seed(3)
    logits = tf.zeros([200, 50])
    samples = [*sample_twice(logits), *sample_twice(logits)]

    for first, second in itertools.combinations(samples, 2):
        assert (first.numpy() == second.numpy()).mean() < 0.2  # by chance: 1 of 50


def test_samples_follow_the_probabilities_inside_tf_function():
    @tf.function
    def sample(logits):
        return TFCategorical(logits).sample()

    tf.random.set_seed(3)
    samples = sample(tf.constant(np.tile(FIVE_LOGITS, (DRAWS, 1)))).numpy()

    assert pvalue_of_fit(samples, FIVE_LOGITS) > 1e-3


def test_sampled_action_logp_inside_tf_function():
    @tf.function
    def sample_and_score(logits):
        dist = TFCategorical(logits)
        dist.sample()
        return dist.sampled_action_logp()

    logp = sample_and_score(tf.zeros([200, 50]))

    np.testing.assert_allclose(logp.numpy(), -np.log(50), rtol=1e-5)


def test_same_seed_repeats_the_sample(kit):
    dist = make_categorical(kit, random_logits())

    kit.seed(4)
    first = kit.numpy(dist.sample())
    kit.seed(4)
    second = kit.numpy(dist.sample())

    np.testing.assert_array_equal(first, second)


def test_sampled_action_logp_needs_a_sample(kit):
    dist = make_categorical(kit, random_logits())

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before sampled_action_logp\(\)"):
        dist.sampled_action_logp()


def test_sampled_action_logp_is_that_of_the_last_sample(kit):
    dist = make_categorical(kit, random_logits())

    for draw in [dist.sample, dist.deterministic_sample, dist.sample]:
        sample = draw()

        np.testing.assert_array_equal(kit.numpy(dist.last_sample), kit.numpy(sample))
        np.testing.assert_array_equal(
            kit.numpy(dist.sampled_action_logp()), kit.numpy(dist.logp(sample))
        )


def test_logp_of_sample_changed_in_place_is_of_new_values():
    logits = random_logits()
    dist = TorchCategorical(torch.from_numpy(logits))

    sample = dist.sample()
    sample.fill_(2)

    expected = exact_categorical(logits).log_prob(torch.full((7,), 2))
    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-5)


def test_deterministic_sample_is_most_likely_action(kit):
    logits = random_logits()

    actions = make_categorical(kit, logits).deterministic_sample()

    np.testing.assert_array_equal(kit.numpy(actions), logits.argmax(axis=1))


def test_entropy_estimate_is_unbiased(kit):
    kit.seed(5)
    dist = make_categorical(kit, np.tile(FIVE_LOGITS, (DRAWS, 1)))

    estimates = kit.numpy(dist.entropy_estimate())

    exact = stats.entropy(special.softmax(FIVE_LOGITS.astype(np.float64)))
    standard_error = estimates.std() / np.sqrt(DRAWS)
    assert abs(estimates.mean() - exact) < 4 * standard_error


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 100.0])
def test_temperature_divides_logits(kit, temperature):
    logits = random_logits()
    actions = [0, 1, 2, 3, 4, 0, 1]

    dist = make_categorical(kit, logits, temperature=temperature)

    expected = exact_categorical(logits.astype(np.float64) / temperature)
    expected_logp = expected.log_prob(torch.tensor(actions))
    np.testing.assert_allclose(kit.numpy(dist.logp(actions)), expected_logp, rtol=1e-4)
    np.testing.assert_allclose(kit.numpy(dist.entropy()), expected.entropy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 100.0])
def test_temperature_keeps_most_likely_action(kit, temperature):
    logits = random_logits()

    actions = make_categorical(kit, logits, temperature=temperature).deterministic_sample()

    np.testing.assert_array_equal(kit.numpy(actions), logits.argmax(axis=1))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(kit, temperature):
    with pytest.raises(ValueError, match="temperature must be positive, found") as caught:
        make_categorical(kit, random_logits(), temperature=temperature)

    assert isinstance(caught.value, CatalogError)


def test_temperature_in_config_divides_logits(kit):
    logits = random_logits(n=4)
    dist_class, _ = default_catalog().action_dist(
        spaces.Discrete(4), {"categorical_temperature": 2.0}, None, kit.framework
    )
    inputs = kit.tensor(logits.copy())

    log_probs = dist_class(inputs).log_probs

    expected = make_categorical(kit, logits / 2).log_probs
    np.testing.assert_allclose(kit.numpy(log_probs), kit.numpy(expected), rtol=1e-6)
    np.testing.assert_array_equal(kit.numpy(inputs), logits)  # RLlib divides them in place


@pytest.mark.parametrize("value", [0.0, -1.0, "warm", None])
@pytest.mark.parametrize("key", ["categorical_temperature", "gumbel_softmax_temperature"])
def test_temperature_in_config_must_be_positive_number(key, value):
    with pytest.raises(ConfigError, match=key):
        ModelCatalog.get_action_dist(spaces.Discrete(3), {key: value})


# --- extreme inputs -------------------------------------------------------------------------------

#: All triples of extreme logits, `[729, 3]`.
EXTREME_LOGITS = np.array(
    list(
        itertools.product(
            [0.0, 1e8, -1e8, 1.1e34, -1.1e34, 1.1e-34, -1.1e-34, 1e-6, -1e-6], repeat=3
        )
    ),
    np.float32,
)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_of_extreme_logits_are_actions(kit, method):
    kit.seed(6)
    dist = make_categorical(kit, EXTREME_LOGITS)

    sample = getattr(dist, method)()

    assert set(kit.numpy(sample)) <= {0, 1, 2}
    assert np.isfinite(kit.numpy(dist.logp(sample))).all()


@pytest.mark.parametrize("action", [0, 1, 2])
def test_logp_of_extreme_logits_is_exact(kit, action):
    actions = np.full(len(EXTREME_LOGITS), action)

    logp = kit.numpy(make_categorical(kit, EXTREME_LOGITS).logp(actions))

    expected = special.log_softmax(EXTREME_LOGITS.astype(np.float64), axis=1)[:, action]
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-5)


def test_entropy_of_extreme_logits_is_exact(kit):
    entropy = kit.numpy(make_categorical(kit, EXTREME_LOGITS).entropy())

    exact_logp = special.log_softmax(EXTREME_LOGITS.astype(np.float64), axis=1)
    expected = -(np.exp(exact_logp) * exact_logp).sum(axis=1)
    np.testing.assert_allclose(entropy, expected, rtol=1e-5, atol=1e-5)


def test_kl_of_extreme_logits_is_finite(kit):
    dist = make_categorical(kit, EXTREME_LOGITS)
    other = make_categorical(kit, EXTREME_LOGITS[::-1].copy())

    assert np.isfinite(kit.numpy(dist.kl(other))).all()


def test_lead_of_1e6_leaves_other_actions_no_chance(kit):
    kit.seed(6)
    second, first = np.sort(EXTREME_LOGITS, axis=1)[:, 1:].T
    has_clear_lead = first - second > 1e6

    sample = kit.numpy(make_categorical(kit, EXTREME_LOGITS).sample())

    most_likely = EXTREME_LOGITS.argmax(axis=1)
    np.testing.assert_array_equal(sample[has_clear_lead], most_likely[has_clear_lead])


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", [logp, entropy, kl, reverse_kl])
def test_gradient_matches_finite_differences(kit, quantity):
    logits = random_logits(seed=0).astype(np.float64)
    other = make_categorical(kit, random_logits(seed=1).astype(np.float64))

    def compute(inputs):
        return quantity(kit.load("Categorical")(inputs), other)

    np.testing.assert_allclose(
        kit.gradient(compute, at=logits), kit.numeric_gradient(compute, at=logits), atol=1e-7
    )


def test_gradient_with_temperature_matches_finite_differences(kit):
    logits = random_logits().astype(np.float64)

    def compute(inputs):
        return kit.load("Categorical")(inputs, temperature=2.0).entropy()

    np.testing.assert_allclose(
        kit.gradient(compute, at=logits), kit.numeric_gradient(compute, at=logits), atol=1e-7
    )


@pytest.mark.parametrize("quantity", [logp, entropy, kl, reverse_kl])
def test_gradients_agree_between_frameworks(torch_kit, tf_kit, quantity):
    gradients = []
    for kit in (torch_kit, tf_kit):
        cls = kit.load("Categorical")
        other = make_categorical(kit, random_logits(seed=1))
        gradients.append(
            kit.gradient(lambda x, cls=cls, other=other: quantity(cls(x), other), random_logits())
        )

    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-5)


# --- masks ----------------------------------------------------------------------------------------

#: Allowed actions of seven rows.
MASK = np.array(
    [
        [1, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 1, 1, 1, 1],
        [0, 1, 1, 0, 0],
        [1, 1, 0, 1, 1],
        [0, 1, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ],
    bool,
)
with_tolerances = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 4e-2)]
)
dtypes = pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
scales = pytest.mark.parametrize("scale", [1.0, 30.0])


def make_masked(kit, logits, mask=MASK, dtype="float32"):
    cls = kit.load("Categorical")
    return cls(cls.masked(kit.tensor(logits, dtype), kit.tensor(mask)))


def round_to(kit, logits, dtype):
    """Return logits as a dtype holds them."""
    return kit.numpy(kit.tensor(logits, dtype))


@with_tolerances
@scales
def test_masked_entropy_is_that_of_allowed_actions(kit, dtype, tolerance, scale):
    logits = scale * random_logits(rows=7, n=5)

    entropy = kit.numpy(make_masked(kit, logits, MASK, dtype).entropy())

    expected = exact_categorical(round_to(kit, logits, dtype), MASK).entropy()
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(entropy, expected, rtol=tolerance, atol=atol)


@with_tolerances
@scales
def test_masked_kl_is_that_of_allowed_actions(kit, dtype, tolerance, scale):
    p = scale * random_logits(seed=0)
    q = scale * random_logits(seed=1)

    kl = kit.numpy(make_masked(kit, p, MASK, dtype).kl(make_masked(kit, q, MASK, dtype)))

    exact_p = exact_categorical(round_to(kit, p, dtype), MASK)
    exact_q = exact_categorical(round_to(kit, q, dtype), MASK)
    expected = torch.distributions.kl_divergence(exact_p, exact_q)
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(kl, expected, rtol=tolerance, atol=atol)


@with_tolerances
@scales
def test_masked_logp_is_that_of_allowed_actions(kit, dtype, tolerance, scale):
    logits = scale * random_logits(rows=7, n=5)

    logp = logp_of_all(kit, make_masked(kit, logits, MASK, dtype)).T

    exact_logp = exact_categorical(round_to(kit, logits, dtype), MASK).logits.numpy()
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(logp[MASK], exact_logp[MASK], rtol=tolerance, atol=atol)


@dtypes
@scales
def test_masked_logp_of_forbidden_actions_is_low_and_finite(kit, dtype, scale):
    dist = make_masked(kit, scale * random_logits(rows=7, n=5), MASK, dtype)

    logp = logp_of_all(kit, dist).T

    assert np.isfinite(logp).all()
    assert (logp[~MASK] < -6e4).all()


@pytest.mark.parametrize(
    ("dtype", "largest"),
    # The largest logits whose sum of two is in the dtype's range.
    [("float32", 1.1e34), ("float16", 3e4), ("bfloat16", 1.1e34)],
)
def test_masked_densities_of_extreme_logits_are_finite(kit, dtype, largest):
    pairs = list(itertools.product([0.0, 40.0, -40.0, largest, -largest], repeat=2))
    logits = np.array([(*pair, 0.0) for pair in pairs], np.float32)
    mask = np.tile([True, True, False], (len(pairs), 1))
    dist = make_masked(kit, logits, mask, dtype)
    other = make_masked(kit, logits[::-1].copy(), mask, dtype)

    assert np.isfinite(logp_of_all(kit, dist, rows=len(pairs), n=3)).all()
    assert np.isfinite(kit.numpy(dist.entropy())).all()
    assert np.isfinite(kit.numpy(dist.kl(dist))).all()
    assert not np.isnan(kit.numpy(dist.kl(other))).any()
    assert (kit.numpy(dist.sample()) < 2).all()


@dtypes
def test_masked_samples_are_allowed(kit, dtype):
    kit.seed(7)
    mask = np.tile(MASK, (3000, 1))
    # The forbidden actions would be very likely.
    logits = np.where(mask, np.tile(random_logits(), (3000, 1)), 50)
    every_row = np.arange(len(mask))

    masked = make_masked(kit, logits, mask, dtype)
    unmasked = kit.load("Categorical")(kit.tensor(logits, dtype))

    assert mask[every_row, kit.numpy(masked.sample())].all()
    assert mask[every_row, kit.numpy(masked.sample())].all()
    assert mask[every_row, kit.numpy(masked.deterministic_sample())].all()
    assert not mask[every_row, kit.numpy(unmasked.sample())].all()


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mask_holds_at_any_temperature(kit, temperature, dtype):
    kit.seed(0)
    cls = kit.load("Categorical")
    # The forbidden third action would be very likely.
    logits = kit.tensor(np.tile([0.0, 0.1, 9.0], (20_000, 1)), dtype)
    mask = kit.tensor(np.tile([True, True, False], (20_000, 1)))

    dist = cls(cls.masked(logits, mask), temperature=temperature)

    assert set(kit.numpy(dist.sample())) <= {0, 1}
    assert np.isfinite(kit.numpy(dist.entropy())).all()
    assert np.isfinite(kit.numpy(dist.kl(dist))).all()
    assert np.isfinite(kit.numpy(dist.logp(np.full(20_000, 2)))).all()


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mask_without_allowed_action_has_finite_entropy(kit, temperature, dtype):
    cls = kit.load("Categorical")
    logits = kit.tensor(np.zeros((2, 3)), dtype)

    dist = cls(cls.masked(logits, kit.tensor(np.zeros((2, 3), bool))), temperature=temperature)

    assert np.isfinite(kit.numpy(dist.entropy())).all()


def test_masked_inputs_are_lowest_for_forbidden_actions(kit):
    logits = random_logits(rows=7, n=5)

    dist = make_masked(kit, logits, MASK)

    expected = np.where(MASK, logits, np.finfo(np.float32).min)
    np.testing.assert_array_equal(kit.numpy(dist.inputs), expected)


def test_masked_inputs_give_the_same_distribution(kit):
    dist = make_masked(kit, random_logits(), MASK)

    restored = make_categorical(kit, kit.numpy(dist.inputs))

    np.testing.assert_array_equal(kit.numpy(restored.log_probs), kit.numpy(dist.log_probs))


def test_mask_may_be_int8_as_in_gymnasium(kit):
    cls = kit.load("Categorical")
    logits = kit.tensor(random_logits(rows=7, n=5))

    by_int8 = cls.masked(logits, kit.tensor(MASK.astype(np.int8)))
    by_bool = cls.masked(logits, kit.tensor(MASK))

    np.testing.assert_array_equal(kit.numpy(by_int8), kit.numpy(by_bool))


@pytest.mark.parametrize("quantity", ["logp", "entropy", "kl"])
def test_masked_gradient_is_zero_for_forbidden_actions(kit, quantity):
    cls = kit.load("Categorical")
    allowed_actions = MASK.argmax(axis=1)
    arguments = {
        "logp": [allowed_actions],
        "entropy": [],
        "kl": [make_categorical(kit, random_logits(seed=1))],
    }

    def compute(logits):
        dist = cls(cls.masked(logits, kit.tensor(MASK)))
        return getattr(dist, quantity)(*arguments[quantity])

    gradient = kit.gradient(compute, at=random_logits(seed=0))

    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~MASK], 0)
    assert np.abs(gradient[MASK]).sum() > 0


# --- through the catalog --------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "cls"), [("torch", TorchCategorical), ("tf", TFCategorical)])
def test_catalog_chooses_categorical_for_discrete(framework, cls):
    space = spaces.Discrete(6, start=3)

    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework)

    assert dist_class is cls
    assert size == 6
    assert cls.required_model_output_shape(space, {}) == 6
    assert cls.framework_of_class == framework


def test_output_shape_for_box_is_an_error(kit):
    with pytest.raises(CatalogError, match="Discrete"):
        kit.load("Categorical").required_model_output_shape(spaces.Box(-1, 1, (2,)), {})


def test_building_with_box_actions_is_an_error():
    box = spaces.Box(-1, 1, (2,), np.float32)

    with pytest.raises(CatalogError, match="Discrete"):
        build(box, box, {"custom_action_dist": "categorical"})
