"""Bounds of Box actions under Stable-Baselines3: what is scaled, what is clipped, and what a loaded
algorithm does.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import gymnasium as gym
from gymnasium.spaces import Box
from stable_baselines3 import PPO, SAC

from rlcatalog.errors import ActionRangeWarning
from rlcatalog_sb3 import (
    CatalogExtractor,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_sb3.policies import no_learning
from rlcatalog_sb3.private_api import EARLIER_LEARNING_RATE

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SMALL = {"fcnet_hiddens": [4]}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 4}
SIZES = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu", "seed": 0}


class Heating(gym.Env):
    """Environment that records its actions."""

    observation_space = Box(-1, 1, (3,), np.float32)

    def __init__(self, low=15, high=30):
        self.action_space = Box(low, high, (1,), np.float32)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(float(action[0]))
        return np.zeros(3, np.float32), 0.0, False, len(self.actions) % 8 == 0, {}


def train(env, algorithm=PPO, policy=CatalogPolicy, model=SMALL, wrapped=False):
    """Train one rollout, and return the algorithm."""
    kwargs = {} if wrapped else {"policy_kwargs": {"model_config": model}}
    return algorithm(policy, for_sb3(env, model) if wrapped else env, **SIZES, **kwargs).learn(16)


@pytest.mark.parametrize("wrapped", [False, True])
def test_ppo_scales_actions_to_the_bounds(wrapped):
    env = Heating()
    algorithm = train(env, wrapped=wrapped)
    raw = algorithm.rollout_buffer.actions.ravel()
    # The middle of [15, 30] is 22.5.
    np.testing.assert_allclose(env.actions, np.clip(22.5 + 7.5 * raw, 15, 30), rtol=1e-6)
    assert np.std(env.actions) > 2


def test_policy_in_a_wrapped_environment_warns_once():
    with pytest.warns(ActionRangeWarning) as caught:
        train(Heating(), model={**SMALL, "action_bounds": "clip"}, wrapped=True)
    assert len(caught) == 1


def test_recurrent_ppo_clips_and_names_for_sb3():
    env = Heating(-2, 2)
    with pytest.warns(ActionRangeWarning) as caught:
        algorithm = train(env, RecurrentPPO, CatalogRecurrentPolicy, LSTM)
    (warning,) = caught
    assert "RecurrentPPO clips actions" in str(warning.message)
    assert "for_sb3(env, model_config)" in str(warning.message)
    assert algorithm.policy.catalog_policy.config["action_bounds"] == "clip"
    raw = algorithm.rollout_buffer.actions.ravel()
    np.testing.assert_allclose(env.actions, np.clip(raw, -2, 2), rtol=1e-6)


def test_recurrent_ppo_warns_once_for_a_box_out_of_reach():
    with pytest.warns(ActionRangeWarning) as caught:
        train(Heating(), RecurrentPPO, CatalogRecurrentPolicy, LSTM)
    assert len(caught) == 1  # not also the kernel's, which advises to scale


@pytest.mark.parametrize(
    ("low", "high", "config"),
    [
        (-1, 1, {}),  # both rules agree
        (-2, 2, {"action_bounds": "clip"}),
        (15, 30, {"custom_action_dist": "squashed_gaussian"}),
    ],
)
def test_recurrent_ppo_is_silent_where_rules_agree(low, high, config):
    RecurrentPPO(
        CatalogRecurrentPolicy,
        Heating(low, high),
        policy_kwargs={"model_config": {**LSTM, **config}},
        **SIZES,
    )


def test_recurrent_ppo_scales_in_a_wrapped_environment():
    env = Heating()
    algorithm = train(env, RecurrentPPO, CatalogRecurrentPolicy, LSTM, wrapped=True)
    raw = algorithm.rollout_buffer.actions.ravel()
    np.testing.assert_allclose(env.actions, np.clip(22.5 + 7.5 * raw, 15, 30), rtol=1e-6)


@pytest.mark.parametrize("wrapped", [False, True])
def test_sac_covers_the_bounds_once(wrapped):
    """SAC's actor ends with tanh: 0 is the middle of the bounds, and it is not scaled twice."""
    env = Heating()
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": SMALL},
    }
    algorithm = SAC(
        "MlpPolicy",
        for_sb3(env, SMALL) if wrapped else env,
        policy_kwargs=kwargs,
        learning_starts=64,
        buffer_size=64,
        device="cpu",
        seed=0,
    ).learn(64)
    # The replay buffer holds actions in [-1, 1].
    stored = algorithm.replay_buffer.actions[:, 0, 0]
    np.testing.assert_allclose(env.actions, 22.5 + 7.5 * stored, rtol=1e-5)
    assert min(env.actions) < 16
    assert max(env.actions) > 29
    obs = np.zeros((1, 3), np.float32)
    own, _ = algorithm.predict(obs, deterministic=True)
    if wrapped:
        own = 22.5 + 7.5 * own
        np.testing.assert_allclose(
            to_policy(algorithm).act(obs, explore=False).action, own, rtol=1e-5
        )


