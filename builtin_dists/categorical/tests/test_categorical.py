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


def make_categorical(framework, logits, **options):
    return framework.load("Categorical")(framework.tensor(logits), None, **options)


def exact_categorical(logits, mask=True):
    """Return the distribution of torch.distributions in float64."""
    logits = np.where(mask, np.asarray(logits, np.float64), -np.inf)
    return torch.distributions.Categorical(logits=torch.from_numpy(logits))


def logp_of_all(framework, dist, rows=7, n=5):
    """Return the log probability of each action in each row, `[actions, rows]`."""
    return np.stack([framework.numpy(dist.logp(np.full(rows, action))) for action in range(n)])


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
def test_logp_matches_torch_distributions(framework, action):
    logits = random_logits(rows=7, n=5)
    actions = np.full(7, action)

    logp = make_categorical(framework, logits).logp(framework.tensor(actions))

    expected = exact_categorical(logits).log_prob(torch.from_numpy(actions))
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5, atol=1e-6)


def test_probabilities_sum_to_one(framework):
    dist = make_categorical(framework, random_logits(rows=7, n=5))

    probabilities = np.exp(logp_of_all(framework, dist))

    np.testing.assert_allclose(probabilities.sum(axis=0), 1, rtol=1e-5)


def test_entropy_matches_torch_distributions(framework):
    logits = random_logits()

    entropy = make_categorical(framework, logits).entropy()

    np.testing.assert_allclose(
        framework.numpy(entropy), exact_categorical(logits).entropy(), rtol=1e-5
    )


def test_entropy_is_sum_over_actions(framework):
    dist = make_categorical(framework, random_logits())

    logp = logp_of_all(framework, dist).astype(np.float64)

    expected = -(np.exp(logp) * logp).sum(axis=0)
    np.testing.assert_allclose(framework.numpy(dist.entropy()), expected, rtol=1e-5)


def test_entropy_of_equal_logits_is_log_of_their_number(framework):
    dist = make_categorical(framework, np.zeros((2, 5), np.float32))

    np.testing.assert_allclose(framework.numpy(dist.entropy()), np.log(5), rtol=1e-6)


def test_kl_matches_torch_distributions(framework):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_categorical(framework, p).kl(make_categorical(framework, q))

    expected = torch.distributions.kl_divergence(exact_categorical(p), exact_categorical(q))
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=1e-5)


def test_kl_is_not_symmetric(framework):
    p = make_categorical(framework, random_logits(seed=0))
    q = make_categorical(framework, random_logits(seed=1))

    assert not np.allclose(framework.numpy(p.kl(q)), framework.numpy(q.kl(p)))


def test_kl_of_same_logits_is_zero(framework):
    logits = random_logits()

    kl = make_categorical(framework, logits).kl(make_categorical(framework, logits))

    np.testing.assert_allclose(framework.numpy(kl), 0, atol=1e-6)


def test_multi_entropy_and_multi_kl_have_one_component(framework):
    p = make_categorical(framework, random_logits(seed=0))
    q = make_categorical(framework, random_logits(seed=1))

    np.testing.assert_array_equal(framework.numpy(p.multi_entropy()), framework.numpy(p.entropy()))
    np.testing.assert_array_equal(framework.numpy(p.multi_kl(q)), framework.numpy(p.kl(q)))


def test_entropy_is_exact(framework):
    assert framework.load("Categorical").entropy_kind == "exact"


@pytest.mark.parametrize("quantity", [logp, entropy, kl])
def test_densities_agree_between_frameworks(torch_framework, tf_framework, quantity):
    results = []
    for framework in (torch_framework, tf_framework):
        dist = make_categorical(framework, random_logits(seed=0))
        other = make_categorical(framework, random_logits(seed=1))
        results.append(framework.numpy(quantity(dist, other)))

    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


# --- shapes and types -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_densities_have_one_number_per_row(framework, rows, n):
    dist = make_categorical(framework, random_logits(rows, n))
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
def test_samples_are_int64_with_one_number_per_row(framework, method, rows, n):
    dist = make_categorical(framework, random_logits(rows, n))

    sample = framework.numpy(getattr(dist, method)())

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
def test_logp_takes_actions_in_any_form(framework, actions):
    dist = make_categorical(framework, random_logits(rows=4))

    expected = framework.numpy(dist.logp(framework.tensor([0, 1, 2, 3])))

    np.testing.assert_array_equal(framework.numpy(dist.logp(actions)), expected)


