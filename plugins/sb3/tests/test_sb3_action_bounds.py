"""Box actions under Stable-Baselines3: scaling and clipping to the bounds, and the rule that a
loaded algorithm keeps.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import gymnasium as gym
from gymnasium.spaces import Box
from sb3_helpers import extractor_kwargs
from stable_baselines3 import PPO, SAC

from rlcatalog.errors import ActionRangeWarning
from rlcatalog_sb3 import (
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
LSTM = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 4}
#: One rollout of 16 steps.
SETTINGS = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu", "seed": 0}


class RecordsActions(gym.Env):
    """One number as an action, which it records; episodes of eight steps."""

    observation_space = Box(-1, 1, (3,), np.float32)

    def __init__(self, low, high):
        self.action_space = Box(low, high, (1,), np.float32)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(float(action[0]))
        return np.zeros(3, np.float32), 0.0, False, len(self.actions) % 8 == 0, {}


def train_ppo(env, config=SMALL, *, flatten=False):
    """Train PPO for 16 steps, in a flattened environment if asked to."""
    if flatten:
        return PPO(CatalogPolicy, for_sb3(env, config), **SETTINGS).learn(16)
    kwargs = {"model_config": config}
    return PPO(CatalogPolicy, env, policy_kwargs=kwargs, **SETTINGS).learn(16)


def make_recurrent_ppo(env, config=LSTM):
    kwargs = {"model_config": config}
    return RecurrentPPO(CatalogRecurrentPolicy, env, policy_kwargs=kwargs, **SETTINGS)


# --- PPO ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flatten", [False, True])
def test_ppo_scales_actions_to_the_bounds(flatten):
    env = RecordsActions(low=15, high=30)

    algorithm = train_ppo(env, flatten=flatten)

    raw = algorithm.rollout_buffer.actions.ravel()
    scaled = 22.5 + 7.5 * raw  # the middle of the bounds, and half of their distance
    np.testing.assert_allclose(env.actions, np.clip(scaled, 15, 30), rtol=1e-6)
    assert np.std(env.actions) > 2


def test_clipping_in_a_flattened_environment_warns_once():
    env = RecordsActions(low=15, high=30)  # a new policy acts around 0

    with pytest.warns(ActionRangeWarning) as caught:
        train_ppo(env, {"fcnet_hiddens": [4], "action_bounds": "clip"}, flatten=True)

    assert len(caught) == 1


# --- RecurrentPPO ---------------------------------------------------------------------------------


def test_recurrent_ppo_clips_actions_and_advises_for_sb3():
    with pytest.warns(ActionRangeWarning) as caught:
        algorithm = make_recurrent_ppo(RecordsActions(low=-2, high=2)).learn(16)

    (warning,) = caught
    assert "RecurrentPPO clips actions" in str(warning.message)
    assert "for_sb3(env, model_config)" in str(warning.message)
    assert algorithm.policy.catalog_policy.config["action_bounds"] == "clip"


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.ActionRangeWarning")  # tested above
def test_environment_of_recurrent_ppo_gets_clipped_actions():
    env = RecordsActions(low=-2, high=2)

    algorithm = make_recurrent_ppo(env).learn(16)

    raw = algorithm.rollout_buffer.actions.ravel()
    np.testing.assert_allclose(env.actions, np.clip(raw, -2, 2), rtol=1e-6)


def test_recurrent_ppo_warns_once_of_bounds_out_of_reach():
    env = RecordsActions(low=15, high=30)

    # The kernel's own warning would advise scaling, which RecurrentPPO does not do.
    with pytest.warns(ActionRangeWarning) as caught:
        make_recurrent_ppo(env).learn(16)

    assert len(caught) == 1


@pytest.mark.parametrize(
    ("low", "high", "config"),
    [
        pytest.param(-1, 1, {}, id="scaling changes nothing"),
        pytest.param(-2, 2, {"action_bounds": "clip"}, id="clipping is set"),
        pytest.param(15, 30, {"custom_action_dist": "squashed_gaussian"}, id="squashed"),
    ],
)
def test_recurrent_ppo_does_not_warn_without_a_need(low, high, config):
    # Any warning fails a test.
    make_recurrent_ppo(RecordsActions(low, high), {**LSTM, **config})


def test_recurrent_ppo_scales_actions_in_a_flattened_environment():
    env = RecordsActions(low=15, high=30)
    flat_env = for_sb3(env, {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 4})

    algorithm = RecurrentPPO(CatalogRecurrentPolicy, flat_env, **SETTINGS).learn(16)

    raw = algorithm.rollout_buffer.actions.ravel()
    scaled = 22.5 + 7.5 * raw  # the middle of the bounds, and half of their distance
    np.testing.assert_allclose(env.actions, np.clip(scaled, 15, 30), rtol=1e-6)


# --- SAC ------------------------------------------------------------------------------------------


def train_sac(env):
    """Train SAC for 64 steps of random actions, which Stable-Baselines3 scales itself."""
    return SAC(
        "MlpPolicy",
        env,
        policy_kwargs=extractor_kwargs(SMALL),
        learning_starts=64,
        buffer_size=64,
        device="cpu",
        seed=0,
    ).learn(64)


@pytest.mark.parametrize("flatten", [False, True])
def test_sac_scales_actions_once(flatten):
    env = RecordsActions(low=15, high=30)

    algorithm = train_sac(for_sb3(env, SMALL) if flatten else env)

    stored = algorithm.replay_buffer.actions[:, 0, 0]  # in [-1, 1]
    np.testing.assert_allclose(env.actions, 22.5 + 7.5 * stored, rtol=1e-5)
    assert min(env.actions) < 16
    assert max(env.actions) > 29


def test_exported_policy_of_sac_scales_actions_once():
    algorithm = train_sac(for_sb3(RecordsActions(low=15, high=30), SMALL))
    obs = np.zeros((1, 3), np.float32)

    step = to_policy(algorithm).act(obs, explore=False)

    predicted, _ = algorithm.predict(obs, deterministic=True)  # in [-1, 1]
    np.testing.assert_allclose(step.action, 22.5 + 7.5 * predicted, rtol=1e-5)


# --- loaded algorithms ----------------------------------------------------------------------------


def predict(algorithm):
    actions, _ = algorithm.predict(np.ones((4, 3), np.float32), deterministic=True)
    return actions


@pytest.fixture
def earlier_file(tmp_path):
    """A file of PPO as an earlier version saved it, when all actions were clipped; and the actions
    that it should predict.
    """
    env = RecordsActions(low=-2, high=2)
    algorithm = train_ppo(env, {"fcnet_hiddens": [4], "action_bounds": "clip"})
    expected = predict(algorithm)
    # Earlier versions had neither this attribute nor this key.
    del algorithm.rlcatalog_rules
    algorithm.policy_kwargs["model_config"].pop("action_bounds", None)
    algorithm.save(tmp_path / "earlier.zip")
    return tmp_path / "earlier.zip", expected


def test_algorithm_of_an_earlier_version_clips(earlier_file):
    path, expected = earlier_file

    loaded = PPO.load(path, device="cpu")

    np.testing.assert_array_equal(predict(loaded), expected)


def test_algorithm_of_an_earlier_version_clips_after_saving(earlier_file, tmp_path):
    path, expected = earlier_file
    PPO.load(path, device="cpu").save(tmp_path / "again.zip")

    loaded = PPO.load(tmp_path / "again.zip")

    np.testing.assert_array_equal(predict(loaded), expected)


def test_loaded_algorithm_scales_as_before(tmp_path):
    algorithm = train_ppo(RecordsActions(low=-2, high=2))
    algorithm.save(tmp_path / "algorithm.zip")

    loaded = PPO.load(tmp_path / "algorithm.zip", device="cpu")

    assert loaded.rlcatalog_rules["action_bounds"] == "affine"
    np.testing.assert_array_equal(predict(loaded), predict(algorithm))


@pytest.mark.parametrize("lr_schedule", [EARLIER_LEARNING_RATE, no_learning])
def test_policy_of_an_earlier_version_clips(tmp_path, monkeypatch, lr_schedule):
    config = {"fcnet_hiddens": [4], "action_bounds": "clip"}
    policy = train_ppo(RecordsActions(low=-2, high=2), config).policy
    # What earlier versions saved: no rules, no action_bounds, and one of these learning rates.
    arguments = policy.constructor_arguments()
    del arguments["rules"]
    del arguments["model_config"]["action_bounds"]
    arguments["lr_schedule"] = lr_schedule
    monkeypatch.setattr(policy, "constructor_arguments", lambda: arguments)
    policy.save(tmp_path / "policy.pt")

    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")

    assert loaded.catalog_policy.config["action_bounds"] == "clip"


def test_loaded_policy_scales_as_before(tmp_path):
    policy = train_ppo(RecordsActions(low=-2, high=2)).policy
    policy.save(tmp_path / "policy.pt")

    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")

    assert loaded.catalog_policy.config["action_bounds"] == "affine"


def test_policy_follows_the_bounds_of_its_flattened_environment():
    env = for_sb3(RecordsActions(low=-2, high=2), {"fcnet_hiddens": [4], "action_bounds": "clip"})
    kwargs = {"model_config": {"fcnet_hiddens": [4]}}

    algorithm = PPO(CatalogPolicy, env, policy_kwargs=kwargs, **SETTINGS)

    assert algorithm.policy.catalog_policy.config["action_bounds"] == "clip"
