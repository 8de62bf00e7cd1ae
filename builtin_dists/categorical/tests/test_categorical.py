"""The categorical distribution: densities, samples, temperature and extreme inputs."""

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


def random_logits(rows=7, n=5, seed=0):
    return np.random.default_rng(seed).normal(0, 2, (rows, n)).astype(np.float32)


def make_categorical(framework, logits, **options):
    return framework.load("Categorical")(framework.tensor(logits, "float32"), **options)


# --- densities ------------------------------------------------------------------------------------


def test_logp_matches_torch_distributions(framework):
    logits = random_logits(rows=5, n=5)
    actions = np.array([0, 1, 2, 3, 4])

    logp = make_categorical(framework, logits).logp(framework.tensor(actions))

    exact = torch.distributions.Categorical(logits=torch.tensor(logits))
    np.testing.assert_allclose(logp, exact.log_prob(torch.tensor(actions)), rtol=1e-5)


def test_entropy_matches_torch_distributions(framework):
    logits = random_logits()

    entropy = make_categorical(framework, logits).entropy()

    exact = torch.distributions.Categorical(logits=torch.tensor(logits))
    np.testing.assert_allclose(entropy, exact.entropy(), rtol=1e-5)


def test_kl_matches_torch_distributions(framework):
    p_logits = random_logits(seed=0)
    q_logits = random_logits(seed=1)

    kl = make_categorical(framework, p_logits).kl(make_categorical(framework, q_logits))

    p = torch.distributions.Categorical(logits=torch.tensor(p_logits))
    q = torch.distributions.Categorical(logits=torch.tensor(q_logits))
    np.testing.assert_allclose(kl, torch.distributions.kl_divergence(p, q), rtol=1e-4)


def test_multi_entropy_and_multi_kl_have_one_component(framework):
    p = make_categorical(framework, random_logits(seed=0))
    q = make_categorical(framework, random_logits(seed=1))

    np.testing.assert_array_equal(p.multi_entropy(), p.entropy())
    np.testing.assert_array_equal(p.multi_kl(q), p.kl(q))


@pytest.mark.parametrize(
    "actions",
    [
        np.array([0, 1]),
        np.array([[0], [1]]),
        np.array([0, 1], np.int32),
        np.array([0, 1], np.float32),
        [0, 1],
    ],
    ids=["int64", "column", "int32", "float32", "list"],
)
def test_logp_takes_actions_in_any_form(framework, actions):
    # softmax of [0, log 3] is [1/4, 3/4]
    dist = make_categorical(framework, [[0, np.log(3)], [0, np.log(3)]])

    logp = dist.logp(actions)

    np.testing.assert_allclose(logp, [np.log(1 / 4), np.log(3 / 4)], rtol=1e-5)


def test_inputs_may_be_an_array(framework):
    dist = framework.load("Categorical")(np.zeros((2, 5), np.float32))

    np.testing.assert_allclose(dist.entropy(), [np.log(5), np.log(5)], rtol=1e-5)


def test_inputs_are_not_changed(framework):
    inputs = np.array([[0, 1, 2]], np.float32)

    dist = framework.load("Categorical")(inputs, temperature=3.0)
    dist.sample()
    dist.logp([0])
    dist.entropy()

    np.testing.assert_array_equal(inputs, [[0, 1, 2]])


# --- samples --------------------------------------------------------------------------------------


def pvalue_of_fit(samples, logits):
    """Return the p-value of the hypothesis that samples follow logits (a chi-squared test)."""
    counts = np.bincount(samples, minlength=len(logits))
    probabilities = special.softmax(np.asarray(logits, np.float64))
    return stats.chisquare(counts, len(samples) * probabilities).pvalue


def test_samples_follow_the_probabilities(framework):
    framework.seed(0)
    logits = [0, 1, -1, 2, -3]

    dist = make_categorical(framework, np.tile(logits, (20_000, 1)))
    samples = framework.numpy(dist.sample())

    assert pvalue_of_fit(samples, logits) > 1e-3
    # The test can tell: a slightly larger second logit does not fit.
    assert pvalue_of_fit(samples, [0, 1.1, -1, 2, -3]) < 1e-3


