"""Choices by the means of quantiles: probabilities, masks, and sizes."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from scipy import special

from rlcatalog import SpaceInfo
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError
from rlcatalog_categorical.plugin import quantiles_size

pytestmark = pytest.mark.twins

ROWS, QUANTILES, VALUES = 6, 5, 3


def random_quantiles(seed=0):
    """Return quantiles `[rows, quantiles, values]`."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1.5, (ROWS, QUANTILES, VALUES)).astype(np.float32)


def make_dist(framework, quantiles, mask=None):
    cls = framework.load("Quantiles")
    inputs = framework.tensor(quantiles.reshape(len(quantiles), -1))
    if mask is not None:
        inputs = cls.masked(inputs, framework.tensor(mask), num_quantiles=QUANTILES)
    return cls(inputs, num_quantiles=QUANTILES)


def test_probabilities_are_the_softmax_of_the_means(framework):
    quantiles = random_quantiles()
    log_probs = special.log_softmax(quantiles.mean(axis=1), axis=1)

    dist = make_dist(framework, quantiles)

    for value in range(VALUES):
        logp = dist.logp(framework.tensor(np.full(ROWS, value)))
        np.testing.assert_allclose(logp, log_probs[:, value], rtol=1e-5, atol=1e-6)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=1)
    np.testing.assert_allclose(dist.entropy(), entropy, rtol=1e-5)


def test_most_likely_value_has_the_highest_mean(framework):
    quantiles = random_quantiles()

    chosen = make_dist(framework, quantiles).deterministic_sample()

    np.testing.assert_array_equal(chosen, quantiles.mean(axis=1).argmax(axis=1))


def test_quantiles_of_each_value_are_kept(framework):
    quantiles = random_quantiles()

    np.testing.assert_array_equal(make_dist(framework, quantiles).quantiles, quantiles)


def test_mask_forbids_a_value_with_all_its_quantiles(framework):
    quantiles = random_quantiles()
    mask = np.array([[True, False, True]] * ROWS)

    dist = make_dist(framework, quantiles, mask)

    allowed_means = quantiles.mean(axis=1)[:, [0, 2]]
    log_probs = special.log_softmax(allowed_means, axis=1)
    for column, value in enumerate([0, 2]):
        logp = dist.logp(framework.tensor(np.full(ROWS, value)))
        np.testing.assert_allclose(logp, log_probs[:, column], rtol=1e-5, atol=1e-6)
    logp_of_forbidden = np.asarray(dist.logp(framework.tensor(np.full(ROWS, 1))))
    assert (np.exp(logp_of_forbidden) == 0).all()
    drawn = np.array([np.asarray(dist.sample()) for _ in range(200)])
    assert set(drawn.reshape(-1)) == {0, 2}


def test_divergence_is_that_of_the_means(framework):
    first, second = random_quantiles(0), random_quantiles(1)

    divergence = make_dist(framework, first).kl(make_dist(framework, second))

    log_p = special.log_softmax(first.mean(axis=1), axis=1)
    log_q = special.log_softmax(second.mean(axis=1), axis=1)
    expected = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    np.testing.assert_allclose(divergence, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("config", "expected"), [({}, 600), ({"num_quantiles": 7}, 21)])
def test_number_of_inputs_is_quantiles_times_values(config, expected):
    info = SpaceInfo.read(spaces.Discrete(3), "action")

    assert quantiles_size(info, config) == expected


def test_other_spaces_are_refused():
    info = SpaceInfo.read(spaces.MultiDiscrete([2, 2]), "action")

    with pytest.raises(UnsupportedSpaceError, match="Quantiles requires a Discrete"):
        quantiles_size(info, {})


def test_width_that_holds_no_whole_sets_is_refused(framework):
    cls = framework.load("Quantiles")

    with pytest.raises(ModelContractError, match="found shape"):
        cls(framework.tensor(np.zeros((2, 7), np.float32)), num_quantiles=5)
