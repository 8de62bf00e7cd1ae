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
few = settings(
    max_examples=share(120),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


names = st.sampled_from(
    [{}, {"custom_action_dist": "squashed_gaussian"}, {"custom_action_dist": "beta"}]
)


def tensor(values, framework):
    return torch.as_tensor(values) if framework == "torch" else tf.constant(values)


def chosen(space, config, framework):
    """The catalog's distribution for a space; where the name fits nowhere, the one it chooses
    itself.
    """
    try:
        return CATALOG.action_dist(space, config, framework=framework)
    except rlcatalog.errors.UnsupportedSpaceError:
        return CATALOG.action_dist(space, {}, framework=framework)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few
@given(nested, names, st.integers(0, 2**16))
def test_samples_lie_in_the_space_and_score_the_same_when_stored(framework, space, config, seed):
    dist_class, size = chosen(space, config, framework)
    rng = np.random.default_rng(seed)
    inputs = tensor(
        (rng.normal(size=(ROWS, size)) * rng.choice([0.1, 1, 5])).astype(np.float32), framework
    )
    info = SpaceInfo.read(space, "action")
    codec = action_codec(info, "clip", _raw_kinds(dist_class, info))
    for dist in (dist_class(inputs), dist_class(inputs, None)):
        sample = dist.sample()
        raw = flat(sample)
        assert raw.shape == (ROWS, codec.width)
        for action in iterate(batch_space(space, ROWS), codec.adapt(raw.astype(np.float32))):
            boxed = np.asarray(action, space.dtype) if isinstance(space, spaces.Box) else action
            assert contains(space, boxed), boxed
        logp = np.asarray(dist.sampled_action_logp())
        assert logp.shape == (ROWS,)
        assert np.isfinite(logp).all()
        stored = tensor(raw.astype(np.float32), framework)
        scalar = info.kind == "discrete"
        again = np.asarray(dist_class(inputs).logp(stored[:, 0] if scalar else stored))
        np.testing.assert_allclose(again, logp, rtol=1e-3, atol=1e-3)
        assert np.asarray(dist.entropy_estimate()).shape == (ROWS,)


def _raw_kinds(dist_class, info):
    bounded = getattr(dist_class, "options", {}).get("child_distributions")
    if bounded is None:
        return {info.path: getattr(dist_class, "raw_kind", "values")}
    found = {}
    for child, dist in zip(info.children, bounded, strict=True):
        found |= _raw_kinds(dist, child)
    return found


@pytest.mark.parametrize("framework", ["torch", "tf"])
@few
@given(nested, st.integers(0, 2**16))
def test_masks_of_any_space_are_kept(framework, space, seed):
    masks = ActionMasks(SpaceInfo.read(space, "action"))
    if not masks.size:
        return
    dist_class, size = CATALOG.action_dist(space, {}, framework=framework)
    rng = np.random.default_rng(seed)
    mask = random_mask(space, rng)
    matrix = masks.matrix(
        [mask] * ROWS if isinstance(mask, tuple | dict) else np.repeat(mask[None], ROWS, axis=0),
        ROWS,
    )
    free = tensor(rng.normal(size=(ROWS, size)).astype(np.float32), framework)
    dist = dist_class(dist_class.masked(free, tensor(matrix, framework)))
    codec = action_codec(SpaceInfo.read(space, "action"))
    for sample in (dist.sample(), dist.deterministic_sample()):
        for action in iterate(
            batch_space(space, ROWS), codec.adapt(flat(sample).astype(np.float32))
        ):
            assert allowed(space, action, mask), (action, mask)
    for values in (dist.sampled_action_logp(), dist.entropy(), dist.kl(dist_class(free))):
        assert np.asarray(values).shape == (ROWS,)
        assert np.isfinite(np.asarray(values)).all()
    assert np.allclose(np.asarray(dist.kl(dist)), 0, atol=1e-5)
