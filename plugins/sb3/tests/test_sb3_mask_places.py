"""Action masks in infos and in the method `action_masks`: what Stable-Baselines3 reads of them,
with and without `rlcatalog.wrap_env`.
"""

import gymnasium as gym
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from mask_places_env import Elsewhere
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO

import rlcatalog
from rlcatalog.errors import ModelContractError, UnusedMaskWarning
from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)

SMALL = {"fcnet_hiddens": [8]}
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}


def make_strict_env(mask_place="info"):
    """Return an environment with four actions that raises an error at a forbidden one."""
    return Elsewhere("discrete, mask of floats", mask_place)


class LenientEnv(Elsewhere):
    """Environment with four actions that accepts forbidden ones, too."""

    def __init__(self, mask_place="info"):
        super().__init__("discrete, mask of floats", mask_place)

    def step(self, action):
        self.mask[:] = 1  # the class above raises an error at a forbidden action
        return super().step(action)


class AddMask(gym.Wrapper):
    """A user's wrapper, which moves masks from the info into the observation."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Dict(
            {"obs": env.observation_space, "action_mask": gym.spaces.MultiBinary(4)}
        )

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return {"obs": obs, "action_mask": info["action_mask"]}, info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return {"obs": obs, "action_mask": info["action_mask"]}, reward, terminated, truncated, info


def train(env, algorithm=PPO, policy=CatalogPolicy, config=SMALL):
    """Train for two rollouts of 16 steps."""
    model = algorithm(
        policy,
        env,
        policy_kwargs={"model_config": config},
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        seed=0,
        device="cpu",
    )
    return model.learn(32)


# --- with wrap_env --------------------------------------------------------------------------------


@pytest.mark.parametrize("mask_place", ["info", "method"])
@pytest.mark.parametrize("flatten", [False, True])
def test_ppo_reads_masks_of_a_wrapped_environment(mask_place, flatten):
    env = rlcatalog.wrap_env(make_strict_env(mask_place))

    # A forbidden action would be an error.
    model = train(for_sb3(env, SMALL) if flatten else env)

    policy = to_policy(model)
    assert policy.observation_space == env.observation_space
    assert policy.masks.key == "action_mask"


@pytest.mark.parametrize("mask_place", ["info", "method"])
def test_maskable_ppo_reads_masks_of_a_wrapped_environment(mask_place):
    env = rlcatalog.wrap_env(make_strict_env(mask_place))

    # A forbidden action would be an error.
    model = train(env, MaskablePPO, CatalogMaskablePolicy)

    assert model.num_timesteps == 32


def test_recurrent_ppo_reads_masks_of_a_wrapped_environment():
    env = for_sb3(rlcatalog.wrap_env(make_strict_env("info")), LSTM)

    # A forbidden action would be an error.
    model = train(env, RecurrentPPO, CatalogRecurrentPolicy, LSTM)

    assert model.num_timesteps == 32


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnusedMaskWarning")
@pytest.mark.parametrize("wrap", [rlcatalog.wrap_env, AddMask])
def test_mask_added_around_flat_spaces_is_refused(wrap):
    env = for_sb3(make_strict_env("info"), SMALL)

    with pytest.raises(ModelContractError, match=r"for_sb3\(rlcatalog\.wrap_env\(env\)\)"):
        train(wrap(env))


def test_method_with_another_key_is_refused_around_flat_spaces():
    config = {**SMALL, "action_mask_key": "legal"}
    env = for_sb3(make_strict_env("method"), config)

    with pytest.raises(ModelContractError, match=r"for_sb3\(rlcatalog\.wrap_env\(env\)\)"):
        rlcatalog.wrap_env(env, config)


def test_maskable_ppo_reads_the_method_without_a_wrapper():
    # A forbidden action would be an error, and so would a warning.
    model = train(make_strict_env("method"), MaskablePPO, CatalogMaskablePolicy)

    assert model.num_timesteps == 32


# --- warnings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "policy", "config"),
    [
        pytest.param(PPO, CatalogPolicy, SMALL, id="PPO"),
        pytest.param(RecurrentPPO, CatalogRecurrentPolicy, LSTM, id="RecurrentPPO"),
    ],
)
@pytest.mark.parametrize(
    ("mask_place", "name"), [("info", r"info\['action_mask'\]"), ("method", r"action_masks\(\)")]
)
def test_unread_mask_is_warned_of_once(algorithm, policy, config, mask_place, name):
    env = LenientEnv(mask_place)

    with pytest.warns(UnusedMaskWarning, match=rf"{name}.*rlcatalog\.wrap_env\(env\)") as caught:
        train(env, algorithm, policy, config)

    assert len(caught) == 1


def test_a2c_warns_of_an_unread_mask():
    model = A2C(CatalogPolicy, LenientEnv("info"), device="cpu", n_steps=16)

    with pytest.warns(UnusedMaskWarning, match="wrap_env"):
        model.learn(16)


def test_flattened_environment_warns_at_its_first_reset_only():
    env = for_sb3(LenientEnv("info"))

    with pytest.warns(UnusedMaskWarning, match=r"info\['action_mask'\].*wrap_env"):
        env.reset()

    env.reset()  # a second warning would be an error


@pytest.mark.parametrize("mask_place", ["info", "method"])
@pytest.mark.parametrize("flatten", [False, True])
def test_action_mask_key_none_switches_masks_and_warnings_off(mask_place, flatten):
    config = {"fcnet_hiddens": [8], "action_mask_key": None}
    env = LenientEnv(mask_place)
    if flatten:
        env = for_sb3(env, config)

    train(env, config=config)  # a warning would be an error

    assert isinstance(env.observation_space, gym.spaces.Box)
