"""Several diagonal Gaussians computed as one, as composites do."""

from __future__ import annotations

import numpy as np
import pytest

from rlcatalog.actions import unbind

each_options = pytest.mark.parametrize(
    "options", [{}, {"log_std_min": -1.0, "log_std_max": 0.5}], ids=["no limits", "limits"]
)


def random_arrays(*shapes):
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def join(inputs, columns):
    """Join inputs as `side_by_side` says: (index of the input, first column, stop column)."""
    return np.concatenate([inputs[i][:, first:stop] for i, first, stop in columns], axis=1)


@each_options
def test_side_by_side_puts_means_before_log_stds(framework, options):
    # Two members, of one and two values: means, then log standard deviations.
    first = np.float32([[1, -1]])
    second = np.float32([[2, 3, -2, -3]])

    _, columns = framework.load("DiagGaussian").side_by_side([(options, 2), (options, 4)])

    np.testing.assert_array_equal(join([first, second], columns), [[1, 2, 3, -1, -2, -3]])


@each_options
def test_side_by_side_keeps_class_and_options(framework, options):
    cls = framework.load("DiagGaussian")

    dist_class, _ = cls.side_by_side([(options, 4), (options, 2)])

    assert unbind(dist_class) == (cls, options)


@each_options
def test_joined_logp_is_sum_of_members_logp(framework, options):
    cls = framework.load("DiagGaussian")
    inputs = random_arrays((4, 4), (4, 2), (4, 6))
    actions = random_arrays((4, 2), (4, 1), (4, 3))

    dist_class, columns = cls.side_by_side([(options, 4), (options, 2), (options, 6)])
    logp = dist_class(join(inputs, columns)).logp(np.concatenate(actions, axis=1))

    expected = 0
    for member_inputs, action in zip(inputs, actions, strict=True):
        expected = expected + framework.numpy(cls(member_inputs, **options).logp(action))
    np.testing.assert_allclose(framework.numpy(logp), expected, rtol=1e-5)


@each_options
def test_joined_entropy_is_sum_of_members_entropies(framework, options):
    cls = framework.load("DiagGaussian")
    inputs = random_arrays((4, 4), (4, 2), (4, 6))

    dist_class, columns = cls.side_by_side([(options, 4), (options, 2), (options, 6)])
    entropy = dist_class(join(inputs, columns)).entropy()

    expected = sum(
        framework.numpy(cls(member_inputs, **options).entropy()) for member_inputs in inputs
    )
    np.testing.assert_allclose(framework.numpy(entropy), expected, rtol=1e-5)


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
