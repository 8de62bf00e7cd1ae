"""Masks outside the observation: Stable-Baselines3 is warned of, and `wrap_env` moves them."""

import gymnasium as gym
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from mask_places_env import Elsewhere
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO

import rlcatalog
from rlcatalog.errors import UnusedMaskWarning
from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)

#: The name of a Discrete(4), which Stable-Baselines3 accepts without `for_sb3`.
FOUR = "discrete, mask of floats"
QUICK = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}
SMALL = {"fcnet_hiddens": [8]}
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}


class Lenient(Elsewhere):
    """Accepts forbidden actions."""

    def step(self, action):
        self.mask[:] = 1
        return super().step(action)


def train(env, algorithm=PPO, policy=CatalogPolicy, config=SMALL, **settings):
    model = algorithm(policy, env, policy_kwargs={"model_config": config}, **{**QUICK, **settings})
    return model.learn(32)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("place", ["info", "method"])
def test_wrapped_environments_get_no_forbidden_action(place, flat):
    """The environment raises at a forbidden action."""
    env = rlcatalog.wrap_env(Elsewhere(FOUR, place))
    config = {**SMALL}
    model = train(for_sb3(env, config) if flat else env, config=config)
    policy = to_policy(model)
    assert policy.observation_space == env.observation_space
    assert policy.masks.key == "action_mask"


@pytest.mark.parametrize("place", ["info", "method"])
def test_maskable_ppo_reads_a_wrapped_environment(place):
    train(rlcatalog.wrap_env(Elsewhere(FOUR, place)), MaskablePPO, CatalogMaskablePolicy)


def test_recurrent_ppo_reads_a_wrapped_environment():
    env = for_sb3(rlcatalog.wrap_env(Elsewhere(FOUR)), LSTM)
    train(env, RecurrentPPO, CatalogRecurrentPolicy, LSTM)


IGNORED = {
    "PPO, info": (PPO, CatalogPolicy, SMALL, "info", r"info\['action_mask'\]"),
    "PPO, method": (PPO, CatalogPolicy, SMALL, "method", r"action_masks\(\)"),
    "RecurrentPPO, info": (RecurrentPPO, CatalogRecurrentPolicy, LSTM, "info", r"info\["),
    "RecurrentPPO, method": (RecurrentPPO, CatalogRecurrentPolicy, LSTM, "method", r"action_masks"),
}


@pytest.mark.parametrize("what", IGNORED)
def test_mask_that_is_not_read_is_warned_of_once(what):
    algorithm, policy, config, place, named = IGNORED[what]
    with pytest.warns(UnusedMaskWarning, match=rf"{named}.*rlcatalog\.wrap_env\(env\)") as caught:
        train(Lenient(FOUR, place), algorithm, policy, config)
    assert len(caught) == 1


def test_flat_environment_warns_at_its_first_reset():
    env = for_sb3(Lenient(FOUR))
    with pytest.warns(UnusedMaskWarning, match=r"info\['action_mask'\].*wrap_env"):
        env.reset()
    env.reset()  # without another warning


def test_a2c_warns_too():
    with pytest.warns(UnusedMaskWarning, match="wrap_env"):
        A2C(CatalogPolicy, Lenient(FOUR), device="cpu", n_steps=16).learn(16)


def test_maskable_ppo_calls_the_method_without_a_warning():
    train(Elsewhere(FOUR, "method"), MaskablePPO, CatalogMaskablePolicy)


@pytest.mark.parametrize("place", ["info", "method"])
@pytest.mark.parametrize("flat", [False, True])
def test_no_key_means_no_mask_and_no_warning(place, flat):
    config = {**SMALL, "action_mask_key": None}
    env = Lenient(FOUR, place)
    env = for_sb3(env, config) if flat else env
    assert isinstance(env.observation_space, gym.spaces.Box)
    train(env, config=config)
