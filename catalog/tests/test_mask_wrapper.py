"""The wrapper that moves an environment's action masks into its observations."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence
from gymnasium.utils.env_checker import check_env

import rlcatalog
from rlcatalog.catalog import EngineWrapper
from rlcatalog.errors import ActionMaskError, EnvironmentFaultError, ModelContractError

TWO_FEATURES = Box(-1, 1, (2,), np.float32)


class MaskInInfo(gym.Env):
    """Returns these masks in its infos, one per step; None is an info without a mask.

    The last one is returned again and again. `resets` counts the resets.
    """

    action_space = Discrete(3)

    def __init__(self, *masks, space=TWO_FEATURES, steps_per_episode=100, key="action_mask"):
        self.masks = masks
        self.observation_space = space
        self.steps_per_episode = steps_per_episode
        self.key = key
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        self.t = 0
        return self.observation_space.sample(), self._make_info()

    def step(self, action):
        self.t += 1
        terminated = self.t >= self.steps_per_episode
        return self.observation_space.sample(), 0.0, terminated, False, self._make_info()

    def _make_info(self):
        mask = self.masks[min(self.t, len(self.masks) - 1)]
        if mask is None:
            return {}
        return {self.key: np.array(mask, np.int8)}


class MaskInMethod(MaskInInfo):
    """Has the method that sb3-contrib calls, beside masks in its infos."""

    def action_masks(self):
        return [True, True, False]


# --- masks in observations ------------------------------------------------------------------------


def test_vector_observation_is_beside_its_mask():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1], [0, 1, 1]))

    first_obs, _ = env.reset()
    second_obs, *_ = env.step(0)

    assert env.observation_space == Dict({"action_mask": MultiBinary(3), "obs": TWO_FEATURES})
    assert env.observation_space.contains(second_obs)
    assert first_obs["action_mask"].tolist() == [1, 0, 1]
    assert second_obs["action_mask"].tolist() == [0, 1, 1]


def test_wrapper_has_the_method_for_maskable_ppo():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1]))

    env.reset()

    assert env.action_masks().tolist() == [True, False, True]


def test_dict_observation_gains_the_mask():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1], space=Dict({"x": TWO_FEATURES})))

    obs, _ = env.reset()

    assert env.observation_space == Dict({"action_mask": MultiBinary(3), "x": TWO_FEATURES})
    assert set(obs) == {"action_mask", "x"}


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_gymnasium_accepts_the_wrapped_environment():
    taxi = "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3"  # before Gymnasium 1.3

    env = rlcatalog.wrap_env(gym.make(taxi))

    check_env(env, skip_render_check=True, skip_close_check=True)


def test_action_mask_key_names_info_and_entry():
    env = MaskInInfo([0, 0, 1], key="free")

    wrapped = rlcatalog.wrap_env(env, {"action_mask_key": "free"})

    obs, _ = wrapped.reset()
    assert obs["free"].tolist() == [0, 0, 1]


def test_action_must_be_allowed_by_info_and_method():
    env = rlcatalog.wrap_env(MaskInMethod([1, 0, 1]))

    obs, _ = env.reset()

    # The method returns [True, True, False].
    assert obs["action_mask"].tolist() == [1, 0, 0]


def test_state_of_the_wrapper_can_be_restored():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1]))
    other = rlcatalog.wrap_env(MaskInInfo([1, 0, 1]))
    env.reset()

    other.set_state(env.get_state())

    assert other.action_masks().tolist() == [True, False, True]


# --- missing masks --------------------------------------------------------------------------------


@pytest.mark.parametrize("last_mask", [None, [0, 0, 0]], ids=["missing", "forbids-everything"])
def test_mask_after_the_last_step_does_not_matter(last_mask):
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1], last_mask, steps_per_episode=1))
    env.reset()

    obs, *_ = env.step(0)

    assert obs["action_mask"].tolist() == [1, 1, 1]


def test_missing_mask_is_an_error():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1], None))
    env.reset()

    with pytest.raises(EnvironmentFaultError, match="info has no 'action_mask'"):
        env.step(0)


def test_mask_that_allows_nothing_is_an_error():
    env = rlcatalog.wrap_env(MaskInInfo([1, 0, 1], [0, 0, 0]))
    env.reset()

    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        env.step(0)


# --- environments that are not wrapped ------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(MaskInInfo(None), id="no-mask"),
        pytest.param(
            MaskInInfo([1, 0, 1], space=Dict({"action_mask": MultiBinary(3)})),
            id="mask-in-the-observation",
        ),
    ],
)
def test_environment_without_masks_to_move_is_unchanged(env):
    assert rlcatalog.wrap_env(env) is env


@pytest.mark.parametrize("options", [{"config": {"action_mask_key": None}}, {"move_masks": False}])
def test_masks_stay_on_request(options):
    env = MaskInMethod([1, 0, 1])

    assert rlcatalog.wrap_env(env, **options) is env
    assert env.resets == 0


@pytest.mark.parametrize("space", [TWO_FEATURES, Sequence(TWO_FEATURES)], ids=["box", "sequence"])
def test_environment_without_discrete_actions_is_not_reset(space):
    env = MaskInInfo([1, 0, 1])
    env.action_space = space

    assert rlcatalog.wrap_env(env) is env
    assert env.resets == 0


def test_environment_with_the_method_is_not_reset():
    env = MaskInMethod([1, 0, 1])

    # The method says that there are masks, so that no info has to be looked at.
    assert rlcatalog.wrap_env(env) is not env
    assert env.resets == 0


def test_failing_reset_is_left_to_the_caller():
    env = MaskInInfo()  # raises an IndexError, because it has no masks

    assert rlcatalog.wrap_env(env) is env
    with pytest.raises(IndexError):
        env.reset()


# --- policies -------------------------------------------------------------------------------------


def test_policy_without_mask_does_not_wrap():
    env = MaskInInfo([1, 0, 1])
    policy = rlcatalog.build(env=env)

    assert policy.wrap_env(env) is env


def test_policy_with_mask_wraps_the_environment():
    env = MaskInInfo([1, 0, 1])
    policy = rlcatalog.build(env=rlcatalog.wrap_env(env))

    assert policy.wrap_env(env).observation_space == policy.observation_space


# --- engines' wrappers ----------------------------------------------------------------------------


class WrapperOfEngine(EngineWrapper, gym.Wrapper):
    """Stands for a wrapper such as `for_sb3`."""

    right_order = "for_engine(rlcatalog.wrap_env(env))"


@pytest.mark.parametrize("env_class", [MaskInInfo, MaskInMethod])
def test_mask_around_the_wrapper_of_an_engine_is_refused(env_class):
    env = gym.wrappers.TimeLimit(WrapperOfEngine(env_class([1, 0, 1])), 10)

    with pytest.raises(ModelContractError, match=r"for_engine\(rlcatalog\.wrap_env\(env\)\)"):
        rlcatalog.wrap_env(env)


def test_wrapper_of_an_engine_stays_if_there_is_no_mask():
    env = WrapperOfEngine(MaskInInfo(None))

    assert rlcatalog.wrap_env(env) is env


def test_wrapper_of_an_engine_stays_around_moved_masks():
    env = WrapperOfEngine(rlcatalog.wrap_env(MaskInInfo([1, 0, 1])))

    assert rlcatalog.wrap_env(env) is env
