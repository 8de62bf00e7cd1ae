"""Divergences of composites: finite whatever is forbidden, and part by part where two are laid out
differently.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import action_codec

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
SPACE = spaces.Tuple(
    [
        spaces.Discrete(3),
        spaces.Box(-1, 1, (2,), np.float32),
        spaces.Discrete(4),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (1,), np.float32),
        spaces.MultiDiscrete([2, 3]),
    ]
)
ROWS = 5


def tensor(values, framework):
    return torch.as_tensor(values) if framework == "torch" else tf.constant(values)


def inputs(size, seed):
    return np.random.default_rng(seed).normal(0, 1, (ROWS, size)).astype(np.float32)


def log_softmax(x):
    x = x.astype(np.float64)
    return (
        x
        - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - x.max(-1, keepdims=True)
    )


def choice(one, other, temperature=1.0):
    p, q = log_softmax(one / temperature), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(-1)


def bits(one, other):
    p, q = (np.stack([np.zeros_like(x), x], -1) for x in (one, other))
    return choice(p, q).sum(-1)


def normals(one, other):
    (m1, s1), (m2, s2) = (np.split(x.astype(np.float64), 2, axis=1) for x in (one, other))
    return (s2 - s1 + (np.exp(2 * s1) + (m1 - m2) ** 2) / (2 * np.exp(2 * s2)) - 0.5).sum(-1)


def by_hand(one, other):
    """Return the divergence of each part, `[B, 6]`."""
    cut = [3, 7, 11, 14, 16]
    a, b = (np.split(x, cut, axis=1) for x in (one, other))
    last = choice(a[5][:, :2], b[5][:, :2]) + choice(a[5][:, 2:], b[5][:, 2:])
    parts = [
        choice(a[0], b[0]),
        normals(a[1], b[1]),
        choice(a[2], b[2]),
        bits(a[3], b[3]),
        normals(a[4], b[4]),
        last,
    ]
    return np.stack(parts, axis=1)


@frameworks
@pytest.mark.parametrize("first", [True, False])
def test_composites_of_one_space_that_are_grouped_differently_are_compared_part_by_part(
    framework, first
):
    plain, size = ModelCatalog.get_action_dist(SPACE, {}, framework=framework)
    children = list(plain.options["child_distributions"])
    lens = plain.options["input_lens"]
    # The last Box, with a limit of its own, is computed by itself: other groups, the same parts.
    own = list(children)
    options = {"input_lens": lens, "action_space": SPACE}
    a, b = tensor(inputs(size, 1), framework), tensor(inputs(size, 2), framework)
    one = plain.cls(a, child_distributions=children, **options)
    limited = ModelCatalog.get_action_dist(
        SPACE[4], {"gaussian_log_std_min": -30.0}, framework=framework
    )[0]
    own[4] = limited
    other = plain.cls(b, child_distributions=own, **options)
    assert len(one.groups) != len(other.groups)
    expected = by_hand(inputs(size, 1), inputs(size, 2))
    if not first:
        one, other = (
            plain.cls(a, child_distributions=own, **options),
            plain.cls(b, child_distributions=children, **options),
        )
    np.testing.assert_allclose(
        np.asarray(one.kl(other)), expected.sum(axis=1), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(np.asarray(one.multi_kl(other)), expected, rtol=1e-4, atol=1e-5)


@frameworks
def test_as_many_groups_in_another_order_are_not_paired_by_place(framework):
    """One has its two Boxes joined, the other its two choices: each has as many groups."""
    space = spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.Box(-1, 1, (3,), np.float32),
            spaces.Discrete(3),
            spaces.Box(-1, 1, (3,), np.float32),
        ]
    )
    plain, size = ModelCatalog.get_action_dist(space, {}, framework=framework)
    options = {"input_lens": plain.options["input_lens"], "action_space": space}
    boxes, choices = (
        list(plain.options["child_distributions"]),
        list(plain.options["child_distributions"]),
    )
    boxes[2] = ModelCatalog.get_action_dist(
        space[2], {"categorical_temperature": 2.0}, framework=framework
    )[0]
    choices[3] = ModelCatalog.get_action_dist(
        space[3], {"gaussian_log_std_min": -30.0}, framework=framework
    )[0]
    a, b = inputs(size, 3), inputs(size, 4)
    one = plain.cls(tensor(a, framework), child_distributions=boxes, **options)
    other = plain.cls(tensor(b, framework), child_distributions=choices, **options)
    assert len(one.groups) == len(other.groups) == 3
    pa, pb = (np.split(x, [3, 9, 12], axis=1) for x in (a, b))
    expected = np.stack(
        [
            choice(pa[0], pb[0]),
            normals(pa[1], pb[1]),
            choice(pa[2], pb[2], 2.0),
            normals(pa[3], pb[3]),
        ]
    )
    np.testing.assert_allclose(
        np.asarray(one.kl(other)), expected.sum(axis=0), rtol=1e-4, atol=1e-5
    )


@frameworks
def test_divergences_from_what_is_forbidden_add_up_to_a_finite_number(framework):
    """Each part alone is the highest finite number already."""
    space = spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.MultiBinary(2), "c": spaces.MultiDiscrete([2, 2])}
    )
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework)
    columns = action_codec(SpaceInfo.read(space, "action")).mask_width
    mask = np.zeros((ROWS, columns), bool)
    mask[:, [0, 3, 5, 7, 9]] = True  # the first value of everything
    other = np.ones((ROWS, columns), bool)
    other[:, [0, 3, 5, 7, 9]] = False  # and all but it
    free = tensor(inputs(size, 5), framework)
    first, rest = (dist_class(dist_class.masked(free, tensor(m, framework))) for m in (mask, other))
    kl = np.asarray(first.kl(rest))
    assert np.isfinite(kl).all()
    assert (kl > 1e38).all()
    assert np.isfinite(np.asarray(first.multi_kl(rest))).all()
    np.testing.assert_allclose(np.asarray(first.kl(first)), 0, atol=1e-5)
