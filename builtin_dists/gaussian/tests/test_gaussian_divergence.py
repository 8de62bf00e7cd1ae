"""KL divergence of Gaussians that are very far apart: finite, and right wherever it fits."""

from __future__ import annotations

import numpy as np
import pytest

HIGHEST = float(np.finfo(np.float32).max)
#: ([mean, log std] of p, the same of q); some differ by more than float32 holds.
PAIRS = [
    ([0, 40], [0, -40]),
    ([0, 1e30], [0, -1e30]),
    ([0, -40], [0, 40]),
    ([3e38, 0], [-3e38, 0]),
    ([1, -40], [0, -40]),
    ([1e10, 20], [-1e10, -20]),
    ([0, 39], [5, -39]),
    ([0, 21], [0, -21]),
    ([2, 0.5], [-1, 0.25]),
    ([0, 0], [0, 0]),
    ([1e5, -20], [0, -10]),
    ([0, 30], [0, -12]),
]


def far_inputs(dims, dtype="float32"):
    """Return inputs of p and of q with a row for each of PAIRS, the same in each dimension."""
    p = np.array([[mean] * dims + [log_std] * dims for (mean, log_std), _ in PAIRS], dtype)
    q = np.array([[mean] * dims + [log_std] * dims for _, (mean, log_std) in PAIRS], dtype)
    return p, q


def exact_kl(p, q):
    """Return the KL divergence in float64, with log standard deviations from -40 to 40."""
    mean_p, log_std_p = np.split(np.asarray(p, np.float64), 2, axis=1)
    mean_q, log_std_q = np.split(np.asarray(q, np.float64), 2, axis=1)
    log_std_p = np.clip(log_std_p, -40, 40)
    log_std_q = np.clip(log_std_q, -40, 40)
    variance_ratio = np.exp(2 * (log_std_p - log_std_q))
    with np.errstate(over="ignore"):
        squared_distance = (mean_p - mean_q) ** 2 * np.exp(-2 * log_std_q)
    terms = log_std_q - log_std_p + variance_ratio / 2 + squared_distance / 2 - 0.5
    return terms.sum(axis=1)


def compute_kl(framework, p, q, name="DiagGaussian"):
    cls = framework.load(name)
    return framework.numpy(cls(framework.tensor(p)).kl(cls(framework.tensor(q))))


def kl_gradients(framework, p, q):
    """Return the gradients of the KL divergence by the inputs of p and by those of q."""
    cls = framework.load("DiagGaussian")
    return [
        framework.gradient(lambda x: cls(x).kl(cls(framework.tensor(q))), at=p),
        framework.gradient(lambda x: cls(framework.tensor(p)).kl(cls(x)), at=q),
    ]


@pytest.mark.parametrize("dims", [1, 2, 40])
def test_kl_is_exact_where_it_fits_float32(framework, dims):
    p, q = far_inputs(dims)

    kl = compute_kl(framework, p, q)

    expected = exact_kl(p, q)
    fits = expected < 1e37
    assert 4 <= fits.sum() < len(PAIRS)
    np.testing.assert_allclose(kl[fits], expected[fits], rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 40])
def test_kl_beyond_float32_is_large_and_finite(framework, dims):
    p, q = far_inputs(dims)

    kl = compute_kl(framework, p, q)

    expected = exact_kl(p, q)
    assert np.isfinite(kl).all()
    assert (kl[expected >= 1e37] > 1e37).all()
    # Each dimension adds at most about half of float32's largest number.
    assert (kl[expected > dims * HIGHEST] >= min(1, dims / 2) * 1.6e38).all()


@pytest.mark.parametrize("dims", [1, 2, 40])
def test_kl_gradients_are_finite_even_where_kl_is_cut_off(framework, dims):
    p, q = far_inputs(dims)

    gradients = kl_gradients(framework, p, q)

    # Where the means are 1e15 deviations apart, the gradient's own intermediate values do not fit.
    mean_distance = np.abs(p[:, 0].astype(float) - q[:, 0])
    deviations_apart = mean_distance * np.exp(-q[:, -1].astype(float).clip(-40, 40))
    is_near = deviations_apart < 1e15
    assert (is_near & (exact_kl(p, q) >= 1e37)).any()
    for gradient in gradients:
        assert np.isfinite(gradient[is_near]).all()


def test_kl_in_float64_is_exact(framework):
    p, q = far_inputs(dims=1, dtype="float64")

    kl = compute_kl(framework, p, q)

    np.testing.assert_allclose(kl, exact_kl(p, q), rtol=1e-9, atol=1e-12)


def test_kl_gradients_in_float64_are_finite(framework):
    p, q = far_inputs(dims=1, dtype="float64")

    for gradient in kl_gradients(framework, p, q):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["DiagGaussian", "SquashedGaussian"])
@pytest.mark.parametrize("log_std_p", [-45, 0, 45])
@pytest.mark.parametrize("log_std_q", [-45, -3, 0, 45])
def test_kl_grows_with_distance_and_is_not_negative(framework, name, log_std_p, log_std_q):
    p = np.float32([[mean, log_std_p] for mean in (0, 1, 1e3, 1e9, 1e19, 1e38)])
    q = np.float32([[0, log_std_q]] * 6)

    kl = compute_kl(framework, p, q, name)

    assert np.isfinite(kl).all()
    assert (kl > -1e-5).all()
    assert (np.diff(kl) >= 0).all()