@pytest.mark.parametrize("shift", [-1e3, 1e6])
def test_samples_do_not_change_if_logits_are_shifted(framework, shift):
    framework.seed(1)
    logits = np.array([0, 0, 2, 1], np.float32)

    dist = make_categorical(framework, np.tile(logits + shift, (20_000, 1)))

    assert pvalue_of_fit(framework.numpy(dist.sample()), logits) > 1e-3


@pytest.mark.parametrize("shift", [-1e3, 1e6, 1e8])
def test_entropy_does_not_change_if_logits_are_shifted(framework, shift):
    dist = make_categorical(framework, np.full((1, 4), shift))

    np.testing.assert_allclose(dist.entropy(), [np.log(4)], rtol=1e-5)


def test_samples_are_new_inside_tf_function():
    @tf.function
    def sample_twice(logits):
        dist = TFCategorical(logits)
        return dist.sample(), dist.sample()

    first, second = sample_twice(tf.zeros([200, 50]))
    third, _ = sample_twice(tf.zeros([200, 50]))

    # By chance, 1 of 50 is equal.
    assert (first.numpy() == second.numpy()).mean() < 0.2
    assert (first.numpy() == third.numpy()).mean() < 0.2


def test_sampled_action_logp_inside_tf_function():
    @tf.function
    def sample_and_score(logits):
        dist = TFCategorical(logits)
        dist.sample()
        return dist.sampled_action_logp()

    logp = sample_and_score(tf.zeros([200, 50]))

    np.testing.assert_allclose(logp, np.log(1 / 50), rtol=1e-5)  # 50 equal logits


def test_sampled_action_logp_needs_a_sample(framework):
    dist = make_categorical(framework, random_logits())

    with pytest.raises(StaleOutputError, match=r"call sample\(\) before"):
        dist.sampled_action_logp()


def test_logp_of_sample_changed_in_place_is_of_new_values():
    dist = TorchCategorical(torch.tensor([[0.0, 1.0, 2.0]]))

    sample = dist.sample()
    sample.fill_(2)

    expected = special.log_softmax([0.0, 1.0, 2.0])[2]
    np.testing.assert_allclose(dist.logp(sample), [expected], rtol=1e-5)


@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_samples_are_int64(framework, method):
    dist = make_categorical(framework, random_logits())

    assert framework.numpy(getattr(dist, method)()).dtype == np.int64


def test_deterministic_sample_is_most_likely_action(framework):
    dist = make_categorical(framework, [[1, 0, 2], [3, 0, 2]])

    np.testing.assert_array_equal(dist.deterministic_sample(), [2, 0])


def test_entropy_estimate_is_unbiased(framework):
    framework.seed(5)
    logits = [0, 1, -1, 2, -3]
    dist = make_categorical(framework, np.tile(logits, (20_000, 1)))

    estimates = framework.numpy(dist.entropy_estimate())

    exact = stats.entropy(special.softmax(logits))
    standard_error = estimates.std() / np.sqrt(20_000)
    assert abs(estimates.mean() - exact) < 4 * standard_error


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.1, 2.0, 100.0])
def test_temperature_divides_logits(framework, temperature):
    # softmax of [0, log 3] is [1/4, 3/4]
    logits = [[0, temperature * np.log(3)]]

    dist = make_categorical(framework, logits, temperature=temperature)

    expected_entropy = -(1 / 4 * np.log(1 / 4) + 3 / 4 * np.log(3 / 4))
    np.testing.assert_allclose(dist.logp([1]), [np.log(3 / 4)], rtol=1e-4)
    np.testing.assert_allclose(dist.entropy(), [expected_entropy], rtol=1e-4)


