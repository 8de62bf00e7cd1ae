"""`PPOConfig` as scripts of RLlib's write it, and what `Algorithm` and the policy
answer to beside.
"""

import copy
import inspect
import warnings

import gymnasium as gym
import numpy as np
import pytest

from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    NotServedError,
    SavedPolicyError,
    UnknownConfigKeyError,
)
from rlcatalog_compat.rllib.agents.a3c import A2CTrainer
from rlcatalog_compat.rllib.algorithms.algorithm import Algorithm
from rlcatalog_compat.rllib.algorithms.ppo import PPO, PPOConfig

SMALL = {
    "num_envs": 2,
    "train_batch_size": 16,
    "minibatch_size": 8,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [4]},
}


def small(**keys):
    return PPOConfig().environment("CartPole-v1").framework("torch").training(**SMALL, **keys)


def test_attributes_take_effect():
    config = small()
    config.lr, config.gamma, config.model, config.num_sgd_iter = 0.5, 0.1, {"fcnet_hiddens": [7]}, 3
    config.model["fcnet_activation"] = "relu"
    config["lambda_"] = 0.8
    with pytest.warns(DeprecationWarning, match="'num_sgd_iter' is now called 'num_epochs'"):
        algo = config.build()
    assert (algo.config.lr, algo.config.gamma, algo.config.num_epochs, algo.config.lambda_) == (
        0.5,
        0.1,
        3,
        0.8,
    )
    assert algo.config.model == {"fcnet_hiddens": [7], "fcnet_activation": "relu"}
    assert next(algo.get_policy().model.parameters()).shape == (7, 4)
    algo.stop()
    misspelt = small()
    misspelt.learning_rate = 1
    with pytest.raises(UnknownConfigKeyError, match="learning_rate"):
        misspelt.build()


def test_attributes_show_what_was_set_or_is_the_default():
    config = PPOConfig().training(lr=0.5)
    assert (config.lr, config["lr"], config.get("lr")) == (0.5, 0.5, 0.5)
    assert (config.gamma, config.lambda_, config["lambda"], config.num_sgd_iter) == (
        0.99,
        0.95,
        0.95,
        10,
    )
    assert "gamma" not in config.to_dict()
    assert config.get("num_workers", 3) == 3
    with pytest.raises(AttributeError, match="'num_workers' was not set"):
        config.num_workers
    with pytest.raises(KeyError, match="num_workers"):
        config["num_workers"]


@pytest.mark.parametrize("copied", [PPOConfig.copy, copy.deepcopy])
def test_copies_are_apart(copied):
    config = small()
    other = copied(config)
    other.training(lr=0.5, model={"fcnet_hiddens": [7]})
    assert other.to_dict()["model"] == {"fcnet_hiddens": [7]}
    assert config.to_dict()["model"] == SMALL["model"]
    assert "lr" not in config


