"""Stored shares do not sum to 1 exactly; what is scored is the point of the simplex they mean,
against SciPy.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from scipy import stats

from rlcatalog_tf import Dirichlet as TFDirichlet
from rlcatalog_torch import Dirichlet as TorchDirichlet

CLASSES = pytest.mark.parametrize("cls", [TorchDirichlet, TFDirichlet], ids=["torch", "tf"])
INPUTS = np.random.default_rng(0).uniform(-1, 3, (6, 8)).astype(np.float32)


def made(cls, values):
    return torch.as_tensor(values) if cls is TorchDirichlet else tf.constant(values)


def by_hand(points, rows):
    """Return the log densities of points `[B, rows * n]`, brought to the simplex, in float64."""
    points = np.asarray(points, np.float64).reshape(len(INPUTS), rows, -1)
    points /= points.sum(axis=2, keepdims=True)
    alphas = np.exp(INPUTS.astype(np.float64)).reshape(points.shape) + 1e-7
    return [
        sum(stats.dirichlet.logpdf(point, alpha) for point, alpha in zip(*pair, strict=True))
        for pair in zip(points, alphas, strict=True)
    ]


@CLASSES
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("factor", [1.0, 0.97, 0.5])
def test_shares_are_scored_as_the_point_they_are_multiples_of(cls, rows, factor):
    dist = cls(made(cls, INPUTS), components=8 // rows)
    shares = dist.sample().numpy() * np.float32(factor)
    np.testing.assert_allclose(
        dist.logp(made(cls, shares)).numpy(), by_hand(shares, rows), rtol=2e-4, atol=2e-4
    )


@CLASSES
def test_shares_stored_in_half_precision_are_scored_as_what_they_are_then(cls):
    dist = cls(made(cls, INPUTS), components=4)
    shares = dist.sample().numpy().astype(np.float16).astype(np.float32).clip(1e-4)
    assert (np.abs(shares.reshape(-1, 4).sum(axis=1) - 1) > 1e-4).any()
    np.testing.assert_allclose(
        dist.logp(made(cls, shares)).numpy(), by_hand(shares, 2), rtol=2e-4, atol=2e-4
    )