def test_logp_takes_tensor_with_a_column(framework):
    dist = make_categorical(framework, random_logits(rows=4))

    expected = framework.numpy(dist.logp(framework.tensor([0, 1, 2, 3])))

    column = framework.tensor([[0], [1], [2], [3]])
    np.testing.assert_array_equal(framework.numpy(dist.logp(column)), expected)


def test_inputs_may_be_an_array(framework):
    logits = random_logits()

    from_array = framework.load("Categorical")(logits)
    from_tensor = framework.load("Categorical")(framework.tensor(logits))

    np.testing.assert_array_equal(
        framework.numpy(from_array.log_probs), framework.numpy(from_tensor.log_probs)
    )
    np.testing.assert_array_equal(
        framework.numpy(from_array.deterministic_sample()),
        framework.numpy(from_tensor.deterministic_sample()),
    )


@pytest.mark.parametrize("as_tensor", [False, True], ids=["array", "tensor"])
def test_inputs_are_not_changed(framework, as_tensor):
    logits = random_logits()
    inputs = framework.tensor(logits.copy()) if as_tensor else logits.copy()

    dist = framework.load("Categorical")(inputs, None, temperature=3.0)
    dist.sample()
    dist.logp(np.zeros(7, np.int64))
    dist.entropy()

    np.testing.assert_array_equal(framework.numpy(inputs) if as_tensor else inputs, logits)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_stored_inputs_give_the_same_distribution(framework, temperature):
    # An engine stores the inputs alone, so these must contain the temperature.
    dist = make_categorical(framework, random_logits(), temperature=temperature)

    restored = make_categorical(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.log_probs), framework.numpy(dist.log_probs)
    )


# --- samples --------------------------------------------------------------------------------------


def pvalue_of_fit(samples, logits):
    """Return the p-value of the hypothesis that samples follow logits (a chi-squared test)."""
    counts = np.bincount(samples, minlength=len(logits))
    probabilities = special.softmax(np.asarray(logits, np.float64))
    return stats.chisquare(counts, len(samples) * probabilities).pvalue


def test_samples_follow_the_probabilities(framework):
    framework.seed(0)
    logits = np.array([0, 1, -1, 2, -3], np.float32)

    samples = framework.numpy(make_categorical(framework, np.tile(logits, (20_000, 1))).sample())

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
def test_common_shift_of_logits_changes_nothing(framework, shift, logits):
    framework.seed(1)
    logits = np.array(logits, np.float32)
    shifted = logits + np.float32(shift)
    np.testing.assert_array_equal(shifted - np.float32(shift), logits)  # the sum is exact

    dist = make_categorical(framework, np.tile(shifted, (DRAWS, 1)))

    expected_entropy = stats.entropy(special.softmax(logits))
    assert pvalue_of_fit(framework.numpy(dist.sample()), logits) > 1e-3
    np.testing.assert_allclose(framework.numpy(dist.entropy())[0], expected_entropy, rtol=1e-5)


def test_samples_are_new(framework):
    framework.seed(2)
    dist = make_categorical(framework, np.zeros((200, 50), np.float32))

    samples = [framework.numpy(dist.sample()) for _ in range(4)]

    for first, second in itertools.combinations(samples, 2):
        assert (first == second).mean() < 0.2  # by chance: 1 of 50


def test_samples_are_new_inside_tf_function():
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

    np.testing.assert_allclose(logp.numpy(), np.log(1 / 50), rtol=1e-5)  # 50 equal logits


def test_same_seed_repeats_the_sample(framework):
    dist = make_categorical(framework, random_logits())

    framework.seed(4)
    first = framework.numpy(dist.sample())
    framework.seed(4)
    second = framework.numpy(dist.sample())

    np.testing.assert_array_equal(first, second)


def test_sampled_action_logp_needs_a_sample(framework):
    dist = make_categorical(framework, random_logits())

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before sampled_action_logp\(\)"):
        dist.sampled_action_logp()


def test_sampled_action_logp_is_that_of_the_last_sample(framework):
    dist = make_categorical(framework, random_logits())

    for draw in [dist.sample, dist.deterministic_sample, dist.sample]:
        sample = draw()

        np.testing.assert_array_equal(framework.numpy(dist.last_sample), framework.numpy(sample))
        np.testing.assert_array_equal(
            framework.numpy(dist.sampled_action_logp()), framework.numpy(dist.logp(sample))
        )


