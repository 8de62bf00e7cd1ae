"""`wrap_env` moves an environment's action masks into its observations."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence
from gymnasium.utils.env_checker import check_env

import rlcatalog
from rlcatalog.errors import ActionMaskError, EnvironmentFaultError

BOX = Box(-1, 1, (2,), np.float32)


class Infos(gym.Env):
    """Returns the infos that it is given, one after another, and counts its resets."""

    action_space = Discrete(3)

    def __init__(self, *infos, space=BOX, ends_after=100):
        self.infos, self.observation_space, self.ends_after = infos, space, ends_after
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.t = self.resets + 1, 0
        return self.observation_space.sample(), self._info()

    def step(self, action):
        self.t += 1
        over = self.t >= self.ends_after
        return self.observation_space.sample(), 0.0, over, False, self._info()

    def _info(self):
        mask = self.infos[min(self.t, len(self.infos) - 1)]
        return {} if mask is None else {"action_mask": np.array(mask, np.int8)}


def shown(obs):
    return obs["action_mask"].tolist()


def test_vector_observation_stands_beside_its_mask():
    wrapped = rlcatalog.wrap_env(Infos([1, 0, 1], [0, 1, 1]))
    assert wrapped.observation_space == Dict({"action_mask": MultiBinary(3), "obs": BOX})
    assert shown(wrapped.reset()[0]) == [1, 0, 1]
    obs, *_ = wrapped.step(0)
    assert shown(obs) == [0, 1, 1]
    assert wrapped.observation_space.contains(obs)
    assert wrapped.action_masks().tolist() == [False, True, True]  # for MaskablePPO


def test_dict_observation_gains_the_mask():
    wrapped = rlcatalog.wrap_env(Infos([1, 0, 1], space=Dict({"x": BOX})))
    assert wrapped.observation_space == Dict({"action_mask": MultiBinary(3), "x": BOX})
    assert set(wrapped.reset()[0]) == {"action_mask", "x"}


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_gymnasium_accepts_the_wrapped_environment():
    name = "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3"  # before Gymnasium 1.3
    wrapped = rlcatalog.wrap_env(gym.make(name))
    check_env(wrapped, skip_render_check=True, skip_close_check=True)


def test_action_mask_key_names_info_and_entry():
    env = Infos([1, 0, 1])
    env._info = lambda: {"free": np.array([0, 0, 1], np.int8)}
    wrapped = rlcatalog.wrap_env(env, {"action_mask_key": "free"})
    assert wrapped.reset()[0]["free"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("last", [None, [0, 0, 0]])
def test_last_mask_may_be_missing_or_forbid_everything(last):
    wrapped = rlcatalog.wrap_env(Infos([1, 0, 1], last, ends_after=1))
    wrapped.reset()
    assert shown(wrapped.step(0)[0]) == [1, 1, 1]


def test_missing_mask_is_an_error():
    wrapped = rlcatalog.wrap_env(Infos([1, 0, 1], None))
    wrapped.reset()
    with pytest.raises(EnvironmentFaultError, match="info has no 'action_mask', but the info of"):
        wrapped.step(0)


def test_mask_that_allows_nothing_is_an_error():
    wrapped = rlcatalog.wrap_env(Infos([1, 0, 1], [0, 0, 0]))
    wrapped.reset()
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        wrapped.step(0)


class Method(Infos):
    """Has the method that sb3-contrib calls."""

    def action_masks(self):
        return [True, True, False]


def test_info_and_method_forbid_together():
    wrapped = rlcatalog.wrap_env(Method([1, 0, 1]))
    assert shown(wrapped.reset()[0]) == [1, 0, 0]


UNCHANGED = {
    "no mask": Infos(None),
    "a mask in the observation": Infos([1, 0, 1], space=Dict({"action_mask": MultiBinary(3)})),
}


@pytest.mark.parametrize("what", UNCHANGED)
def test_other_environments_are_unchanged(what):
    assert rlcatalog.wrap_env(UNCHANGED[what]) is UNCHANGED[what]


@pytest.mark.parametrize("options", [{"config": {"action_mask_key": None}}, {"move_masks": False}])
def test_masks_stay_on_request(options):
    env = Method([1, 0, 1])
    assert rlcatalog.wrap_env(env, **options) is env
    assert env.resets == 0


@pytest.mark.parametrize("space", [BOX, Sequence(BOX)])
def test_actions_without_choices_are_never_asked_for_masks(space):
    env = Infos([1, 0, 1])
    env.action_space = space
    assert rlcatalog.wrap_env(env) is env
    assert env.resets == 0


def test_environment_with_the_method_is_not_reset():
    env = Method([1, 0, 1])
    assert rlcatalog.wrap_env(env) is not env
    assert env.resets == 0


def test_failing_reset_is_left_to_the_caller():
    env = Infos()  # without an info to return
    assert rlcatalog.wrap_env(env) is env
    with pytest.raises(IndexError):
        env.reset()


def test_state_of_the_wrapper_can_be_restored():
    wrapped, other = (rlcatalog.wrap_env(Infos([1, 0, 1])) for _ in range(2))
    wrapped.reset()
    other.set_state(wrapped.get_state())
    assert other.action_masks().tolist() == [True, False, True]


def test_policy_wraps_for_its_space():
    env = Infos([1, 0, 1])
    plain, masked = (rlcatalog.build(env=one) for one in (env, rlcatalog.wrap_env(env)))
    assert plain.wrap_env(env) is env
    assert masked.wrap_env(env).observation_space == masked.observation_space
