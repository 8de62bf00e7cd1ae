"""The divergence of Gaussians as far apart as inputs go: finite, as that of choices is, and right
wherever it fits.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from rlcatalog_tf import DiagGaussian as TFGaussian, SquashedGaussian as TFSquashed
from rlcatalog_torch import DiagGaussian as TorchGaussian, SquashedGaussian as TorchSquashed

HIGHEST = float(np.finfo(np.float32).max)
plain = pytest.mark.parametrize("cls", [TorchGaussian, TFGaussian], ids=["torch", "tf"])
both = pytest.mark.parametrize(
    "cls",
    [TorchGaussian, TFGaussian, TorchSquashed, TFSquashed],
    ids=lambda c: f"{c.__name__}-{c.framework_of_class}",
)


def by_hand(one, other, cut=40.0):
    """Return KL of rows [means, log stds] in float64."""
    (m1, s1), (m2, s2) = (np.split(np.asarray(x, np.float64), 2, axis=1) for x in (one, other))
    s1, s2 = np.clip(s1, -cut, cut), np.clip(s2, -cut, cut)
    with np.errstate(over="ignore"):
        return (
            s2 - s1 + np.exp(2 * (s1 - s2)) / 2 + (m1 - m2) ** 2 * np.exp(-2 * s2) / 2 - 0.5
        ).sum(axis=1)


def kl_and_gradients(cls, one, other, dtype="float32"):
    if cls.framework_of_class == "torch":
        a, b = (
            torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True) for x in (one, other)
        )
        kl = cls(a).kl(cls(b))
        kl.sum().backward()
        return kl.detach().numpy(), a.grad.numpy(), b.grad.numpy()
    a, b = (tf.Variable(np.asarray(x, dtype)) for x in (one, other))
    with tf.GradientTape() as tape:
        kl = cls(a).kl(cls(b))
    return kl.numpy(), *[gradient.numpy() for gradient in tape.gradient(kl, [a, b])]


#: Inputs [mean, log std] of one and of the other; some so far apart that no float32 holds what they
#: differ by.
PAIRS = [
    ([0, 40], [0, -40]), ([0, 1e30], [0, -1e30]), ([0, -40], [0, 40]), ([3e38, 0], [-3e38, 0]),
    ([1, -40], [0, -40]), ([1e10, 20], [-1e10, -20]), ([0, 39], [5, -39]), ([0, 21], [0, -21]),
    ([2, 0.5], [-1, 0.25]), ([0, 0], [0, 0]), ([1e5, -20], [0, -10]), ([0, 30], [0, -12]),
]  # fmt: skip


@plain
@pytest.mark.parametrize("dims", [1, 2, 40])
def test_the_divergence_is_finite_and_that_of_float64_where_that_fits(cls, dims):
    one, other = (
        np.float32([[x[0]] * dims + [x[1]] * dims for x in side])
        for side in zip(*PAIRS, strict=True)
    )
    found, *gradients = kl_and_gradients(cls, one, other)
    expected = by_hand(one, other)
    assert np.isfinite(found).all()
    fits = expected < 1e37
    assert 4 <= fits.sum() < len(PAIRS)
    np.testing.assert_allclose(found[fits], expected[fits], rtol=2e-4, atol=1e-6)
    assert (found[~fits] > 1e37).all()
    assert (found[expected > dims * HIGHEST] >= min(1, dims / 2) * 1.6e38).all()
    # Of means that many deviations apart, a gradient's own intermediate values do not fit.
    near = (
        np.abs(one[:, 0] - other[:, 0].astype(float))
        * np.exp(-other[:, -1].clip(-40, 40).astype(float))
        < 1e15
    )
    assert (near & ~fits).any()
    for gradient in gradients:
        assert np.isfinite(gradient[near]).all()


@plain
def test_in_float64_nothing_is_cut_off(cls):
    one, other = (np.array(side, np.float64) for side in zip(*PAIRS, strict=True))
    found, *gradients = kl_and_gradients(cls, one, other, "float64")
    np.testing.assert_allclose(found, by_hand(one, other), rtol=1e-9, atol=1e-12)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@both
def test_the_divergence_grows_with_the_distance_and_never_falls_below_zero(cls):
    steps = np.float32(
        [[mean, log_std] for mean in (0, 1, 1e3, 1e9, 1e19, 1e38) for log_std in (-45, 0, 45)]
    )
    found = [
        kl_and_gradients(cls, steps, np.float32([[0, log_std]] * len(steps)))[0]
        for log_std in (-45, -3, 0, 45)
    ]
    for values in found:
        assert np.isfinite(values).all()
        assert (values > -1e-5).all()
        assert (np.diff(values.reshape(6, 3), axis=0) >= 0).all()
