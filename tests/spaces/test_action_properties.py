"""Random action spaces, nested at random: samples lie in them, what is stored scores the same,
masks are kept.

Crosses: preprocessors, categorical, gaussian, multi_action.
"""

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import HealthCheck, given, settings, strategies as st
from masked_env import allowed, random_mask
from properties import share
from random_actions import contains, flat, nested

import rlcatalog
from rlcatalog import SpaceInfo
from rlcatalog.actions import ActionMasks, action_codec

CATALOG = rlcatalog.default_catalog()
ROWS = 40
few_examples = settings(
    max_examples=share(120),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
dist_configs = st.sampled_from(
    [{}, {"custom_action_dist": "squashed_gaussian"}, {"custom_action_dist": "beta"}]
)
seeds = st.integers(0, 2**16)


def to_tensor(values, framework):
    if framework == "torch":
        return torch.as_tensor(values)
    return tf.constant(values)


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


def adapt_rows(codec, space, sample):
    """Return the actions that a sample becomes, one for each row."""
    batch = codec.adapt(flat(sample).astype(np.float32))
    return list(iterate(batch_space(space, ROWS), batch))


def draw_case(space, config, framework, seed):
    """Return a distribution class for a space, and random inputs for it."""
    dist_class, size = choose_dist(space, config, framework)
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(ROWS, size)) * rng.choice([0.1, 1, 5])
    return dist_class, to_tensor(inputs.astype(np.float32), framework)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few_examples
@given(nested, dist_configs, seeds)
def test_samples_lie_in_the_space(framework, space, config, seed):
    dist_class, inputs = draw_case(space, config, framework, seed)
    info = SpaceInfo.read(space, "action")
    codec = action_codec(info, "clip", find_raw_kinds(dist_class, info))

    # A model is the optional second argument.
    for dist in (dist_class(inputs), dist_class(inputs, None)):
        sample = dist.sample()

        assert flat(sample).shape == (ROWS, codec.width)
        for action in adapt_rows(codec, space, sample):
            if isinstance(space, spaces.Box):
                action = np.asarray(action, space.dtype)  # rank 0 comes as a number
            assert contains(space, action), action


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few_examples
@given(nested, dist_configs, seeds)
def test_stored_samples_score_the_same(framework, space, config, seed):
    dist_class, inputs = draw_case(space, config, framework, seed)

    # A model is the optional second argument.
    for dist in (dist_class(inputs), dist_class(inputs, None)):
        sample = dist.sample()
        sampled_logp = np.asarray(dist.sampled_action_logp())
        stored = to_tensor(flat(sample).astype(np.float32), framework)
        if isinstance(space, spaces.Discrete):
            stored = stored[:, 0]

        logp = np.asarray(dist_class(inputs).logp(stored))

        assert sampled_logp.shape == (ROWS,)
        assert np.isfinite(sampled_logp).all()
        np.testing.assert_allclose(logp, sampled_logp, rtol=1e-3, atol=1e-3)
        assert np.asarray(dist.entropy_estimate()).shape == (ROWS,)


class MaskedDraw:
    """A distribution with random inputs under a random mask, and the same one without a mask."""

    def __init__(self, space, masks, framework, seed):
        rng = np.random.default_rng(seed)
        dist_class, size = CATALOG.action_dist(space, {}, framework=framework)
        self.mask = random_mask(space, rng)
        if isinstance(self.mask, tuple | dict):
            rows = [self.mask] * ROWS
        else:
            rows = np.repeat(self.mask[None], ROWS, axis=0)
        matrix = to_tensor(masks.matrix(rows, ROWS), framework)
        inputs = to_tensor(rng.normal(size=(ROWS, size)).astype(np.float32), framework)
        self.unmasked = dist_class(inputs)
        self.dist = dist_class(dist_class.masked(inputs, matrix))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few_examples
@given(nested, seeds)
def test_masked_samples_are_allowed(framework, space, seed):
    info = SpaceInfo.read(space, "action")
    masks = ActionMasks(info)
    if not masks.size:  # floats alone cannot be masked
        return
    draw = MaskedDraw(space, masks, framework, seed)

    for sample in (draw.dist.sample(), draw.dist.deterministic_sample()):
        for action in adapt_rows(action_codec(info), space, sample):
            assert allowed(space, action, draw.mask), (action, draw.mask)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few_examples
@given(nested, seeds)
def test_masked_distributions_have_finite_numbers(framework, space, seed):
    masks = ActionMasks(SpaceInfo.read(space, "action"))
    if not masks.size:  # floats alone cannot be masked
        return
    draw = MaskedDraw(space, masks, framework, seed)
    dist = draw.dist
    dist.sample()

    for values in (dist.sampled_action_logp(), dist.entropy(), dist.kl(draw.unmasked)):
        assert np.asarray(values).shape == (ROWS,)
        assert np.isfinite(np.asarray(values)).all()
    np.testing.assert_allclose(np.asarray(dist.kl(dist)), 0, atol=1e-5)
