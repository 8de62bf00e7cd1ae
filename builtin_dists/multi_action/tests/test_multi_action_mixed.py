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

from rlcatalog.tf import Categorical as TFCategorical
from rlcatalog.tf import DiagGaussian as TFGaussian
from rlcatalog.tf import MultiActionDistribution as TFMulti
from rlcatalog.torch import Categorical as TorchCategorical
from rlcatalog.torch import DiagGaussian as TorchGaussian
from rlcatalog.torch import MultiActionDistribution as TorchMulti

PARTS = {
    "torch": (TorchMulti, TorchCategorical, TorchGaussian, torch.from_numpy),
    "tf": (TFMulti, TFCategorical, TFGaussian, tf.constant),
}
INNER = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))])
SPACE = spaces.Tuple([spaces.Discrete(2), INNER])
RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(5, 9)).astype(np.float32)
FLAT = np.concatenate([RANDOM.integers(0, 2, (5, 2)), RANDOM.normal(size=(5, 2))], axis=1).astype(np.float32)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_whole_numbers_and_others_inside_a_composite_left_whole_are_scored_as_they_are(framework):
    multi, categorical, gaussian, tensor = PARTS[framework]

    class Doubled(multi):
        def logp(self, actions):
            return 2 * super().logp(actions)

    inner = functools.partial(
        Doubled, child_distributions=[categorical, gaussian], input_lens=[3, 4], action_space=INNER
    )
    dist = multi(tensor(INPUTS), child_distributions=[categorical, inner], input_lens=[2, 7], action_space=SPACE)
    rows = np.arange(5)
    first = log_softmax(INPUTS[:, :2], axis=1)[rows, FLAT[:, 0].astype(int)]
    second = log_softmax(INPUTS[:, 2:5], axis=1)[rows, FLAT[:, 1].astype(int)]
    third = stats.norm.logpdf(FLAT[:, 2:], INPUTS[:, 5:7], np.exp(INPUTS[:, 7:])).sum(axis=1)
    found = dist.logp(tensor(FLAT))
    np.testing.assert_allclose(np.asarray(found), first + 2 * (second + third), rtol=1e-5)
