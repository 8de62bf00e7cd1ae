"""Random Tuple and Dict spaces: their distribution against those of the leaves, and its groups."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings, strategies as st
from properties import share

from rlcatalog import ModelCatalog
from rlcatalog_torch import Bernoulli, DiagGaussian, MultiCategorical

leaves = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 5)),
    st.integers(0, 3).map(lambda d: spaces.Box(-1, 1, (d,), np.float32)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
)


def composites(children):
    """Return a strategy for Tuples and Dicts; the Dicts' keys are not sorted."""
    several = st.lists(children, min_size=1, max_size=4)
    tuples = several.map(spaces.Tuple)
    dicts = several.map(
        lambda parts: spaces.Dict([(f"k{-i}", part) for i, part in enumerate(parts)])
    )
    return tuples | dicts


random_spaces = composites(st.recursive(leaves, composites, max_leaves=5))


def for_random_spaces(examples):
    """Run a test with random spaces, a number of rows and a seed."""

    def decorate(test):
        test = given(space=random_spaces, rows=st.sampled_from([1, 3]), seed=st.integers(0, 2**31))(
            test
        )
        return settings(
            max_examples=share(examples),
            deadline=None,
            # The fixture `framework` has no state.
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )(test)

    return decorate


def children_of(space):
    return list(space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)


def leaf_spaces(space):
    if not isinstance(space, spaces.Tuple | spaces.Dict):
        return [space]
    return list(itertools.chain.from_iterable(leaf_spaces(part) for part in children_of(space)))


def leaf_values(space, sample):
    """Return the leaves' values, taken by key and place, in the space's order."""
    if isinstance(space, spaces.Dict):
        assert list(sample) == list(space.spaces)
        parts = [sample[key] for key in space.spaces]
    elif isinstance(space, spaces.Tuple):
        assert isinstance(sample, tuple)
        parts = sample
    else:
        return [sample]
    pairs = zip(children_of(space), parts, strict=True)
    return list(itertools.chain.from_iterable(leaf_values(child, part) for child, part in pairs))


def reverse_keys(sample):
    """Return a structure with its Dicts in the opposite order, and lists instead of tuples."""
    if isinstance(sample, dict):
        return {key: reverse_keys(sample[key]) for key in reversed(sample)}
    if isinstance(sample, tuple):
        return [reverse_keys(part) for part in sample]
    return sample


def make_dist_and_leaves(framework, space, rows, seed):
    """Create the distribution of a space with random inputs, and those of its leaves."""
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    inputs = np.random.default_rng(seed).normal(0, 2, (rows, size)).astype(np.float32)
    leaf_dists = []
    start = 0
    for leaf in leaf_spaces(space):
        leaf_class, leaf_size = ModelCatalog.get_action_dist(leaf, {}, framework=framework.name)
        leaf_dists.append(leaf_class(framework.tensor(inputs[:, start : start + leaf_size])))
        start += leaf_size
    assert start == size
    return dist_class(framework.tensor(inputs)), leaf_dists


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@for_random_spaces(examples=30)
def test_samples_have_shape_and_dtype_of_the_leaves(framework, space, rows, seed):
    dist, leaf_dists = make_dist_and_leaves(framework, space, rows, seed)

    for sample in [dist.sample(), dist.deterministic_sample()]:
        for value, leaf in zip(leaf_values(space, sample), leaf_dists, strict=True):
            assert value.shape == leaf.sample().shape
            assert value.dtype == leaf.sample().dtype


@for_random_spaces(examples=30)
def test_deterministic_sample_is_that_of_the_leaves(framework, space, rows, seed):
    dist, leaf_dists = make_dist_and_leaves(framework, space, rows, seed)

    values = leaf_values(space, dist.deterministic_sample())

    for value, leaf in zip(values, leaf_dists, strict=True):
        np.testing.assert_array_equal(
            framework.numpy(value), framework.numpy(leaf.deterministic_sample())
        )


@for_random_spaces(examples=30)
def test_logp_is_sum_over_leaves_in_any_form(framework, space, rows, seed):
    dist, leaf_dists = make_dist_and_leaves(framework, space, rows, seed)

    sample = dist.sample()
    values = leaf_values(space, sample)
    stored = framework.numpy(dist.join(sample)).astype(np.float32)  # one flat row each

    leaf_logps = [
        framework.numpy(leaf.logp(value)) for leaf, value in zip(leaf_dists, values, strict=True)
    ]
    for form in [sample, tuple(values), reverse_keys(sample), stored, dist.split(stored)]:
        assert_close(framework.numpy(dist.logp(form)), sum(leaf_logps))


@for_random_spaces(examples=30)
def test_split_undoes_join(framework, space, rows, seed):
    dist, _ = make_dist_and_leaves(framework, space, rows, seed)
    sample = dist.sample()

    restored = dist.split(dist.join(sample))

    pairs = zip(leaf_values(space, sample), leaf_values(space, restored), strict=True)
    for value, restored_value in pairs:
        np.testing.assert_array_equal(framework.numpy(value), framework.numpy(restored_value))
        assert value.dtype == restored_value.dtype


