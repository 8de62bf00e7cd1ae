"""KL divergence of Tuple and Dict distributions with different groups, or with forbidden values."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from scipy.special import log_softmax

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import action_codec


def random_inputs(columns, seed):
    return np.random.default_rng(seed).normal(0, 1, (5, columns)).astype(np.float32)


def kl_of_choice(p, q, temperature=1.0):
    """Return the KL divergence of logits over the last axis; those of p are divided."""
    p = log_softmax(p.astype(np.float64) / temperature, axis=-1)
    q = log_softmax(q.astype(np.float64), axis=-1)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def kl_of_bits(p, q):
    logits_p = np.stack([np.zeros_like(p), p], axis=-1)
    logits_q = np.stack([np.zeros_like(q), q], axis=-1)
    return kl_of_choice(logits_p, logits_q).sum(axis=-1)


def kl_of_gaussian(p, q):
    mean_p, log_std_p = np.split(p.astype(np.float64), 2, axis=1)
    mean_q, log_std_q = np.split(q.astype(np.float64), 2, axis=1)
    squares = np.exp(2 * log_std_p) + (mean_p - mean_q) ** 2
    terms = log_std_q - log_std_p + squares / (2 * np.exp(2 * log_std_q)) - 0.5
    return terms.sum(axis=-1)


def child_distributions(framework, space, replaced=None, config=None):
    """Return the catalog's distributions of the parts; one may be replaced by that of a config."""
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    children = list(dist_class.options["child_distributions"])
    if replaced is not None:
        part, _ = ModelCatalog.get_action_dist(space[replaced], config, framework=framework.name)
        children[replaced] = part
    return children


def make_dist(framework, space, children, inputs):
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    return dist_class.cls(
        framework.tensor(inputs),
        child_distributions=children,
        input_lens=dist_class.options["input_lens"],
        action_space=space,
    )


# --- different groups -----------------------------------------------------------------------------

SIX_PARTS = spaces.Tuple(
    [
        spaces.Discrete(3),
        spaces.Box(-1, 1, (2,), np.float32),
        spaces.Discrete(4),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (1,), np.float32),
        spaces.MultiDiscrete([2, 3]),
    ]
)


def kls_of_six_parts(p, q):
    """Return the KL divergence of each part of SIX_PARTS, `[rows, 6]`."""
    ends = [3, 7, 11, 14, 16]  # of 3, 4, 4, 3, 2 and 5 inputs
    p = np.split(p, ends, axis=1)
    q = np.split(q, ends, axis=1)
    kls = [
        kl_of_choice(p[0], q[0]),
        kl_of_gaussian(p[1], q[1]),
        kl_of_choice(p[2], q[2]),
        kl_of_bits(p[3], q[3]),
        kl_of_gaussian(p[4], q[4]),
        kl_of_choice(p[5][:, :2], q[5][:, :2]) + kl_of_choice(p[5][:, 2:], q[5][:, 2:]),
    ]
    return np.stack(kls, axis=1)


@pytest.mark.parametrize("limited", ["p", "q"])
def test_kl_of_different_groups_is_sum_over_parts(framework, limited):
    p_inputs = random_inputs(columns=21, seed=1)
    q_inputs = random_inputs(columns=21, seed=2)
    # With a limit of its own, the second Box is computed by itself, not with the first one.
    joined = child_distributions(framework, SIX_PARTS)
    alone = child_distributions(
        framework, SIX_PARTS, replaced=4, config={"gaussian_log_std_min": -30.0}
    )
    p = make_dist(framework, SIX_PARTS, alone if limited == "p" else joined, p_inputs)
    q = make_dist(framework, SIX_PARTS, alone if limited == "q" else joined, q_inputs)

    expected = kls_of_six_parts(p_inputs, q_inputs)
    assert len(p.groups) != len(q.groups)
    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected.sum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(framework.numpy(p.multi_kl(q)), expected, rtol=1e-4, atol=1e-5)


def test_kl_of_as_many_but_different_groups_is_sum_over_parts(framework):
    space = spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.Box(-1, 1, (3,), np.float32),
            spaces.Discrete(3),
            spaces.Box(-1, 1, (3,), np.float32),
        ]
    )
    p_inputs = random_inputs(columns=18, seed=3)
    q_inputs = random_inputs(columns=18, seed=4)
    # In p the two Boxes are one group, in q the two choices.
    with_temperature = child_distributions(
        framework, space, replaced=2, config={"categorical_temperature": 2.0}
    )
    with_limit = child_distributions(
        framework, space, replaced=3, config={"gaussian_log_std_min": -30.0}
    )
    p = make_dist(framework, space, with_temperature, p_inputs)
    q = make_dist(framework, space, with_limit, q_inputs)

    # The parts take 3, 6, 3 and 6 inputs.
    p_parts = np.split(p_inputs, [3, 9, 12], axis=1)
    q_parts = np.split(q_inputs, [3, 9, 12], axis=1)
    expected = (
        kl_of_choice(p_parts[0], q_parts[0])
        + kl_of_gaussian(p_parts[1], q_parts[1])
        + kl_of_choice(p_parts[2], q_parts[2], temperature=2.0)
        + kl_of_gaussian(p_parts[3], q_parts[3])
    )
    assert len(p.groups) == len(q.groups) == 3
    np.testing.assert_allclose(framework.numpy(p.kl(q)), expected, rtol=1e-4, atol=1e-5)


# --- forbidden values: each part alone has the highest finite KL divergence -----------------------


def test_kl_from_forbidden_values_is_finite(framework):
    space = spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.MultiBinary(2), "c": spaces.MultiDiscrete([2, 2])}
    )
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    # Of each choice and bit, p allows only the first value and q all others.
    mask = np.zeros((5, action_codec(SpaceInfo.read(space, "action")).mask_width), bool)
    mask[:, [0, 3, 5, 7, 9]] = True
    inputs = framework.tensor(random_inputs(size, seed=5))
    p = dist_class(dist_class.masked(inputs, framework.tensor(mask)))
    q = dist_class(dist_class.masked(inputs, framework.tensor(~mask)))

    kl = framework.numpy(p.kl(q))

    assert np.isfinite(kl).all()
    assert (kl > 1e38).all()  # that of each part alone is the highest float32 already
    assert np.isfinite(framework.numpy(p.multi_kl(q))).all()
    np.testing.assert_allclose(framework.numpy(p.kl(p)), 0, atol=1e-5)


def test_kl_is_finite_if_two_parts_forbid_values_in_one_row(framework):
    space = spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    q_inputs = np.zeros((2, 5), np.float32)
    q_inputs[0, [0, 3, 4]] = np.finfo(np.float32).min  # a value of the choice, and both bits
    p = dist_class(framework.tensor(np.zeros((2, 5), np.float32)))
    q = dist_class(framework.tensor(q_inputs))

    kl = framework.numpy(p.kl(q))

    assert p.layout.several_masked
    assert np.isfinite(kl).all()
    assert kl[0] > 1e38
    assert kl[1] == pytest.approx(0, abs=1e-6)  # the second row forbids nothing
