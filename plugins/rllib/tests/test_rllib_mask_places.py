"""Masks outside the observation: RLlib is warned of, and `wrap_env` moves them."""

import warnings

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from mask_places_env import Elsewhere

import rlcatalog
from rlcatalog.errors import UnusedMaskWarning


@pytest.mark.parametrize("place", ["info", "method"])
def test_wrapped_environments_get_no_forbidden_action(bench, place):
    """The environment raises at a forbidden action."""
    config = bench.config(lambda: rlcatalog.wrap_env(Elsewhere("discrete", place)), fragment=30)
    runner = bench.runner(config)
    episodes = runner.sample()
    masks = [episode.get_observations(slice(0, len(episode)))["mask"] for episode in episodes]
    assert 0 < np.concatenate(masks).mean() < 1
    assert runner.module.policy.masks.key == "action_mask"


@pytest.mark.parametrize("place", ["info", "method"])
def test_mask_that_is_not_read_is_warned_of(bench, place):
    with pytest.warns(UnusedMaskWarning, match=r"RLlib reads only.*rlcatalog\.wrap_env\(env\)"):
        bench.config(lambda: Elsewhere("discrete", place))


def test_no_key_means_no_warning(bench):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedMaskWarning)
        bench.config(lambda: Elsewhere("discrete"), {"action_mask_key": None})