@for_random_spaces(examples=30)
def test_entropy_is_sum_over_leaves(framework, space, rows, seed):
    dist, leaf_dists = make_dist_and_leaves(framework, space, rows, seed)

    entropy = framework.numpy(dist.entropy())

    assert_close(entropy, sum(framework.numpy(leaf.entropy()) for leaf in leaf_dists))
    assert_close(framework.numpy(dist.multi_entropy()).sum(axis=1), entropy)


@for_random_spaces(examples=30)
def test_kl_is_sum_over_leaves(framework, space, rows, seed):
    p, p_leaves = make_dist_and_leaves(framework, space, rows, seed)
    q, q_leaves = make_dist_and_leaves(framework, space, rows, seed + 1)

    kl = framework.numpy(p.kl(q))

    pairs = zip(p_leaves, q_leaves, strict=True)
    assert_close(kl, sum(framework.numpy(p_leaf.kl(q_leaf)) for p_leaf, q_leaf in pairs))
    assert_close(framework.numpy(p.multi_kl(q)).sum(axis=1), kl)


def random_mask(leaf, rows, rng):
    """Return a mask of a leaf that allows something everywhere."""
    if isinstance(leaf, spaces.Discrete):
        counts = [leaf.n]
    elif isinstance(leaf, spaces.MultiDiscrete):
        counts = leaf.nvec
    elif isinstance(leaf, spaces.MultiBinary):
        counts = [2] * leaf.n
    else:
        counts = []
    columns = [np.zeros((rows, 0), bool)]
    for n in counts:
        allowed = rng.random((rows, n)) < 0.5
        allowed[np.arange(rows), rng.integers(0, n, rows)] = True
        columns.append(allowed)
    return np.concatenate(columns, axis=1)


@for_random_spaces(examples=20)
def test_masks_change_the_inputs_of_their_leaves(framework, space, rows, seed):
    rng = np.random.default_rng(seed)
    dist, leaf_dists = make_dist_and_leaves(framework, space, rows, seed)
    masks = [random_mask(leaf, rows, rng) for leaf in leaf_spaces(space)]

    dist_class, _ = ModelCatalog.get_action_dist(space, {}, framework=framework.name)
    masked = dist_class.masked(dist.inputs, framework.tensor(np.concatenate(masks, axis=1)))

    expected = []
    for leaf_dist, mask in zip(leaf_dists, masks, strict=True):
        inputs = leaf_dist.inputs
        if mask.shape[1] > 0:  # a Box has no mask
            inputs = leaf_dist.masked(inputs, framework.tensor(mask))
        expected.append(framework.numpy(inputs))
    np.testing.assert_array_equal(framework.numpy(masked), np.concatenate(expected, axis=1))


# --- groups ---------------------------------------------------------------------------------------


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

    choices, numbers, bits = dist_class(torch.zeros(1, size)).groups

    assert isinstance(choices, MultiCategorical)
    assert choices.input_lens == (3, 2, 3)  # of Discrete and MultiDiscrete
    assert isinstance(numbers, DiagGaussian)
    assert numbers.mean.shape == (1, 2 + 1)  # means of both Boxes
    assert isinstance(bits, Bernoulli)


def groups_of_three_choices(framework, child_distributions):
    """Return the class names of the groups of choices of 3, 2 and 2 values."""
    dist = framework.load("MultiActionDistribution")(
        framework.tensor(np.zeros((2, 7), np.float32)),
        child_distributions=child_distributions,
        input_lens=[3, 2, 2],
        action_space=spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2), spaces.Discrete(2)]),
    )
    return [type(group).__name__ for group in dist.groups]


def test_choices_are_joined(framework):
    categorical = framework.load("Categorical")

    groups = groups_of_three_choices(framework, [categorical, categorical, categorical])

    assert groups == ["MultiCategorical"]


def test_choice_of_a_subclass_is_not_joined(framework):
    categorical = framework.load("Categorical")

    class Subclass(categorical):
        pass

    groups = groups_of_three_choices(framework, [Subclass, categorical, categorical])

    assert groups == ["Subclass", "MultiCategorical"]


def test_choices_with_temperature_are_not_joined(framework):
    categorical = framework.load("Categorical")
    with_temperature = functools.partial(categorical, temperature=2.0)

    groups = groups_of_three_choices(framework, [with_temperature, with_temperature, categorical])

    assert groups == ["Categorical", "Categorical", "Categorical"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_give_finite_numbers(framework, dtype):
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])
    dist_class, size = ModelCatalog.get_action_dist(space, {}, framework=framework.name)

    dist = dist_class(framework.tensor(np.linspace(-2, 2, size)[None], dtype))
    flat = dist.join(dist.sample())

    assert framework.all_finite(dist.logp(flat))
    assert framework.all_finite(dist.entropy())
    assert framework.all_finite(dist.kl(dist))
    assert framework.all_finite(dist.multi_entropy())
    assert framework.all_finite(dist.multi_kl(dist))
