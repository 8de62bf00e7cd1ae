"""Random Tuple and Dict spaces: the joined distribution against its leaves one by one."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from hypothesis import given, settings, strategies as st
from properties import share

from rlcatalog import ModelCatalog, SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog_tf import Categorical as TFCategorical, MultiActionDistribution as TFMulti
from rlcatalog_torch import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiActionDistribution,
    MultiCategorical,
)

frameworks = pytest.mark.parametrize("fw", ["torch", "tf"])
LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 5)),
    st.integers(0, 3).map(lambda d: spaces.Box(-1, 1, (d,), np.float32)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
)


def composites(children):
    several = st.lists(children, min_size=1, max_size=4)
    return several.map(spaces.Tuple) | several.map(
        lambda kids: spaces.Dict([(f"k{-i}", k) for i, k in enumerate(kids)])
    )


SPACES = composites(st.recursive(LEAVES, composites, max_leaves=5))


def tensor(fw, value):
    return torch.from_numpy(np.array(value)) if fw == "torch" else tf.constant(value)


def array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value.numpy()


def leaf_spaces(space):
    if isinstance(space, spaces.Tuple | spaces.Dict):
        kids = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [leaf for kid in kids for leaf in leaf_spaces(kid)]
    return [space]


def leaf_values(space, sample):
    """The leaves' values, taken by key and place, in the space's order."""
    if isinstance(space, spaces.Dict):
        assert list(sample) == list(space.spaces)
        return [v for key, kid in space.spaces.items() for v in leaf_values(kid, sample[key])]
    if isinstance(space, spaces.Tuple):
        assert isinstance(sample, tuple)
        return [
            v
            for kid, part in zip(space.spaces, sample, strict=True)
            for v in leaf_values(kid, part)
        ]
    return [sample]


def reordered(sample):
    if isinstance(sample, dict):
        return {key: reordered(sample[key]) for key in reversed(sample)}
    return [reordered(part) for part in sample] if isinstance(sample, tuple) else sample


@frameworks
@settings(max_examples=share(30), deadline=None)
@given(space=SPACES, rows=st.sampled_from([1, 3]), seed=st.integers(0, 2**31))
def test_a_composite_is_the_sum_of_its_leaves(fw, space, rows, seed):
    random = np.random.default_rng(seed)
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=fw)
    leaves = [ModelCatalog.get_action_dist(leaf, {}, framework=fw) for leaf in leaf_spaces(space)]
    assert size == sum(count for _, count in leaves)
    one, two = random.normal(0, 2, (2, rows, size)).astype(np.float32)
    dist, other = dist_class(tensor(fw, one)), dist_class(tensor(fw, two))
    cuts = np.cumsum([count for _, count in leaves])[:-1]
    alone = [
        cls(tensor(fw, part))
        for (cls, _), part in zip(leaves, np.split(one, cuts, axis=1), strict=True)
    ]
    others = [
        cls(tensor(fw, part))
        for (cls, _), part in zip(leaves, np.split(two, cuts, axis=1), strict=True)
    ]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)

    for sample in (dist.sample(), dist.deterministic_sample()):
        values = leaf_values(space, sample)
        for value, leaf in zip(values, alone, strict=True):
            assert value.shape == leaf.sample().shape
            assert value.dtype == leaf.sample().dtype
        expected = sum(array(leaf.logp(value)) for leaf, value in zip(alone, values, strict=True))
        flat = dist.join(sample)
        stored = array(flat).astype(np.float32)
        for form in (
            sample,
            tuple(values),
            reordered(sample),
            flat,
            stored,
            dist.split(flat),
            dist.split(stored),
        ):
            found = array(dist.logp(form))
            assert found.shape == (rows,)
            close(found, expected)
        for value, again in zip(values, leaf_values(space, dist.split(flat)), strict=True):
            np.testing.assert_array_equal(array(value), array(again))
    for value, leaf in zip(leaf_values(space, dist.deterministic_sample()), alone, strict=True):
        np.testing.assert_array_equal(array(value), array(leaf.deterministic_sample()))
    close(array(dist.entropy()), sum(array(leaf.entropy()) for leaf in alone))
    close(array(dist.kl(other)), sum(array(p.kl(q)) for p, q in zip(alone, others, strict=True)))
    close(array(dist.multi_entropy()).sum(axis=1), array(dist.entropy()))
    close(array(dist.multi_kl(other)).sum(axis=1), array(dist.kl(other)))


@frameworks
@settings(max_examples=share(20), deadline=None)
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_masks_reach_the_leaves_they_belong_to(fw, space, seed):
    random = np.random.default_rng(seed)
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=fw)
    inputs = random.normal(0, 2, (3, size)).astype(np.float32)
    masks, expected, start = [], [], 0
    for leaf in leaf_spaces(space):
        cls, count = ModelCatalog.get_action_dist(leaf, {}, framework=fw)
        mask = _mask(leaf, random)
        part = tensor(fw, inputs[:, start : start + count])
        masks.append(mask)
        expected.append(array(cls.masked(part, tensor(fw, mask)) if mask.shape[1] else part))
        start += count
    found = dist_class.masked(tensor(fw, inputs), tensor(fw, np.concatenate(masks, axis=1)))
    np.testing.assert_array_equal(array(found), np.concatenate(expected, axis=1))


def _mask(leaf: gymnasium.Space, random):
    """A mask that allows something everywhere."""
    lens = {
        spaces.Discrete: lambda: [leaf.n],
        spaces.MultiDiscrete: lambda: leaf.nvec,
        spaces.Box: list,
    }.get(type(leaf), lambda: [2] * leaf.n)()
    parts = []
    for n in lens:
        part = random.random((3, n)) < 0.5
        part[np.arange(3), random.integers(0, n, 3)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), bool)


def test_leaves_of_one_kind_share_a_distribution():
    space = spaces.Tuple(
        [
            spaces.Discrete(3),
            spaces.Box(-1, 1, (2,)),
            spaces.MultiBinary(2),
            spaces.Dict(a=spaces.Box(-1, 1, (1,)), b=spaces.MultiDiscrete([2, 3])),
        ]
    )
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework="torch")
    dist = dist_class(torch.zeros(2, size))
    assert [type(group) for group in dist.groups] == [MultiCategorical, DiagGaussian, Bernoulli]
    assert [
        dist.groups[0].log_probs.shape[1],
        *(group.inputs.shape[1] for group in dist.groups[1:]),
    ] == [3, 6, 2]


@frameworks
def test_only_the_very_classes_are_joined(fw):
    cls, categorical = (
        (MultiActionDistribution, Categorical) if fw == "torch" else (TFMulti, TFCategorical)
    )

    class Mine(categorical):
        pass

    space = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2), spaces.Discrete(2)])
    flat = functools.partial(
        cls, tensor(fw, np.zeros((2, 7), np.float32)), input_lens=[3, 2, 2], action_space=space
    )
    assert len(flat(child_distributions=[categorical] * 3).groups) == 1
    assert [
        type(g).__name__ for g in flat(child_distributions=[Mine, categorical, categorical]).groups
    ] == [
        "Mine",
        "MultiCategorical",
    ]
    hot = functools.partial(categorical, temperature=2.0)
    assert len(flat(child_distributions=[hot, hot, categorical]).groups) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_give_finite_numbers_in_torch(dtype):
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework="torch")
    dist = dist_class(torch.linspace(-2, 2, 4 * size, dtype=dtype).reshape(4, size))
    flat = dist.join(dist.sample())
    for value in (
        dist.logp(flat),
        dist.entropy(),
        dist.kl(dist),
        dist.multi_entropy(),
        dist.multi_kl(dist),
    ):
        assert torch.isfinite(value).all()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_other_precisions_give_finite_numbers_in_tensorflow(dtype):
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework="tf")
    dist = dist_class(tf.cast(tf.reshape(tf.linspace(-2.0, 2.0, 4 * size), [4, size]), dtype))
    flat = dist.join(dist.sample())
    for value in (
        dist.logp(flat),
        dist.entropy(),
        dist.kl(dist),
        dist.multi_entropy(),
        dist.multi_kl(dist),
    ):
        assert np.isfinite(tf.cast(value, tf.float32).numpy()).all()


def test_a_space_without_maskable_leaves_has_no_mask():
    assert action_codec(SpaceInfo.read(spaces.Dict(a=spaces.Box(-1, 1, (2,))))).mask_width == 0