def test_temperature_counts_once_in_stored_parameters(framework):
    config = {"categorical_temperature": 0.1}
    obs_space = spaces.Box(-1, 1, (4,))
    policy = build(obs_space, spaces.Discrete(3), config, framework=framework.name)
    step = policy.act(random_logits(rows=20, n=4).clip(-1, 1))

    params = framework.tensor(step.dist_inputs, "float32")
    stored = policy.stored_dist(params, policy.model)

    rows = np.arange(20)
    logits = step.dist_inputs.astype(np.float64) / 0.1
    expected = special.log_softmax(logits, axis=1)[rows, step.raw_action.reshape(-1).astype(int)]
    np.testing.assert_allclose(step.logp, expected, rtol=1e-4)
    np.testing.assert_allclose(stored.logp(step.raw_action), expected, rtol=1e-4)
    np.testing.assert_allclose(stored.kl(policy.stored_dist(params, policy.model)), 0, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(framework, temperature):
    with pytest.raises(ValueError, match="temperature must be positive, found") as caught:
        make_categorical(framework, random_logits(), temperature=temperature)

    assert isinstance(caught.value, CatalogError)


def test_temperature_in_config_divides_logits(framework):
    config = {"categorical_temperature": 2.0}
    dist_class, _ = default_catalog().action_dist(
        spaces.Discrete(2), config, framework=framework.name
    )

    dist = dist_class(framework.tensor([[0.0, 2 * np.log(3)]], "float32"))

    # softmax of [0, log 3] is [1/4, 3/4]
    np.testing.assert_allclose(dist.logp([1]), [np.log(3 / 4)], rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, -1.0, "warm", None])
@pytest.mark.parametrize("key", ["categorical_temperature", "gumbel_softmax_temperature"])
def test_temperature_in_config_must_be_positive_number(key, value):
    with pytest.raises(ConfigError, match=key):
        ModelCatalog.get_action_dist(spaces.Discrete(3), {key: value})


def test_gradient_with_temperature_matches_finite_differences(framework):
    logits = random_logits().astype(np.float64)

    def entropy(inputs):
        return framework.load("Categorical")(inputs, temperature=2.0).entropy()

    actual = framework.gradient(entropy, at=logits)
    expected = framework.numeric_gradient(entropy, at=logits)
    np.testing.assert_allclose(actual, expected, atol=1e-7)


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
    dist = make_categorical(framework, EXTREME_LOGITS)

    sample = getattr(dist, method)()

    assert set(framework.numpy(sample)) <= {0, 1, 2}
    assert framework.all_finite(dist.logp(sample))


@pytest.mark.parametrize("action", [0, 1, 2])
def test_logp_of_extreme_logits_is_exact(framework, action):
    actions = np.full(len(EXTREME_LOGITS), action)

    logp = make_categorical(framework, EXTREME_LOGITS).logp(actions)

    expected = special.log_softmax(EXTREME_LOGITS.astype(np.float64), axis=1)[:, action]
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=1e-5)


def test_entropy_of_extreme_logits_is_exact(framework):
    entropy = make_categorical(framework, EXTREME_LOGITS).entropy()

    probabilities = special.softmax(EXTREME_LOGITS.astype(np.float64), axis=1)
    np.testing.assert_allclose(entropy, stats.entropy(probabilities, axis=1), rtol=1e-5, atol=1e-5)


def test_kl_of_extreme_logits_is_finite(framework):
    dist = make_categorical(framework, EXTREME_LOGITS)
    other = make_categorical(framework, EXTREME_LOGITS[::-1].copy())

    assert framework.all_finite(dist.kl(other))


def test_lead_of_1e6_leaves_other_actions_no_chance(framework):
    # The second largest logit of each row, and the largest.
    second, first = np.sort(EXTREME_LOGITS, axis=1)[:, 1:].T
    has_clear_lead = first - second > 1e6

    sample = framework.numpy(make_categorical(framework, EXTREME_LOGITS).sample())

    most_likely = EXTREME_LOGITS.argmax(axis=1)
    np.testing.assert_array_equal(sample[has_clear_lead], most_likely[has_clear_lead])


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
