"""Action masks in infos and in the method `action_masks`: warnings, and `rlcatalog.wrap_env`."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from mask_places_env import Elsewhere

import rlcatalog
from rlcatalog.errors import ModelContractError, UnusedMaskWarning
from rlcatalog_rllib import CatalogEnv


def make_env(mask_place="info"):
    """Return an environment with discrete actions that raises an error at a forbidden one."""
    return Elsewhere("discrete", mask_place)


@pytest.mark.parametrize("mask_place", ["info", "method"])
def test_runner_reads_masks_of_a_wrapped_environment(rllib, mask_place):
    config = rllib.configure(lambda: rlcatalog.wrap_env(make_env(mask_place)), steps_per_env=30)
    runner = rllib.make_runner(config)

    episodes = runner.sample()  # a forbidden action would be an error

    masks = [episode.get_observations(slice(0, len(episode)))["mask"] for episode in episodes]
    assert 0 < np.concatenate(masks).mean() < 1
    assert runner.module.policy.masks.key == "action_mask"


@pytest.mark.parametrize("mask_place", ["info", "method"])
def test_unread_mask_is_warned_of(rllib, mask_place):
    with pytest.warns(UnusedMaskWarning, match=r"reads only.*rlcatalog\.wrap_env\(env\)"):
        rllib.configure(lambda: make_env(mask_place))


class TextEnv(gym.Env):
    """Environment with texts, which Ray cannot batch, and masks in its infos."""

    observation_space = gym.spaces.Text(4, charset="ab")
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "ab", {"action_mask": np.array([1, 0, 1], np.int8)}


def test_mask_around_encoded_observations_is_refused():
    env = CatalogEnv({"env": TextEnv, "model": {}})

    with pytest.raises(ModelContractError, match="function that returns rlcatalog"):
        rlcatalog.wrap_env(env)


def test_action_mask_key_none_switches_the_warning_off(rllib):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedMaskWarning)
        rllib.configure(make_env, {"action_mask_key": None})