def test_logp_of_sample_changed_in_place_is_of_new_values():
    logits = random_logits()
    dist = TorchCategorical(torch.from_numpy(logits))

    sample = dist.sample()
    sample.fill_(2)

    expected = exact_categorical(logits).log_prob(torch.full((7,), 2))
    np.testing.assert_allclose(dist.logp(sample), expected, rtol=1e-5)


def test_deterministic_sample_is_most_likely_action(framework):
    logits = random_logits()

    actions = make_categorical(framework, logits).deterministic_sample()

    np.testing.assert_array_equal(framework.numpy(actions), logits.argmax(axis=1))


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(5)
    dist = make_categorical(framework, np.tile(FIVE_LOGITS, (DRAWS, 1)))

    estimates = framework.numpy(dist.entropy_estimate())

    exact = stats.entropy(special.softmax(FIVE_LOGITS.astype(np.float64)))
    standard_error = estimates.std() / np.sqrt(DRAWS)
    assert abs(estimates.mean() - exact) < 4 * standard_error


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 100.0])
def test_temperature_divides_logits(framework, temperature):
    logits = random_logits()
    actions = [0, 1, 2, 3, 4, 0, 1]

    dist = make_categorical(framework, logits, temperature=temperature)

    expected = exact_categorical(logits.astype(np.float64) / temperature)
    expected_logp = expected.log_prob(torch.tensor(actions))
    np.testing.assert_allclose(framework.numpy(dist.logp(actions)), expected_logp, rtol=1e-4)
    np.testing.assert_allclose(
        framework.numpy(dist.entropy()), expected.entropy(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 100.0])
def test_temperature_keeps_most_likely_action(framework, temperature):
    logits = random_logits()

    actions = make_categorical(framework, logits, temperature=temperature).deterministic_sample()

    np.testing.assert_array_equal(framework.numpy(actions), logits.argmax(axis=1))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(framework, temperature):
    with pytest.raises(ValueError, match="temperature must be positive, found") as caught:
        make_categorical(framework, random_logits(), temperature=temperature)

    assert isinstance(caught.value, CatalogError)


def test_temperature_in_config_divides_logits(framework):
    logits = random_logits(n=4)
    dist_class, _ = default_catalog().action_dist(
        spaces.Discrete(4), {"categorical_temperature": 2.0}, None, framework.name
    )
    inputs = framework.tensor(logits.copy())

    log_probs = dist_class(inputs).log_probs

    expected = make_categorical(framework, logits / 2).log_probs
    np.testing.assert_allclose(framework.numpy(log_probs), framework.numpy(expected), rtol=1e-6)
    np.testing.assert_array_equal(framework.numpy(inputs), logits)  # RLlib divides them in place


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
def test_samples_of_extreme_logits_are_actions(framework, method):
    framework.seed(6)
    dist = make_categorical(framework, EXTREME_LOGITS)

    sample = getattr(dist, method)()

    assert set(framework.numpy(sample)) <= {0, 1, 2}
    assert np.isfinite(framework.numpy(dist.logp(sample))).all()


@pytest.mark.parametrize("action", [0, 1, 2])
def test_logp_of_extreme_logits_is_exact(framework, action):
    actions = np.full(len(EXTREME_LOGITS), action)

    logp = framework.numpy(make_categorical(framework, EXTREME_LOGITS).logp(actions))

    expected = special.log_softmax(EXTREME_LOGITS.astype(np.float64), axis=1)[:, action]
    assert np.isfinite(logp).all()
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-5)


def test_entropy_of_extreme_logits_is_exact(framework):
    entropy = framework.numpy(make_categorical(framework, EXTREME_LOGITS).entropy())

    exact_logp = special.log_softmax(EXTREME_LOGITS.astype(np.float64), axis=1)
    expected = -(np.exp(exact_logp) * exact_logp).sum(axis=1)
    np.testing.assert_allclose(entropy, expected, rtol=1e-5, atol=1e-5)


def test_kl_of_extreme_logits_is_finite(framework):
    dist = make_categorical(framework, EXTREME_LOGITS)
    other = make_categorical(framework, EXTREME_LOGITS[::-1].copy())

    assert np.isfinite(framework.numpy(dist.kl(other))).all()


def test_lead_of_1e6_leaves_other_actions_no_chance(framework):
    framework.seed(6)
    second, first = np.sort(EXTREME_LOGITS, axis=1)[:, 1:].T
    has_clear_lead = first - second > 1e6

    sample = framework.numpy(make_categorical(framework, EXTREME_LOGITS).sample())

    most_likely = EXTREME_LOGITS.argmax(axis=1)
    np.testing.assert_array_equal(sample[has_clear_lead], most_likely[has_clear_lead])


