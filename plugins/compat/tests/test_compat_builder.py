"""`PPOConfig` as RLlib's scripts use it, and methods of `Algorithm` and its policy."""

import copy
import inspect

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

SHORT_RUN = {
    "num_envs": 2,
    "train_batch_size": 16,
    "minibatch_size": 8,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [4]},
}


def make_config(**keys):
    """Return a config with a small network and one short update, and these keys."""
    return PPOConfig().environment("CartPole-v1").framework("torch").training(**SHORT_RUN, **keys)


# --- attributes -----------------------------------------------------------------------------------


def test_attributes_and_items_of_a_config_take_effect():
    config = make_config()
    config.lr = 0.5
    config.gamma = 0.1
    config["lambda_"] = 0.8

    algo = config.build()

    assert algo.config.lr == 0.5
    assert algo.config.gamma == 0.1
    assert algo.config.lambda_ == 0.8
    algo.stop()


def test_model_of_a_config_can_be_set_and_changed():
    config = make_config()
    config.model = {"fcnet_hiddens": [7]}
    config.model["fcnet_activation"] = "relu"

    algo = config.build()

    first_weight = next(algo.get_policy().model.parameters())
    assert algo.config.model == {"fcnet_hiddens": [7], "fcnet_activation": "relu"}
    assert first_weight.shape == (7, 4)  # CartPole has four numbers
    algo.stop()


def test_older_name_of_an_attribute_takes_effect_with_a_warning():
    config = make_config()
    config.num_sgd_iter = 3

    with pytest.warns(DeprecationWarning, match="is now called 'num_epochs'"):
        algo = config.build()

    assert algo.config.num_epochs == 3
    algo.stop()


def test_misspelt_attribute_is_an_error():
    config = make_config()
    config.learning_rate = 1

    with pytest.raises(UnknownConfigKeyError, match="learning_rate"):
        config.build()


def test_attribute_returns_the_value_that_was_set():
    config = PPOConfig().training(lr=0.5)

    assert config.lr == 0.5
    assert config["lr"] == 0.5
    assert config.get("lr") == 0.5


def test_attribute_that_was_not_set_returns_the_default():
    config = PPOConfig()

    assert config.gamma == 0.99
    assert config.lambda_ == 0.95
    assert config["lambda"] == 0.95
    assert config.num_sgd_iter == 10
    assert "gamma" not in config.to_dict()


def test_attribute_without_a_default_is_an_error():
    config = PPOConfig()

    assert config.get("num_workers", 3) == 3
    with pytest.raises(AttributeError, match="'num_workers' was not set"):
        config.num_workers
    with pytest.raises(KeyError, match="num_workers"):
        config["num_workers"]


@pytest.mark.parametrize("copy_config", [PPOConfig.copy, copy.deepcopy])
def test_copy_of_a_config_is_independent(copy_config):
    config = make_config()

    other = copy_config(config)
    other.training(lr=0.5, model={"fcnet_hiddens": [7]})

    assert other.to_dict()["model"] == {"fcnet_hiddens": [7]}
    assert config.to_dict()["model"] == {"fcnet_hiddens": [4]}
    assert "lr" not in config


def test_update_from_dict_adds_to_the_model():
    config = make_config().update_from_dict({"lr": 0.5, "model": {"fcnet_activation": "relu"}})

    assert config.model == {"fcnet_hiddens": [4], "fcnet_activation": "relu"}
    assert config.lr == 0.5


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
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
    ],
)
def test_method_takes_the_positional_arguments_of_rllib(method):
    names = list_positional_arguments(method)

    # More arguments than it has would be an error.
    getattr(PPOConfig(), method)(*[None for _ in names])


@pytest.mark.parametrize("method", ["api_stack", "callbacks", "checkpointing"])
def test_positional_arguments_set_the_keys_of_rllib(method):
    names = list_positional_arguments(method)
    values = [f"value of {name}" for name in names]

    config = getattr(PPOConfig(), method)(*values).to_dict()

    for name, value in zip(names, values, strict=True):
        assert config[name] == value


def list_positional_arguments(method):
    """Return the names of positional arguments of RLlib's method."""
    rllib_config = pytest.importorskip("ray.rllib.algorithms.ppo").PPOConfig
    _self, *parameters = inspect.signature(getattr(rllib_config, method)).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_method_rejects_more_positional_arguments():
    with pytest.raises(TypeError, match="at most 1 positional arguments"):
        PPOConfig().callbacks(int, 3)


@pytest.mark.parametrize("key", ["_enable_new_api_stack", "num_learners", "count_steps_by"])
def test_key_of_ray_without_effect_is_warned_of(key):
    with pytest.warns(CatalogWarning, match=f"no effect: {key}"):
        PPO(env="CartPole-v1", config={**SHORT_RUN, key: None}).stop()


def test_callbacks_are_warned_of():
    with pytest.warns(CatalogWarning, match="no effect: callbacks_class"):
        make_config().callbacks(dict).build().stop()


# --- keys with other names ------------------------------------------------------------------------


