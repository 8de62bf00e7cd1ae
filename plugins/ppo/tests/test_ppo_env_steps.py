"""`Resumable` as a wrapper of steps: which errors, observations and infos it passes on."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, ObservationError
from rlcatalog_ppo.env_state import Resumable


class LongEnv(gym.Env):
    """Adds the action to its observation, reuses one array for all, and never ends.

    Its info has a mask, beside an object.
    """

    observation_space = spaces.Box(-99, 99, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self):
        self.obs = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = 0.5
        return self.obs, self._info()

    def step(self, action):
        self.obs += action
        return self.obs, 1.0, False, False, self._info()

    def _info(self):
        return {"action_mask": np.array([1, 0]), "other": object()}


# --- errors ---------------------------------------------------------------------------------------


def test_error_of_a_step_without_reset_names_step_one():
    env = Resumable(gym.make("CartPole-v1"))

    place = "environment 0 of 1: step 1 of its episode"
    with pytest.raises(EnvironmentFaultError, match=f"^{place} raised ResetNeeded"):
        env.step(0)


def test_catalog_error_of_a_wrapper_is_not_changed():
    class ExplainsItself(gym.Wrapper):
        def reset(self, **options):
            raise ObservationError("it explains itself")

    with pytest.raises(ObservationError, match=r"^it explains itself$"):
        Resumable(ExplainsItself(LongEnv())).reset()


# --- observations and infos -----------------------------------------------------------------------


def test_observations_within_an_episode_are_not_copied():
    env = LongEnv()
    resumable = Resumable(env)

    assert resumable.reset()[0] is env.obs
    assert resumable.step(1)[0] is env.obs
    assert resumable.step(1)[0] is env.obs


@pytest.mark.parametrize(
    ("mask_key", "kept_keys"),
    [("action_mask", ["action_mask"]), ("another_key", []), (None, [])],
)
def test_infos_keep_only_their_mask(mask_key, kept_keys):
    env = Resumable(LongEnv(), mask_key=mask_key)

    assert list(env.reset()[1]) == kept_keys
    assert list(env.step(1)[-1]) == kept_keys
