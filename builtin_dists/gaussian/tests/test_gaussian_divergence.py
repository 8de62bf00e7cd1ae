"""KL divergence of Gaussians that are very far apart: finite, and right wherever it fits."""

from __future__ import annotations

import numpy as np
import pytest


def compute_kl(framework, p, q, name="DiagGaussian"):
    cls = framework.load(name)
    return framework.numpy(cls(framework.tensor(p)).kl(cls(framework.tensor(q))))


def repeat_dims(mean_and_log_std, dims, dtype="float32"):
    """Return one row of inputs with the same mean and log standard deviation in each dimension."""
    mean, log_std = mean_and_log_std
    return np.array([[mean] * dims + [log_std] * dims], dtype)


@pytest.mark.parametrize("dims", [1, 40])
@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ((0, 0), (0, 0), 0),
        # log(std_q / std_p) + std_p² / (2 std_q²) - 1/2, and the means add distance² / (2 std_q²).
        ((2, 0.5), (-1, 0.25), -0.25 + np.exp(0.5) / 2 - 0.5 + 9 / 2 * np.exp(-0.5)),
        ((0, -40), (0, 40), 80 - 0.5),
        ((1e5, -20), (0, -10), 10 + np.exp(-20) / 2 - 0.5 + 1e10 / 2 * np.exp(20)),
        ((0, 30), (0, -12), -42 + np.exp(84) / 2 - 0.5),
    ],
    ids=["equal", "near", "narrow and wide", "distant means", "wide and narrow"],
)
def test_kl_is_exact_where_it_fits_float32(framework, dims, p, q, expected):
    kl = compute_kl(framework, repeat_dims(p, dims), repeat_dims(q, dims))

    np.testing.assert_allclose(kl, [dims * expected], rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 40])
@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((0, 40), (0, -40)),
        ((0, 1e30), (0, -1e30)),
        ((3e38, 0), (-3e38, 0)),
        ((0, 39), (5, -39)),
    ],
    ids=str,
)
def test_kl_beyond_float32_is_large_and_finite(framework, dims, p, q):
    kl = compute_kl(framework, repeat_dims(p, dims), repeat_dims(q, dims))

    # A dimension adds at least 0.8e38 before it is cut off; float32 ends at 3.4e38.
    assert np.isfinite(kl).all()
    assert (kl >= min(dims, 2) * 0.8e38).all()


@pytest.mark.parametrize("dims", [1, 40])
@pytest.mark.parametrize(
    ("p", "q"), [((0, 40), (0, -40)), ((0, 1e30), (0, -1e30)), ((0, 30), (0, -12))], ids=str
)
def test_kl_gradients_are_finite_even_where_kl_is_cut_off(framework, dims, p, q):
    cls = framework.load("DiagGaussian")
    p_inputs = repeat_dims(p, dims)
    q_inputs = repeat_dims(q, dims)

    by_p = framework.gradient(lambda x: cls(x).kl(cls(q_inputs)), at=p_inputs)
    by_q = framework.gradient(lambda x: cls(p_inputs).kl(cls(x)), at=q_inputs)

    assert np.isfinite(by_p).all()
    assert np.isfinite(by_q).all()


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        # The log standard deviations are limited to 40.
        ((0, 50), (0, -50), -80 + np.exp(160) / 2 - 0.5),
        ((1e10, 20), (-1e10, -20), -40 + np.exp(80) / 2 - 0.5 + 2e20 * np.exp(40)),
    ],
    ids=["wide and narrow", "distant means"],
)
def test_kl_in_float64_is_exact(framework, p, q, expected):
    kl = compute_kl(
        framework, repeat_dims(p, 1, dtype="float64"), repeat_dims(q, 1, dtype="float64")
    )

    np.testing.assert_allclose(kl, [expected], rtol=1e-9)


@pytest.mark.parametrize("name", ["DiagGaussian", "SquashedGaussian"])
@pytest.mark.parametrize("log_std_p", [-45, 45])
@pytest.mark.parametrize("log_std_q", [-45, -3, 45])
def test_kl_grows_with_distance_and_is_not_negative(framework, name, log_std_p, log_std_q):
    p = np.float32([[mean, log_std_p] for mean in (0, 1, 1e3, 1e9, 1e19, 1e38)])
    q = np.float32([[0, log_std_q]] * 6)

    kl = compute_kl(framework, p, q, name)

    assert np.isfinite(kl).all()
    assert (kl > -1e-5).all()
    assert (np.diff(kl) >= 0).all()
