"""Classes of `torch.distributions`, an action space that each fits, and the same distribution made
by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from torch import distributions as td
from torch.distributions import Independent, MixtureSameFamily

from rlcatalog.spaces import Simplex

FREE = Box(-np.inf, np.inf, (2,), np.float32)
POSITIVE = Box(0, np.inf, (2,), np.float32)
BOUNDED = Box(-2, 3, (2,), np.float32)
COUNTS = Box(0, 20, (2,), np.int64)


def mixture(x):
    """Return a mixture of three normal distributions for each of two values."""
    weights, means, log_stds = x.reshape(-1, 3, 2, 3).unbind(1)
    return MixtureSameFamily(td.Categorical(logits=weights), td.Normal(means, log_stds.exp()))


class Peaked(MixtureSameFamily):
    """A mixture that says which of its means is the most likely one, from inputs."""

    def __init__(self, x):
        made = mixture(x)
        super().__init__(made.mixture_distribution, made.component_distribution)

    @property
    def mode(self):
        """Mean of the heaviest part."""
        best = self.mixture_distribution.logits.argmax(-1, keepdim=True)
        return self.component_distribution.mean.gather(-1, best)[..., 0]


def halves(x):
    """Return the inputs of the first and of the second argument, `[B, 2]` each."""
    return x[:, :2], x[:, 2:]


def by_value(dist):
    """Return a distribution of two independent values as one."""
    return Independent(dist, 1)


def of_two(cls):
    """Return what makes a class with a location and a scale by hand."""
    return lambda x: by_value(cls(halves(x)[0], halves(x)[1].exp()))


def positive(cls):
    """Return what makes a class with two positive arguments by hand."""
    return lambda x: by_value(cls(halves(x)[0].exp(), halves(x)[1].exp()))


def moved(cls):
    """Return what makes a class of values of [0, 1], moved into [-2, 3], by hand."""
    move = td.AffineTransform(-2.0, 5.0)
    return lambda x: by_value(
        td.TransformedDistribution(cls(halves(x)[0].exp(), halves(x)[1].exp()), move)
    )


class Case(NamedTuple):
    """What is registered, a space, the number of inputs, and the same distribution by hand."""

    source: Callable[..., Any]
    space: Any
    size: int
    by_hand: Callable[..., Any]


CASES = {
    "Normal": Case(td.Normal, FREE, 4, of_two(td.Normal)),
    "Laplace": Case(td.Laplace, FREE, 4, of_two(td.Laplace)),
    "StudentT": Case(
        td.StudentT,
        FREE,
        6,
        lambda x: by_value(td.StudentT(x[:, :2].exp(), x[:, 2:4], x[:, 4:].exp())),
    ),
    "VonMises": Case(td.VonMises, Box(-np.pi, np.pi, (2,), np.float32), 4, of_two(td.VonMises)),
    "LogNormal": Case(td.LogNormal, POSITIVE, 4, of_two(td.LogNormal)),
    "Gumbel": Case(td.Gumbel, FREE, 4, of_two(td.Gumbel)),
    "Gamma": Case(td.Gamma, POSITIVE, 4, positive(td.Gamma)),
    "Beta": Case(td.Beta, BOUNDED, 4, moved(td.Beta)),
    "Kumaraswamy": Case(td.Kumaraswamy, BOUNDED, 4, moved(td.Kumaraswamy)),
    "Categorical": Case(
        td.Categorical, Discrete(4, start=-1), 4, lambda x: td.Categorical(logits=x)
    ),
    "several Categoricals": Case(
        td.Categorical,
        MultiDiscrete([3, 3]),
        6,
        lambda x: by_value(td.Categorical(logits=x.reshape(-1, 2, 3))),
    ),
    "OneHotCategorical": Case(
        td.OneHotCategorical,
        Discrete(4),
        4,
        lambda x: td.OneHotCategorical(logits=x),
    ),
    "Bernoulli": Case(td.Bernoulli, MultiBinary(3), 3, lambda x: by_value(td.Bernoulli(logits=x))),
    "Poisson": Case(td.Poisson, COUNTS, 2, lambda x: by_value(td.Poisson(x.exp()))),
    "Dirichlet": Case(td.Dirichlet, Simplex((3,)), 3, lambda x: td.Dirichlet(x.exp())),
    "MixtureSameFamily": Case(mixture, FREE, 18, lambda x: by_value(mixture(x))),
    "a class with num_inputs": Case(Peaked, FREE, 18, lambda x: by_value(mixture(x))),
}

#: What has no closed form in `torch.distributions`.
NO_ENTROPY = {"VonMises", "Poisson", "MixtureSameFamily", "a class with num_inputs"}
NO_KL = {"StudentT", "VonMises", "Kumaraswamy", "MixtureSameFamily", "a class with num_inputs"}
#: `TransformedDistribution` leaves its entropy out; that of what is moved into bounds is checked
#: apart.
MOVED = {"Beta", "Kumaraswamy"}


def register(catalog, case):
    """Register a case's class or function as "own"; return the config that names it."""
    source, _, size, _ = CASES[case]
    is_plain = isinstance(source, type) and source.__module__.startswith("torch.")
    catalog.register_action_dist("own", source, num_inputs=None if is_plain else size)
    return {"custom_action_dist": "own", "fcnet_hiddens": [8]}


def two(catalog, case):
    """Return two distributions of a case, and both by hand."""
    _, space, size, by_hand = CASES[case]
    cls, outputs = catalog.action_dist(space, register(catalog, case), framework="torch")
    assert outputs == size
    inputs = torch.randn(2, 50, size, generator=torch.Generator().manual_seed(3))
    return [cls(x, None) for x in inputs], [by_hand(x) for x in inputs]
