"""KL divergence of Tuple and Dict distributions with different groups, or with forbidden values."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, Tuple

from rlcatalog import ModelCatalog

LOWEST_FLOAT32 = np.finfo(np.float32).min


@pytest.mark.parametrize("limited", ["p", "q"])
def test_kl_of_different_groups_is_sum_over_parts(framework, limited):
    gaussian = framework.load("DiagGaussian")
    # With a limit of its own, the second Box is computed by itself, not with the first one.
    alone = [gaussian, functools.partial(gaussian, log_std_min=-30.0)]
    joined = [gaussian, gaussian]
    make_dist = functools.partial(
        framework.load("MultiActionDistribution"),
        input_lens=[2, 2],
        action_space=Tuple([Box(-1, 1, (1,)), Box(-1, 1, (1,))]),
    )

    # Means 0 and 0 against 1 and 2; the log deviations are 0.
    p = make_dist(
        framework.tensor([[0, 0, 0, 0]], "float32"),
        child_distributions=alone if limited == "p" else joined,
    )
    q = make_dist(
        framework.tensor([[1, 0, 2, 0]], "float32"),
        child_distributions=alone if limited == "q" else joined,
    )

    assert len(p.groups) != len(q.groups)
    # The KL divergence of normal distributions d deviations apart is d² / 2.
    np.testing.assert_allclose(p.multi_kl(q), [[1 / 2, 2]], rtol=1e-5)
    np.testing.assert_allclose(p.kl(q), [1 / 2 + 2], rtol=1e-5)


def test_kl_of_as_many_but_different_groups_is_sum_over_parts(framework):
    categorical = framework.load("Categorical")
    gaussian = framework.load("DiagGaussian")
    make_dist = functools.partial(
        framework.load("MultiActionDistribution"),
        input_lens=[2, 2, 2, 2],
        action_space=Tuple([Discrete(2), Box(-1, 1, (1,)), Discrete(2), Box(-1, 1, (1,))]),
    )

    # In p the two Boxes are one group, because the choices have different temperatures; in q the
    # two choices are, because the Boxes have different limits. Each part takes two inputs.
    with_temperature = functools.partial(categorical, temperature=2.0)  # halves the logits
    p = make_dist(
        framework.tensor([[0, 0, 0, 0, 0, 2 * np.log(3), 0, 0]], "float32"),
        child_distributions=[categorical, gaussian, with_temperature, gaussian],
    )
    with_limit = functools.partial(gaussian, log_std_min=-30.0)
    q = make_dist(
        framework.tensor([[0, np.log(3), 1, 0, 0, 0, 2, 0]], "float32"),
        child_distributions=[categorical, gaussian, categorical, with_limit],
    )

    kls = [
        1 / 2 * np.log(2) + 1 / 2 * np.log(2 / 3),  # from [1/2, 1/2] to [1/4, 3/4]
        1 / 2,  # of means one deviation apart
        1 / 4 * np.log(1 / 2) + 3 / 4 * np.log(3 / 2),  # from [1/4, 3/4] to [1/2, 1/2]
        2,  # of means two deviations apart
    ]
    assert len(p.groups) == len(q.groups) == 3
    np.testing.assert_allclose(p.kl(q), [sum(kls)], rtol=1e-5)


def test_kl_is_finite_if_two_parts_forbid_values(framework):
    space = Tuple([Discrete(3), MultiBinary(2)])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    p = dist_class(framework.tensor(np.zeros((1, 3 + 2), np.float32)))
    # Forbids value 0 of the choice, and value 1 of both bits.
    q_inputs = [[LOWEST_FLOAT32, 0, 0, LOWEST_FLOAT32, LOWEST_FLOAT32]]
    q = dist_class(framework.tensor(q_inputs, "float32"))

    kl = framework.numpy(p.kl(q))

    # That of each part alone is near the highest float32, 3.4e38.
    assert np.isfinite(kl).all()
    assert (kl > 1e38).all()
    assert framework.all_finite(p.multi_kl(q))
    np.testing.assert_allclose(q.kl(q), [0], atol=1e-5)