class RewardOfFive(gym.Env):
    """Episodes of one step with a reward of 5."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 5.0, True, False, {}


def test_clip_rewards_clips_for_learning_only():
    algo = PPO(env=lambda: RewardOfFive(), config={**SHORT_RUN, "clip_rewards": 2.0})

    result = algo.train()

    assert algo.config.reward_clip == 2.0
    assert result["episode_return_mean"] == 5.0
    algo.stop()


@pytest.mark.parametrize("value", [None, False])
def test_clip_rewards_may_be_off(value):
    algo = PPO(env=RewardOfFive, config={**SHORT_RUN, "clip_rewards": value})

    assert algo.config.reward_clip is None


def test_clip_rewards_by_sign_is_not_supported():
    with pytest.raises(NotServedError, match=r"with their signs.* use clip_rewards=1.0"):
        PPO(env=RewardOfFive, config={**SHORT_RUN, "clip_rewards": True})


@pytest.mark.parametrize(("value", "vector"), [(True, "async"), (False, "sync")])
def test_remote_worker_envs_chooses_the_vector_environment(value, vector):
    algo = PPO(env=RewardOfFive, config={**SHORT_RUN, "remote_worker_envs": value})

    assert algo.config.vector == vector
    algo.stop()


@pytest.mark.parametrize(("value", "kl_coeff"), [(True, 0.3), (False, 0.0)])
def test_use_kl_loss_switches_the_kl_penalty(value, kl_coeff):
    algo = PPO(env=RewardOfFive, config={**SHORT_RUN, "use_kl_loss": value, "kl_coeff": 0.3})

    assert algo.config.kl_coeff == kl_coeff
    algo.stop()


def test_spaces_of_none_are_accepted():
    PPO(env=RewardOfFive, config={**SHORT_RUN, "observation_space": None, "action_space": None})


def test_observation_space_of_a_config_is_not_supported():
    config = {**SHORT_RUN, "observation_space": RewardOfFive.observation_space}

    with pytest.raises(NotServedError, match=r"observation_space=.*wrap the environment"):
        PPO(env=RewardOfFive, config=config)


# --- the policy of an algorithm -------------------------------------------------------------------


@pytest.fixture
def lstm_algo():
    model = {"use_lstm": True, "lstm_cell_size": 3, "max_seq_len": 4}
    return PPO(env=RewardOfFive, config={**SHORT_RUN, "explore": False, "model": model})


def test_initial_state_of_an_lstm_is_zeros(lstm_algo):
    h, c = lstm_algo.get_policy().get_initial_state()

    assert h.tolist() == [0, 0, 0]
    assert c.tolist() == [0, 0, 0]


def test_initial_state_without_memory_is_empty():
    algo = PPO(env=RewardOfFive, config=SHORT_RUN)

    assert algo.get_policy().get_initial_state() == []


def test_compute_single_action_acts_like_the_policy(lstm_algo):
    policy = lstm_algo.get_policy()
    obs = np.ones(2, np.float32)

    initial_state = policy.get_initial_state()
    _, state, first_outputs = lstm_algo.compute_single_action(obs, initial_state)
    _, _, second_outputs = policy.compute_single_action(obs, state, explore=False)

    first_step = lstm_algo.policy.act([obs], explore=False)
    second_step = lstm_algo.policy.act([obs], first_step.state, explore=False)
    assert first_outputs["action_dist_inputs"] == pytest.approx(first_step.dist_inputs[0])
    assert second_outputs["vf_preds"] == pytest.approx(second_step.value[0])


def test_policy_of_an_algorithm_passes_attributes_on(lstm_algo):
    policy = lstm_algo.get_policy()

    assert repr(policy) == repr(lstm_algo.policy)
    assert copy.copy(policy).model is lstm_algo.policy.model


# --- checkpoints ----------------------------------------------------------------------------------

A2C_RUN = {"num_envs": 2, "model": {"fcnet_hiddens": [4]}}
ignore_keys_without_effect = pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")


@ignore_keys_without_effect
@pytest.mark.parametrize(
    ("cls", "config"),
    [pytest.param(PPO, SHORT_RUN, id="ppo"), pytest.param(A2CTrainer, A2C_RUN, id="a2c")],
)
def test_algorithm_loads_the_checkpoint_of_any_class(tmp_path, cls, config):
    algo = cls(env="CartPole-v1", config=config)
    folder = algo.save(tmp_path / "saved")

    loaded = Algorithm.from_checkpoint(folder)

    assert isinstance(algo, Algorithm)
    assert type(loaded) is cls
    for name, array in loaded.policy.model.get_weights().items():
        np.testing.assert_array_equal(array, algo.policy.model.get_weights()[name])


@ignore_keys_without_effect
def test_ppo_rejects_a_checkpoint_of_a2c(tmp_path):
    folder = A2CTrainer(env="CartPole-v1", config=A2C_RUN).save(tmp_path / "saved")

    with pytest.raises(SavedPolicyError, match="PPO cannot resume it") as caught:
        PPO.from_checkpoint(folder)

    assert "A2C wrote this checkpoint; PPO" in str(caught.value)


def test_algorithm_itself_cannot_be_built():
    with pytest.raises(ConfigError, match="Use one of its subclasses: PPO, A2C"):
        Algorithm(config={}, env="CartPole-v1")