def test_updates_are_added_to_the_model():
    config = small().update_from_dict({"lr": 0.5, "model": {"fcnet_activation": "relu"}})
    assert config.model == {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert config.lr == 0.5


def test_arguments_stand_where_rllib_has_them():
    theirs = pytest.importorskip("ray.rllib.algorithms.ppo").PPOConfig
    for name in (
        "api_stack",
        "callbacks",
        "checkpointing",
        "debugging",
        "environment",
        "framework",
        "training",
        "env_runners",
        "resources",
        "multi_agent",
        "reporting",
        "evaluation",
        "copy",
    ):
        parameters = list(inspect.signature(getattr(theirs, name)).parameters.values())[1:]
        places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        getattr(PPOConfig(), name)(*[None] * len(places))
        if name in ("api_stack", "callbacks", "checkpointing"):
            found = getattr(PPOConfig(), name)(*[f"value of {place}" for place in places]).to_dict()
            assert found | {place: f"value of {place}" for place in places} == found
    with pytest.raises(TypeError, match="at most 1 positional arguments"):
        PPOConfig().callbacks(int, 3)


@pytest.mark.parametrize(
    "key",
    [
        "_enable_new_api_stack",
        "callbacks_class",
        "num_learners",
        "metrics_num_episodes_for_smoothing",
        "log_sys_usage",
        "enable_env_runner_and_connector_v2",
        "restart_failed_env_runners",
        "count_steps_by",
    ],
)
def test_keys_of_ray_are_named_in_a_warning(key):
    with pytest.warns(CatalogWarning, match=f"no effect: {key}"):
        PPO(env="CartPole-v1", config={**SMALL, key: None}).stop()


def test_callbacks_are_given_as_in_rllib():
    with pytest.warns(CatalogWarning, match="no effect: callbacks_class"):
        small().callbacks(dict).build().stop()


class Paid(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 5.0, True, False, {}


def test_rewards_are_clipped_for_learning_alone():
    algo = PPO(env=lambda: Paid(), config={**SMALL, "clip_rewards": 2.0})
    assert algo.config.reward_clip == 2.0
    assert algo.train()["episode_return_mean"] == 5.0
    algo.stop()
    for off in (None, False):
        assert PPO(env=Paid, config={**SMALL, "clip_rewards": off}).config.reward_clip is None
    with pytest.raises(NotServedError, match=r"with their signs.* use clip_rewards=1.0"):
        PPO(env=Paid, config={**SMALL, "clip_rewards": True})


def test_other_keys_are_turned_into_ours():
    algo = PPO(
        env=Paid,
        config={**SMALL, "remote_worker_envs": True, "use_kl_loss": False, "kl_coeff": 0.3},
    )
    assert (algo.config.vector, algo.config.kl_coeff) == ("async", 0.0)
    algo.stop()
    algo = PPO(
        env=Paid,
        config={**SMALL, "remote_worker_envs": False, "use_kl_loss": True, "kl_coeff": 0.3},
    )
    assert (algo.config.vector, algo.config.kl_coeff) == ("sync", 0.3)
    PPO(env=Paid, config={**SMALL, "observation_space": None, "action_space": None})
    with pytest.raises(NotServedError, match=r"observation_space=.*wrap the environment"):
        PPO(env=Paid, config={**SMALL, "observation_space": Paid.observation_space})


def test_the_policy_gives_the_state_to_begin_with():
    memory = {
        **SMALL,
        "explore": False,
        "model": {"use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 4},
    }
    algo = PPO(env=Paid, config=memory)
    policy, obs = algo.get_policy(), np.ones(2, np.float32)
    assert [part.tolist() for part in policy.get_initial_state()] == [[0, 0, 0], [0, 0, 0]]
    _action, state, extra = algo.compute_single_action(obs, policy.get_initial_state())
    own = algo.policy.act([obs], explore=False)
    assert extra["action_dist_inputs"] == pytest.approx(own.dist_inputs[0])
    again = policy.compute_single_action(obs, state, explore=False)
    assert again[2]["vf_preds"] == pytest.approx(
        algo.policy.act([obs], own.state, explore=False).value[0]
    )
    assert repr(policy) == repr(algo.policy)
    assert copy.copy(policy).model is algo.policy.model
    assert PPO(env=Paid, config=SMALL).get_policy().get_initial_state() == []


def test_algorithm_finds_out_what_was_saved(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CatalogWarning)
        for cls, keys in (
            (PPO, SMALL),
            (A2CTrainer, {"num_envs": 2, "model": {"fcnet_hiddens": [4]}}),
        ):
            algo = cls(env="CartPole-v1", config=keys)
            folder = algo.save(tmp_path / cls.__name__)
            found = Algorithm.from_checkpoint(folder)
            assert type(found) is cls
            for name, array in found.policy.model.get_weights().items():
                np.testing.assert_array_equal(array, algo.policy.model.get_weights()[name])
            assert isinstance(algo, Algorithm)
    with pytest.raises(SavedPolicyError, match="A2C wrote this checkpoint; PPO cannot resume it"):
        PPO.from_checkpoint(folder)
    with pytest.raises(ConfigError, match="Use one of its subclasses: PPO, A2C"):
        Algorithm(config={}, env="CartPole-v1")