# --- gradients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantity", [logp, entropy, kl, reverse_kl])
def test_gradient_matches_finite_differences(framework, quantity):
    logits = random_logits(seed=0).astype(np.float64)
    other = make_categorical(framework, random_logits(seed=1).astype(np.float64))

    def compute(inputs):
        return quantity(framework.load("Categorical")(inputs), other)

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-7,
    )


def test_gradient_with_temperature_matches_finite_differences(framework):
    logits = random_logits().astype(np.float64)

    def compute(inputs):
        return framework.load("Categorical")(inputs, temperature=2.0).entropy()

    np.testing.assert_allclose(
        framework.gradient(compute, at=logits),
        framework.numeric_gradient(compute, at=logits),
        atol=1e-7,
    )


@pytest.mark.parametrize("quantity", [logp, entropy, kl, reverse_kl])
def test_gradients_agree_between_frameworks(torch_framework, tf_framework, quantity):
    gradients = []
    for framework in (torch_framework, tf_framework):
        cls = framework.load("Categorical")
        other = make_categorical(framework, random_logits(seed=1))
        gradients.append(
            framework.gradient(
                lambda x, cls=cls, other=other: quantity(cls(x), other), random_logits()
            )
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


def make_masked(framework, logits, mask=MASK, dtype="float32"):
    cls = framework.load("Categorical")
    return cls(cls.masked(framework.tensor(logits, dtype), framework.tensor(mask)))


def round_to(framework, logits, dtype):
    """Return logits as a dtype holds them."""
    return framework.numpy(framework.tensor(logits, dtype))


@with_tolerances
@scales
def test_masked_entropy_is_that_of_allowed_actions(framework, dtype, tolerance, scale):
    logits = scale * random_logits(rows=7, n=5)

    entropy = framework.numpy(make_masked(framework, logits, MASK, dtype).entropy())

    expected = exact_categorical(round_to(framework, logits, dtype), MASK).entropy()
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(entropy, expected, rtol=tolerance, atol=atol)


@with_tolerances
@scales
def test_masked_kl_is_that_of_allowed_actions(framework, dtype, tolerance, scale):
    p = scale * random_logits(seed=0)
    q = scale * random_logits(seed=1)

    kl = framework.numpy(
        make_masked(framework, p, MASK, dtype).kl(make_masked(framework, q, MASK, dtype))
    )

    exact_p = exact_categorical(round_to(framework, p, dtype), MASK)
    exact_q = exact_categorical(round_to(framework, q, dtype), MASK)
    expected = torch.distributions.kl_divergence(exact_p, exact_q)
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(kl, expected, rtol=tolerance, atol=atol)


@with_tolerances
@scales
def test_masked_logp_is_that_of_allowed_actions(framework, dtype, tolerance, scale):
    logits = scale * random_logits(rows=7, n=5)

    logp = logp_of_all(framework, make_masked(framework, logits, MASK, dtype)).T

    exact_logp = exact_categorical(round_to(framework, logits, dtype), MASK).logits.numpy()
    atol = tolerance * max(1, scale / 4)
    np.testing.assert_allclose(logp[MASK], exact_logp[MASK], rtol=tolerance, atol=atol)


@dtypes
@scales
def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework, dtype, scale):
    dist = make_masked(framework, scale * random_logits(rows=7, n=5), MASK, dtype)

    logp = logp_of_all(framework, dist).T

    assert np.isfinite(logp).all()
    assert (logp[~MASK] < -6e4).all()


@pytest.mark.parametrize(
    ("dtype", "largest"),
    # The largest logits whose sum of two is in the dtype's range.
    [("float32", 1.1e34), ("float16", 3e4), ("bfloat16", 1.1e34)],
)
def test_masked_densities_of_extreme_logits_are_finite(framework, dtype, largest):
    pairs = list(itertools.product([0.0, 40.0, -40.0, largest, -largest], repeat=2))
    logits = np.array([(*pair, 0.0) for pair in pairs], np.float32)
    mask = np.tile([True, True, False], (len(pairs), 1))
    dist = make_masked(framework, logits, mask, dtype)
    other = make_masked(framework, logits[::-1].copy(), mask, dtype)

    assert np.isfinite(logp_of_all(framework, dist, rows=len(pairs), n=3)).all()
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert not np.isnan(framework.numpy(dist.kl(other))).any()
    assert (framework.numpy(dist.sample()) < 2).all()


