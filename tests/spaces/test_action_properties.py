"""Random action spaces, nested at random: samples lie in them, what is stored scores the same,
masks are kept.

Crosses: preprocessors, categorical, gaussian, multi_action.
"""

import numpy as np
import pytest
from builders import split_rows, to_array, to_tensor
from gymnasium import spaces
from hypothesis import assume, given, strategies as st
from masked_env import allowed, random_mask
from properties import max_examples
from random_actions import contains, flat, nested

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks, action_codec

CATALOG = rlcatalog.default_catalog()
ROWS = 40
dist_configs = st.sampled_from(
    [{}, {"custom_action_dist": "squashed_gaussian"}, {"custom_action_dist": "beta"}]
)
seeds = st.integers(0, 2**16)


def choose_dist(space, config, framework):
    """Return the distribution that a config names for a space, or the default if it does not fit,
    and the number of its inputs.
    """
    try:
        return CATALOG.action_dist(space, config, framework=framework)
    except rlcatalog.errors.UnsupportedSpaceError:
        return CATALOG.action_dist(space, {}, framework=framework)


def find_raw_kinds(dist_class, info):
    """Return path → raw kind of each part, as an action codec takes them."""
    parts = getattr(dist_class, "options", {}).get("child_distributions")
    if parts is None:
        return {info.path: getattr(dist_class, "raw_kind", "values")}
    kinds = {}
    for child, dist in zip(info.children, parts, strict=True):
        kinds |= find_raw_kinds(dist, child)
    return kinds


def make_codec(space, dist_class):
    info = SpaceInfo.read(space, "action")
    return action_codec(info, "clip", find_raw_kinds(dist_class, info))


def to_actions(codec, space, sample):
    """Return the actions that a sample becomes, one for each row."""
    actions = split_rows(space, codec.adapt(flat(sample).astype(np.float32)), ROWS)
    if isinstance(space, spaces.Box):
        return [np.asarray(action, space.dtype) for action in actions]  # rank 0 comes as a number
    return actions


def choose_dist_and_inputs(space, config, framework, seed):
    """Return a distribution class for a space, and random inputs for it."""
    dist_class, size = choose_dist(space, config, framework)
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(ROWS, size)) * rng.choice([0.1, 1, 5])
    return dist_class, to_tensor(framework, inputs.astype(np.float32))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@max_examples(120)
@given(nested, dist_configs, seeds)
def test_samples_lie_in_the_space(framework, space, config, seed):
    dist_class, inputs = choose_dist_and_inputs(space, config, framework, seed)

    sample = dist_class(inputs).sample()

    for action in to_actions(make_codec(space, dist_class), space, sample):
        assert contains(space, action), action


@pytest.mark.parametrize("framework", ["torch", "tf"])
@max_examples(120)
@given(nested, dist_configs, seeds)
def test_stored_samples_score_the_same(framework, space, config, seed):
    dist_class, inputs = choose_dist_and_inputs(space, config, framework, seed)
    dist = dist_class(inputs)
    sample = dist.sample()
    sampled_logp = to_array(dist.sampled_action_logp())

    stored_sample = flat(sample).astype(np.float32)  # as a rollout stores it
    if isinstance(space, spaces.Discrete):
        stored_sample = stored_sample[:, 0]  # such an action has no axis of its own
    logp = to_array(dist_class(inputs).logp(to_tensor(framework, stored_sample)))

    assert np.isfinite(sampled_logp).all()
    np.testing.assert_allclose(logp, sampled_logp, rtol=1e-3, atol=1e-3)


class MaskedDist:
    """A distribution with random inputs under a random mask, and the same one without a mask."""

    def __init__(self, space, framework, seed):
        masks = ActionMasks(SpaceInfo.read(space, "action"))
        assume(masks.size)  # floats alone cannot be masked
        rng = np.random.default_rng(seed)
        dist_class, size = CATALOG.action_dist(space, {}, framework=framework)
        self.mask = random_mask(space, rng)
        matrix = to_tensor(framework, masks.matrix([self.mask] * ROWS, ROWS))
        inputs = to_tensor(framework, rng.normal(size=(ROWS, size)).astype(np.float32))
        self.unmasked = dist_class(inputs)
        self.dist = dist_class(dist_class.masked(inputs, matrix))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@max_examples(120)
@given(nested, seeds)
def test_masked_samples_are_allowed(framework, space, seed):
    masked = MaskedDist(space, framework, seed)
    codec = action_codec(SpaceInfo.read(space, "action"))

    for sample in (masked.dist.sample(), masked.dist.deterministic_sample()):
        for action in to_actions(codec, space, sample):
            assert allowed(space, action, masked.mask), (action, masked.mask)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@max_examples(120)
@given(nested, seeds)
def test_masked_distributions_have_finite_numbers(framework, space, seed):
    masked = MaskedDist(space, framework, seed)
    dist = masked.dist
    dist.sample()

    assert np.isfinite(to_array(dist.sampled_action_logp())).all()
    assert np.isfinite(to_array(dist.entropy())).all()
    assert np.isfinite(to_array(dist.kl(masked.unmasked))).all()
    np.testing.assert_allclose(to_array(dist.kl(dist)), 0, atol=1e-5)