# --- loaded algorithms ----------------------------------------------------------------------------


def forget_rules(algorithm):
    """Make an algorithm that of an earlier version, which stored no rules."""
    del algorithm.rlcatalog_rules
    algorithm.policy_kwargs["model_config"].pop("action_bounds", None)


def predict(algorithm):
    return algorithm.predict(np.ones((4, 3), np.float32), deterministic=True)[0]


def test_algorithm_of_an_earlier_version_clips(tmp_path):
    clipped = train(Heating(-2, 2), model={**SMALL, "action_bounds": "clip"})
    expected = predict(clipped)
    forget_rules(clipped)
    clipped.save(tmp_path / "old.zip")
    loaded = PPO.load(tmp_path / "old.zip", device="cpu")
    np.testing.assert_array_equal(predict(loaded), expected)
    # Saved again, it still does.
    loaded.save(tmp_path / "again.zip")
    np.testing.assert_array_equal(predict(PPO.load(tmp_path / "again.zip")), expected)


def test_algorithm_keeps_its_rules(tmp_path):
    algorithm = train(Heating(-2, 2))
    algorithm.save(tmp_path / "new.zip")
    loaded = PPO.load(tmp_path / "new.zip", device="cpu")
    assert loaded.rlcatalog_rules["action_bounds"] == "affine"
    np.testing.assert_array_equal(predict(loaded), predict(algorithm))


@pytest.mark.parametrize("learning_rate", [EARLIER_LEARNING_RATE, no_learning])
def test_policy_of_an_earlier_version_clips(tmp_path, monkeypatch, learning_rate):
    config = {**SMALL, "action_bounds": "clip"}
    policy = train(Heating(-2, 2), model=config).policy
    arguments = policy.constructor_arguments()
    arguments["lr_schedule"] = learning_rate
    del arguments["rules"]
    del arguments["model_config"]["action_bounds"]
    monkeypatch.setattr(policy, "constructor_arguments", lambda: arguments)
    policy.save(tmp_path / "policy.pt")
    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")
    assert loaded.catalog_policy.config["action_bounds"] == "clip"


def test_policy_keeps_its_rules(tmp_path):
    policy = train(Heating(-2, 2)).policy
    policy.save(tmp_path / "policy.pt")
    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")
    assert loaded.catalog_policy.config["action_bounds"] == "affine"


def test_policy_follows_the_rules_of_its_environment():
    env = for_sb3(Heating(-2, 2), {**SMALL, "action_bounds": "clip"})
    # The policy's own config leaves the rule open.
    algorithm = PPO(CatalogPolicy, env, policy_kwargs={"model_config": SMALL}, **SIZES)
    assert algorithm.policy.catalog_policy.config["action_bounds"] == "clip"
