"""`Resumable` as a wrapper of steps: what it checks, copies, passes on and closes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, ObservationError
from rlcatalog_ppo.env_state import Resumable

ZERO = np.zeros(1, np.float32)


class ShortEnv(gym.Env):
    """Adds the action to its observation, and reuses one array for all observations.

    Args:
        steps: Length of an episode.
        truncates: Whether an episode is truncated at its end; otherwise it terminates.
    """

    observation_space = spaces.Box(-99, 99, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, steps=4, truncates=False):
        self.steps = steps
        self.truncates = truncates
        self.obs = np.zeros(1, np.float32)
        self.times_closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.obs[:] = 0.5
        return self.obs, {"x": 1}

    def step(self, action):
        self.t += 1
        self.obs += action
        is_over = self.t == self.steps
        terminated = is_over and not self.truncates
        truncated = is_over and self.truncates
        return self.obs, float(self.obs[0]), terminated, truncated, {"x": 1}

    def close(self):
        self.times_closed += 1


class CannedEnv(gym.Env):
    """Returns `from_reset` and `from_step`, which a test may change."""

    observation_space = spaces.Box(-99, 99, (1,), np.float32)
    action_space = spaces.Discrete(3)
    from_reset = (ZERO, {})
    from_step = (ZERO, 1.0, False, False, {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.from_reset

    def step(self, action):
        return self.from_step


# --- checks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((ZERO, "1", False, False, {}), "returned the reward '1'; expected a number"),
        ((ZERO, 1.0, False, {}), "returned 4 values"),
        (None, "returned None; expected"),
    ],
    ids=["reward", "four values", "nothing"],
)
def test_invalid_step_is_named_with_its_number(returned, message):
    env = CannedEnv()
    resumable = Resumable(env, index=2, count=5)
    resumable.reset()
    resumable.step(0)

    env.from_step = returned

    place = "environment 2 of 5: step 2 of its episode"
    with pytest.raises(EnvironmentFaultError, match=f"^{place} {message}"):
        resumable.step(0)


def test_unusual_numbers_and_flags_are_valid():
    env = CannedEnv()
    env.from_step = (ZERO, 1, 0, np.array(False), {})
    resumable = Resumable(env)
    resumable.reset()

    _, reward, terminated, truncated, info = resumable.step(0)

    assert (reward, terminated, truncated, info) == (1, 0, False, {})


@pytest.mark.parametrize(
    ("returned", "message"),
    [((ZERO, 0), "returned info=0"), ((ZERO,), "returned 1 val")],
    ids=["info", "one value"],
)
def test_invalid_reset_is_named_in_a_later_episode(returned, message):
    env = CannedEnv()
    resumable = Resumable(env)
    resumable.reset()
    resumable.step(0)

    env.from_reset = returned

    with pytest.raises(EnvironmentFaultError, match=f"^environment 0 of 1: reset {message}"):
        resumable.reset()


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
        Resumable(ExplainsItself(ShortEnv())).reset()


# --- observations and infos -----------------------------------------------------------------------


@pytest.mark.parametrize("truncates", [False, True])
def test_step_returns_what_the_environment_returned(truncates):
    resumable = Resumable(ShortEnv(steps=2, truncates=truncates))
    resumable.reset()

    # The observation begins at 0.5, and each step adds its action, 1; the reward is the sum.
    _, *first = resumable.step(1)
    _, *second = resumable.step(1)

    assert first == [1.5, False, False, {}]
    assert second == [2.5, not truncates, truncates, {}]


def test_observations_within_an_episode_are_not_copied():
    env = ShortEnv(steps=3)
    resumable = Resumable(env)

    assert resumable.reset()[0] is env.obs
    assert resumable.step(1)[0] is env.obs
    assert resumable.step(1)[0] is env.obs


@pytest.mark.parametrize("truncates", [False, True])
def test_last_observation_is_copied(truncates):
    env = ShortEnv(steps=1, truncates=truncates)
    resumable = Resumable(env)
    resumable.reset()

    last_obs, *_ = resumable.step(1)
    resumable.reset()  # the environment overwrites the array that it returned

    assert last_obs is not env.obs
    assert last_obs.tolist() == [0.5 + 1]  # it begins at 0.5, and the action is added


def test_infos_are_dropped():
    """Even though the environment returns `{"x": 1}`."""
    resumable = Resumable(ShortEnv())

    assert resumable.reset()[1] == {}
    assert resumable.step(1)[-1] == {}


class MaskInInfo(ShortEnv):
    """Puts a mask into its info, beside an object."""

    def reset(self, **options):
        obs, _ = super().reset(**options)
        return obs, {"action_mask": np.array([1, 0]), "other": object()}

    def step(self, action):
        *values, _ = super().step(action)
        return *values, {"action_mask": np.array([1, 0]), "other": object()}


@pytest.mark.parametrize(
    ("mask_key", "kept_keys"),
    [("action_mask", ["action_mask"]), ("another_key", []), (None, [])],
)
def test_infos_keep_only_their_mask(mask_key, kept_keys):
    env = Resumable(MaskInInfo(), mask_key=mask_key)

    assert list(env.reset()[1]) == kept_keys
    assert list(env.step(1)[-1]) == kept_keys


# --- closing --------------------------------------------------------------------------------------


def test_close_closes_the_environment():
    env = ShortEnv()

    Resumable(env).close()

    assert env.times_closed == 1


def test_close_leaves_an_environment_of_the_caller_open():
    env = ShortEnv()

    Resumable(env, closes=False).close()

    assert env.times_closed == 0
