"""`Resumable` by itself: what it checks, counts, copies and closes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.errors import EnvironmentFaultError, ObservationError
from rlcatalog_ppo.env_state import Resumable


class Road(gym.Env):
    """Ends after `limit` steps, by itself or cut; it overwrites its observation."""

    observation_space, action_space = spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(3)

    def __init__(self, limit=4, cut=False):
        self.limit, self.cut, self.obs, self.closed = limit, cut, np.zeros(1, np.float32), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.obs[:] = 0, 0.5
        return self.obs, {"x": 1}

    def step(self, action):
        self.t += 1
        self.obs += action
        over = self.t == self.limit
        return self.obs, float(self.obs[0]), over and not self.cut, over and self.cut, {"x": 1}

    def close(self):
        self.closed += 1


class Canned(Road):
    """Returns what it is given."""

    returned = None

    def reset(self, **options):
        super().reset(**options)
        return self.returned if self.returned is not None else (self.obs, {})

    def step(self, action):
        return self.returned


OBS = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((OBS, "1", False, False, {}), "returned the reward '1'; expected a number"),
        ((OBS, 1.0, 2, False, {}), "returned terminated=2; expected True or False"),
        ((OBS, 1.0, False, "no", {}), "returned truncated='no'; expected True or False"),
        ((OBS, 1.0, False, False, [1]), r"returned info=\[1\]; expected a dict"),
        (
            (np.zeros(2), 1.0, False, False, {}),
            "returned observation that does not match its space",
        ),
        ((OBS, 1.0, False, {}), "returned 4 values"),
        (None, "returned None; expected"),
    ],
)
def test_invalid_step_is_named_with_its_number(returned, message):
    canned = Canned()
    env = Resumable(canned, 2, 5)
    env.reset()
    canned.returned = (OBS, 1, 0, np.array(False), {})  # unusual, but valid
    assert env.step(0)[1:] == (1, 0, False, {})
    canned.returned = returned
    with pytest.raises(
        EnvironmentFaultError, match=f"^environment 2 of 5: step 2 of its episode {message}"
    ):
        env.step(0)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((np.zeros(2), {}), "returned observation that does not"),
        ((OBS, 0), "returned info=0"),
        ((OBS,), "returned 1 val"),
    ],
)
def test_invalid_reset_is_named_in_each_episode(returned, message):
    canned = Canned()
    env = Resumable(canned)
    env.reset()
    canned.returned = (OBS, 1.0, False, False, {})
    env.step(0)
    canned.returned = returned
    with pytest.raises(EnvironmentFaultError, match=f"^environment 0 of 1: reset {message}"):
        env.reset()


def test_steps_are_counted_from_one_even_without_a_reset():
    env = Resumable(gym.make("CartPole-v1"))
    with pytest.raises(
        EnvironmentFaultError,
        match=r"^environment 0 of 1: step 1 of its episode raised ResetNeeded",
    ):
        env.step(0)


def test_catalog_error_of_a_wrapper_passes_unchanged():
    class Explains(gym.Wrapper):
        def reset(self, **options):
            raise ObservationError("it explains itself")

    with pytest.raises(ObservationError, match=r"^it explains itself$"):
        Resumable(Explains(Road())).reset()


@pytest.mark.parametrize("cut", [False, True])
def test_only_the_last_observation_of_an_episode_is_copied_and_infos_are_dropped(cut):
    road = Road(3, cut)
    env = Resumable(road)
    assert env.reset(seed=0) == (road.obs, {})
    for _ in range(2):
        obs, reward, *ended, info = env.step(1)
        assert (obs is road.obs, reward, ended, info) == (
            True,
            float(road.obs[0]),
            [False, False],
            {},
        )
    obs, reward, *ended, info = env.step(1)
    assert (obs is road.obs, ended, info) == (False, [not cut, cut], {})
    assert env.obs is obs
    last = obs.copy()
    env.reset()
    np.testing.assert_array_equal(obs, last)
    assert reward == float(last[0])


def test_closing_is_left_to_the_owner():
    mine, theirs = Road(), Road()
    Resumable(mine).close()
    Resumable(theirs, closes=False).close()
    assert (mine.closed, theirs.closed) == (1, 0)


class Informing(Road):
    """Puts a mask into its info, among other things."""

    def reset(self, **options):
        return super().reset(**options)[0], self._tell()

    def step(self, action):
        return *super().step(action)[:4], self._tell()

    def _tell(self):
        return {"action_mask": np.array([1, 0]), "other": object()}


@pytest.mark.parametrize(("key", "shown"), [("action_mask", True), ("free", False), (None, False)])
def test_info_keeps_its_mask_alone(key, shown):
    env = Resumable(Informing(), mask_key=key)
    infos = [env.reset()[1], env.step(env.action_space.sample())[-1]]
    assert [list(info) for info in infos] == [["action_mask"] * shown] * 2
