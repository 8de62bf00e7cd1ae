"""Composites left whole that hold numbers of both kinds, and inputs of other ranks."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from scipy import stats
from scipy.special import log_softmax

from rlcatalog import ModelCatalog
from rlcatalog_tf import (
    Categorical as TFCategorical,
    DiagGaussian as TFGaussian,
    MultiActionDistribution as TFMulti,
)
from rlcatalog_torch import (
    Categorical as TorchCategorical,
    DiagGaussian as TorchGaussian,
    MultiActionDistribution as TorchMulti,
)

PARTS = {
    "torch": (TorchMulti, TorchCategorical, TorchGaussian, torch.from_numpy),
    "tf": (TFMulti, TFCategorical, TFGaussian, tf.constant),
}
INNER = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
SPACE = spaces.Tuple([spaces.Discrete(2), INNER])
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(5, 9)).astype(np.float32)
FLAT = np.concatenate([RANDOM.integers(0, 2, (5, 2)), RANDOM.normal(size=(5, 2))], axis=1).astype(
    np.float32
)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_whole_numbers_and_others_inside_a_composite_left_whole_are_scored_as_they_are(framework):
    multi, categorical, gaussian, tensor = PARTS[framework]

    class Doubled(multi):
        def logp(self, actions):
            return 2 * super().logp(actions)

    inner = functools.partial(
        Doubled, child_distributions=[categorical, gaussian], input_lens=[3, 4], action_space=INNER
    )
    dist = multi(
        tensor(INPUTS),
        child_distributions=[categorical, inner],
        input_lens=[2, 7],
        action_space=SPACE,
    )
    rows = np.arange(5)
    first = log_softmax(INPUTS[:, :2], axis=1)[rows, FLAT[:, 0].astype(int)]
    second = log_softmax(INPUTS[:, 2:5], axis=1)[rows, FLAT[:, 1].astype(int)]
    third = stats.norm.logpdf(FLAT[:, 2:], INPUTS[:, 5:7], np.exp(INPUTS[:, 7:])).sum(axis=1)
    found = dist.logp(tensor(FLAT))
    np.testing.assert_allclose(np.asarray(found), first + 2 * (second + third), rtol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_divergences_from_several_forbidding_parts_add_up_to_a_finite_number(framework):
    """Each part's is the largest number of its dtype, where the other forbids what this one may do;
    two are beyond.
    """
    multi, _, _, tensor = PARTS[framework]
    space = spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
    cls, _ = ModelCatalog.get_action_dist(space, {}, framework=framework)
    free, forbidding = np.zeros((2, 5), np.float32), np.zeros((2, 5), np.float32)
    lowest = np.finfo(np.float32).min
    forbidding[0, 0] = forbidding[0, 3:] = lowest
    here, there = (cls(tensor(inputs)) for inputs in (free, forbidding))
    assert isinstance(here, multi)
    assert here.layout.several_masked
    found = np.asarray(here.kl(there))
    assert np.isfinite(found).all()
    assert found[0] > 1e38
    assert found[1] == pytest.approx(0, abs=1e-6)
