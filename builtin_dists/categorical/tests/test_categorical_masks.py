"""What an action mask forbids of a categorical distribution."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcatalog import default_catalog

#: Allowed actions of four rows.
MASK = np.array(
    [[1, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [0, 1, 1, 0, 0]],
    bool,
)
with_tolerances = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 4e-3), ("bfloat16", 4e-2)]
)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])


def random_logits(seed=0):
    return np.random.default_rng(seed).normal(0, 2, (4, 5)).astype(np.float32)


def make_masked(framework, logits, mask, dtype="float32"):
    cls = framework.load("Categorical")
    return cls(cls.masked(framework.tensor(logits, dtype), framework.tensor(mask)))


def exact_masked(framework, logits, mask, dtype):
    """Return the distribution of torch.distributions, of the logits as the dtype holds them."""
    rounded = framework.numpy(framework.tensor(logits, dtype))
    rounded[~mask] = -np.inf
    return torch.distributions.Categorical(logits=torch.tensor(rounded))


def logp_of_all(framework, dist, n):
    """Return the log probability of each of n actions in each row, `[rows, n]`."""
    rows = len(dist.inputs)
    logps = [framework.numpy(dist.logp(np.full(rows, action))) for action in range(n)]
    return np.stack(logps, axis=1)


@with_tolerances
def test_masked_entropy_is_that_of_allowed_actions(framework, dtype, tolerance):
    logits = random_logits()

    entropy = make_masked(framework, logits, MASK, dtype).entropy()

    expected = exact_masked(framework, logits, MASK, dtype).entropy()
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=tolerance, atol=tolerance)


@with_tolerances
def test_masked_kl_is_that_of_allowed_actions(framework, dtype, tolerance):
    p = random_logits(seed=0)
    q = random_logits(seed=1)

    kl = make_masked(framework, p, MASK, dtype).kl(make_masked(framework, q, MASK, dtype))

    expected = torch.distributions.kl_divergence(
        exact_masked(framework, p, MASK, dtype), exact_masked(framework, q, MASK, dtype)
    )
    np.testing.assert_allclose(framework.numpy(kl), expected, rtol=tolerance, atol=tolerance)


@with_tolerances
def test_masked_logp_is_that_of_allowed_actions(framework, dtype, tolerance):
    logits = random_logits()

    logp = logp_of_all(framework, make_masked(framework, logits, MASK, dtype), n=5)

    expected = exact_masked(framework, logits, MASK, dtype).logits.numpy()
    np.testing.assert_allclose(logp[MASK], expected[MASK], rtol=tolerance, atol=tolerance)


@each_dtype
def test_masked_logp_of_forbidden_actions_is_low_and_finite(framework, dtype):
    dist = make_masked(framework, random_logits(), MASK, dtype)

    logp = logp_of_all(framework, dist, n=5)

    assert np.isfinite(logp).all()
    assert (logp[~MASK] < -6e4).all()  # float16 ends at -65504


@pytest.mark.parametrize(
    ("dtype", "largest"),
    # Very large logits, of which the dtype can still hold the sum of two.
    [("float32", 1.1e34), ("float16", 3e4), ("bfloat16", 1.1e34)],
)
def test_masked_densities_of_extreme_logits_are_finite(framework, dtype, largest):
    extremes = [0.0, 40.0, -40.0, largest, -largest]
    # Two allowed actions with every pair of logits, and a third that is forbidden.
    logits = np.array([[x, y, 0] for x, y in itertools.product(extremes, repeat=2)])
    mask = np.tile([True, True, False], (len(logits), 1))

    dist = make_masked(framework, logits, mask, dtype)
    reversed_dist = make_masked(framework, logits[::-1].copy(), mask, dtype)

    assert np.isfinite(logp_of_all(framework, dist, n=3)).all()
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert not np.isnan(framework.numpy(dist.kl(reversed_dist))).any()


@each_dtype
@pytest.mark.parametrize("method", ["sample", "deterministic_sample"])
def test_masked_samples_are_allowed(framework, dtype, method):
    # The forbidden second action would be very likely.
    logits = np.tile([0.0, 50.0, 1.0], (20_000, 1))
    mask = np.tile([True, False, True], (20_000, 1))

    samples = getattr(make_masked(framework, logits, mask, dtype), method)()

    assert 1 not in framework.numpy(samples)


def find_with_temperature(framework, temperature):
    """Return the distribution class that the catalog chooses for three actions."""
    config = {"categorical_temperature": temperature}
    dist_class, _ = default_catalog().action_dist(
        spaces.Discrete(3), config, framework=framework.name
    )
    return dist_class


each_temperature = pytest.mark.parametrize(
    ("temperature", "dtype"), [(0.01, "float32"), (0.01, "float16"), (1e4, "float16")]
)


@each_temperature
def test_mask_holds_at_any_temperature(framework, temperature, dtype):
    dist_class = find_with_temperature(framework, temperature)
    # The forbidden third action would be very likely.
    logits = framework.tensor(np.tile([0.0, 0.1, 9.0], (20_000, 1)), dtype)
    mask = framework.tensor(np.tile([True, True, False], (20_000, 1)))

    dist = dist_class(dist_class.masked(logits, mask))

    assert set(framework.numpy(dist.sample())) <= {0, 1}
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.logp(np.full(20_000, 2)))  # of the forbidden action


@each_temperature
def test_mask_without_allowed_action_has_finite_entropy(framework, temperature, dtype):
    dist_class = find_with_temperature(framework, temperature)
    logits = framework.tensor(np.zeros((2, 3)), dtype)
    mask = framework.tensor(np.zeros((2, 3), bool))

    dist = dist_class(dist_class.masked(logits, mask))

    assert framework.all_finite(dist.entropy())


@pytest.mark.parametrize("mask_dtype", [bool, np.int8], ids=["bool", "int8 as in Gymnasium"])
def test_masked_inputs_are_lowest_for_forbidden_actions(framework, mask_dtype):
    logits = framework.tensor(np.array([[0.5, 1.5, 2.5]], np.float32))
    mask = framework.tensor(np.array([[1, 0, 1]], mask_dtype))

    masked = framework.load("Categorical").masked(logits, mask)

    np.testing.assert_array_equal(masked, [[0.5, np.finfo(np.float32).min, 2.5]])


@pytest.mark.parametrize("quantity", ["logp", "entropy", "kl"])
def test_masked_gradient_is_zero_for_forbidden_actions(framework, quantity):
    cls = framework.load("Categorical")
    mask = np.array([[True, False, True]])

    def compute(logits):
        dist = cls(cls.masked(logits, framework.tensor(mask)))
        if quantity == "logp":
            return dist.logp([0])
        if quantity == "entropy":
            return dist.entropy()
        return dist.kl(cls(np.zeros((1, 3), np.float32)))

    gradient = framework.gradient(compute, at=np.array([[0, 1, 2]], np.float32))

    assert np.isfinite(gradient).all()
    assert gradient[0, 1] == 0
    assert np.abs(gradient).sum() > 0  # the allowed actions have one
