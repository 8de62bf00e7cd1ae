"""Several diagonal Gaussians computed as one, as composites do."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.actions import unbind

each_options = pytest.mark.parametrize(
    "options", [{}, {"log_std_min": -1.0, "log_std_max": 0.5}], ids=["no limits", "limits"]
)


@each_options
def test_side_by_side_puts_means_before_log_stds(framework, options):
    cls = framework.load("DiagGaussian")

    # Two members with two and four inputs: one and two means, then as many deviations.
    _, columns = cls.side_by_side([(options, 2), (options, 4)])

    # Each says which member, and its columns from the second number up to the third.
    means = [(0, 0, 1), (1, 0, 2)]
    log_stds = [(0, 1, 2), (1, 2, 4)]
    assert columns == means + log_stds


@each_options
def test_side_by_side_keeps_class_and_options(framework, options):
    cls = framework.load("DiagGaussian")

    dist_class, _ = cls.side_by_side([(options, 4), (options, 2)])

    assert unbind(dist_class) == (cls, options)


@each_options
def test_joined_distribution_adds_that_of_its_members(framework, options):
    cls = framework.load("DiagGaussian")
    first = cls(np.float32([[1, -2]]), **options)  # a mean and a log deviation
    second = cls(np.float32([[2, 3, 1, -0.5]]), **options)  # two means, two log deviations

    dist_class, _ = cls.side_by_side([(options, 2), (options, 4)])  # of 2 and 4 inputs
    joined = dist_class(np.float32([[1, 2, 3, -2, 1, -0.5]]))  # all means, all log deviations

    logp = joined.logp(np.float32([[0.1, 0.2, 0.3]]))
    expected_logp = first.logp(np.float32([[0.1]])) + second.logp(np.float32([[0.2, 0.3]]))
    np.testing.assert_allclose(logp, expected_logp, rtol=1e-5)
    np.testing.assert_allclose(joined.entropy(), first.entropy() + second.entropy(), rtol=1e-5)


def test_family_is_that_of_equal_limits(framework):
    cls = framework.load("DiagGaussian")

    assert cls.family({}) == cls.family({})
    assert cls.family({}) != cls.family({"log_std_min": -1.0})
    assert cls.family({"log_std_min": -1.0, "log_std_max": 2.0}) == cls.family(
        {"log_std_max": 2.0, "log_std_min": -1.0}
    )


def test_family_of_subclass_is_none(framework):
    # A subclass may compute other densities, which a joined DiagGaussian would not.
    class Subclass(framework.load("DiagGaussian")):
        pass

    assert Subclass.family({}) is None