@dtypes
def test_masked_samples_are_allowed(framework, dtype):
    framework.seed(7)
    mask = np.tile(MASK, (3000, 1))
    # The forbidden actions would be very likely.
    logits = np.where(mask, np.tile(random_logits(), (3000, 1)), 50)
    every_row = np.arange(len(mask))

    masked = make_masked(framework, logits, mask, dtype)
    unmasked = framework.load("Categorical")(framework.tensor(logits, dtype))

    assert mask[every_row, framework.numpy(masked.sample())].all()
    assert mask[every_row, framework.numpy(masked.sample())].all()
    assert mask[every_row, framework.numpy(masked.deterministic_sample())].all()
    assert not mask[every_row, framework.numpy(unmasked.sample())].all()


def find_with_temperature(framework, temperature):
    """Return the distribution class that the catalog chooses for three actions."""
    config = {"categorical_temperature": temperature}
    space = spaces.Discrete(3)
    dist_class, _ = default_catalog().action_dist(space, config, None, framework.name)
    return dist_class


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mask_holds_at_any_temperature(framework, temperature, dtype):
    framework.seed(0)
    dist_class = find_with_temperature(framework, temperature)
    # The forbidden third action would be very likely.
    logits = framework.tensor(np.tile([0.0, 0.1, 9.0], (20_000, 1)), dtype)
    mask = framework.tensor(np.tile([True, True, False], (20_000, 1)))

    dist = dist_class(dist_class.masked(logits, mask))

    assert set(framework.numpy(dist.sample())) <= {0, 1}
    assert np.isfinite(framework.numpy(dist.entropy())).all()
    assert np.isfinite(framework.numpy(dist.kl(dist))).all()
    assert np.isfinite(framework.numpy(dist.logp(np.full(20_000, 2)))).all()


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mask_without_allowed_action_has_finite_entropy(framework, temperature, dtype):
    dist_class = find_with_temperature(framework, temperature)
    logits = framework.tensor(np.zeros((2, 3)), dtype)
    mask = framework.tensor(np.zeros((2, 3), bool))

    dist = dist_class(dist_class.masked(logits, mask))

    assert np.isfinite(framework.numpy(dist.entropy())).all()


def test_masked_inputs_are_lowest_for_forbidden_actions(framework):
    logits = random_logits(rows=7, n=5)

    dist = make_masked(framework, logits, MASK)

    expected = np.where(MASK, logits, np.finfo(np.float32).min)
    np.testing.assert_array_equal(framework.numpy(dist.inputs), expected)


def test_masked_inputs_give_the_same_distribution(framework):
    dist = make_masked(framework, random_logits(), MASK)

    restored = make_categorical(framework, framework.numpy(dist.inputs))

    np.testing.assert_array_equal(
        framework.numpy(restored.log_probs), framework.numpy(dist.log_probs)
    )


def test_mask_may_be_int8_as_in_gymnasium(framework):
    cls = framework.load("Categorical")
    logits = framework.tensor(random_logits(rows=7, n=5))

    by_int8 = cls.masked(logits, framework.tensor(MASK.astype(np.int8)))
    by_bool = cls.masked(logits, framework.tensor(MASK))

    np.testing.assert_array_equal(framework.numpy(by_int8), framework.numpy(by_bool))


@pytest.mark.parametrize("quantity", ["logp", "entropy", "kl"])
def test_masked_gradient_is_zero_for_forbidden_actions(framework, quantity):
    cls = framework.load("Categorical")
    allowed_actions = MASK.argmax(axis=1)
    arguments = {
        "logp": [allowed_actions],
        "entropy": [],
        "kl": [make_categorical(framework, random_logits(seed=1))],
    }

    def compute(logits):
        dist = cls(cls.masked(logits, framework.tensor(MASK)))
        return getattr(dist, quantity)(*arguments[quantity])

    gradient = framework.gradient(compute, at=random_logits(seed=0))

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


def test_output_shape_for_box_is_an_error(framework):
    with pytest.raises(CatalogError, match="Discrete"):
        framework.load("Categorical").required_model_output_shape(spaces.Box(-1, 1, (2,)), {})


def test_building_with_box_actions_is_an_error():
    box = spaces.Box(-1, 1, (2,), np.float32)

    with pytest.raises(CatalogError, match="Discrete"):
        build(box, box, {"custom_action_dist": "categorical"})
