"""Several Gaussians as one, as composites compute them, and the precision of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy import stats

from rlcatalog.actions import unbind
from rlcatalog_tf import DiagGaussian as TFGaussian
from rlcatalog_torch import DiagGaussian as TorchGaussian

frameworks = pytest.mark.parametrize("cls", [TorchGaussian, TFGaussian], ids=["torch", "tf"])
RANDOM = np.random.default_rng(3)
B = 4


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


@frameworks
@pytest.mark.parametrize(
    "options", [{}, {"log_std_min": -1.0, "log_std_max": 0.5}], ids=["free", "limited"]
)
def test_side_by_side_is_one_distribution_with_the_same_densities(cls, options):
    widths = [2, 1, 3]
    inputs = [RANDOM.normal(size=(B, 2 * d)).astype(np.float32) for d in widths]
    actions = [RANDOM.normal(size=(B, d)).astype(np.float32) for d in widths]
    dist, runs = cls.side_by_side([(options, 2 * d) for d in widths])
    joined = np.concatenate([inputs[i][:, first:stop] for i, first, stop in runs], axis=1)
    assert joined.shape == (B, 12)
    # Means of all first, so that the actions stand side by side as well.
    np.testing.assert_array_equal(
        joined[:, :6], np.concatenate([x[:, :d] for x, d in zip(inputs, widths, strict=True)], 1)
    )
    found = dist(joined)
    parts = [cls(x, **options) for x in inputs]
    for method in ("logp", "entropy"):
        given = np.concatenate(actions, axis=1) if method == "logp" else None
        whole = array(found.logp(given) if method == "logp" else found.entropy())
        pieces = [
            array(p.logp(a) if method == "logp" else p.entropy())
            for p, a in zip(parts, actions, strict=True)
        ]
        np.testing.assert_allclose(whole, sum(pieces), rtol=1e-5)
    assert unbind(dist) == (cls, options)


@frameworks
def test_equally_limited_ones_are_one_family_and_subclasses_are_none(cls):
    assert cls.family({"log_std_min": -1.0, "log_std_max": 2.0}) == cls.family(
        {"log_std_max": 2.0, "log_std_min": -1.0}
    )
    assert cls.family({}) == cls.family({})
    assert cls.family({}) != cls.family({"log_std_min": -1.0})
    # A subclass may do anything else, which joined it would not.
    assert type("Own", (cls,), {}).family({}) is None


@frameworks
def test_float64_keeps_its_precision(cls):
    inputs, actions = RANDOM.normal(size=(B, 6)), RANDOM.normal(size=(B, 3))
    make = torch.from_numpy if cls is TorchGaussian else tf.constant
    dist = cls(make(inputs))
    expected = stats.norm.logpdf(actions, inputs[:, :3], np.exp(inputs[:, 3:])).sum(axis=1)
    found = array(dist.logp(make(actions)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert array(dist.sample()).dtype == array(dist.entropy()).dtype == np.float64


@frameworks
def test_inputs_may_be_arrays(cls):
    inputs = RANDOM.normal(size=(B, 6)).astype(np.float32)
    make = torch.from_numpy if cls is TorchGaussian else tf.constant
    np.testing.assert_array_equal(array(cls(inputs).entropy()), array(cls(make(inputs)).entropy()))
