"""PPO: its losses against their formulas, its interface, its config, and learning."""

import inspect
import json

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import (
    CatalogWarning,
    ConfigError,
    UnknownConfigKeyError,
    UnknownNameError,
)
from rlcatalog_ppo import PPO, PPOTrainer
from rlcatalog_ppo.config import ELSEWHERE, A2CConfig, PGConfig, PPOConfig, parse
from rlcatalog_runs.evaluation import play

#: An iteration is 32 steps: 16 in each of 2 environments.
SMALL = {"num_envs": 2, "rollout_length": 16, "minibatch_size": 16, "num_epochs": 2, "seed": 0}


class StepCounter(gym.Env):
    """Observes the number of the step; pays 1 a step; truncates after `config["limit"]` steps."""

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(2, start=3)

    def __init__(self, config=None):
        self.limit = (config or {}).get("limit", 5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.t], np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return np.array([self.t], np.float32), 1.0, False, self.t == self.limit, {}


# --- losses ---------------------------------------------------------------------------------------


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_train_changes_every_weight(framework):
    algo = PPO(env=StepCounter, config={**SMALL, "framework": framework})
    before = algo.policy.model.get_weights()

    algo.train()

    for name, array in algo.policy.model.get_weights().items():
        assert np.any(array != before[name]), name


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_train_reports_steps_returns_and_losses(framework):
    config = {
        "framework": framework,
        "num_envs": 2,
        "rollout_length": 16,
        "minibatch_size": 16,
        "env_config": {"limit": 8},  # episodes of 8 steps, each of which pays 1
    }
    algo = PPO(env=StepCounter, config=config)

    result = algo.train()

    assert result["training_iteration"] == 1
    assert result["timesteps_total"] == 2 * 16
    assert result["episode_return_mean"] == 8.0
    assert result["episode_reward_mean"] == 8.0  # RLlib's name of the same
    learner = result["info"]["learner"]
    assert {"policy_loss", "vf_loss", "entropy", "kl", "model"} <= learner.keys()
    json.dumps(result)  # raises an error for arrays and tensors


def test_evaluation_counts_long_and_short_episodes_alike():
    """The first episodes to end would all be short ones."""
    limits = iter([2, 20] * 10)

    def make_env():
        return StepCounter({"limit": next(limits)})

    returns = play(rlcatalog.build(env=StepCounter()), make_env, 20)

    assert sorted(returns) == [2.0] * 10 + [20.0] * 10


def test_continuous_actions_and_dict_observations_train():
    class RandomEnv(gym.Env):
        observation_space = gym.spaces.Dict(
            {"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2, 2))}
        )
        action_space = gym.spaces.Box(-1, 1, (2,))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action):
            assert self.action_space.contains(action)
            truncated = bool(self.np_random.random() < 0.2)
            return self.observation_space.sample(), 0.0, False, truncated, {}

    result = PPO(RandomEnv, SMALL).train()

    assert np.isfinite(result["info"]["learner"]["policy_loss"])


def test_minibatch_larger_than_rollout_becomes_rollout(monkeypatch):
    config = {"num_envs": 2, "rollout_length": 16, "num_epochs": 3, "minibatch_size": 1000}
    with pytest.warns(CatalogWarning, match="minibatch_size=1000 is larger than"):
        algo = PPO(StepCounter, config)
    minibatch_sizes = []
    step = algo._learner.minibatch_optimizer.step

    def record_and_step(batch, *args, **options):
        minibatch_sizes.append(len(batch["logp"]))
        return step(batch, *args, **options)

    monkeypatch.setattr(algo._learner.minibatch_optimizer, "step", record_and_step)
    algo.train()

    # A rollout has 2 * 16 steps, and there are 3 epochs.
    assert minibatch_sizes == [32, 32, 32]


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.slow)])
def test_learns_cartpole_a_little(framework):
    config = {"seed": 0, "lr": 3e-3, "minibatch_size": 128, "num_epochs": 5}
    algo = PPO("CartPole-v1", {**config, "framework": framework})

    for _ in range(14):
        result = algo.train()

    # A random policy has about 22.
    assert result["episode_return_mean"] > 80


# --- config ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (
            {"learning_rate": 1},
            UnknownConfigKeyError,
            "'learning_rate'. Here it is called 'lr'",
        ),
        (
            {"num_minibatches": 4},
            UnknownConfigKeyError,
            "'minibatch_size', the number of steps",
        ),
        ({"gama": 1}, UnknownConfigKeyError, "Did you mean 'gamma'"),
        ({"net_arch": [64]}, UnknownConfigKeyError, "'net_arch' is 'fcnet_hiddens' here"),
        ({"custom_preprocessor": "x"}, UnknownConfigKeyError, "a key of the model config"),
        ({"lr": "fast"}, ConfigError, "expected a float, found a string"),
        ({"gamma": 1.5}, ConfigError, "'gamma'"),
        ({"model": {"fcnet_hidden": []}}, UnknownConfigKeyError, "Did you mean 'fcnet_hiddens'"),
        ({"framework": "jax"}, UnknownNameError, "Unknown framework 'jax'"),
    ],
)
def test_wrong_config_is_an_error(config, error, message):
    with pytest.raises(error, match=message):
        PPO("CartPole-v1", config)


#: Each name in other libraries, such as "learning_rate", and our key, such as "lr".
KEYS_BY_OTHER_NAME = {name: text.partition(",")[0] for name, text in ELSEWHERE.items()}


@pytest.mark.parametrize("config_class", [PPOConfig, A2CConfig, PGConfig])
@pytest.mark.parametrize(("other_name", "key"), KEYS_BY_OTHER_NAME.items())
def test_names_of_other_libraries_lead_to_our_keys(other_name, key, config_class):
    with pytest.raises(UnknownConfigKeyError) as caught:
        parse({other_name: 1}, config_class)

    has_key = key in config_class.__struct_fields__
    assert (f"Here it is called {key!r}" in str(caught.value)) == has_key


@pytest.mark.parametrize("key", sorted(set(KEYS_BY_OTHER_NAME.values())))
def test_keys_for_names_of_other_libraries_exist(key):
    keys = {
        *PPOConfig.__struct_fields__,
        *A2CConfig.__struct_fields__,
        *PGConfig.__struct_fields__,
    }

    assert key in keys


def test_defaults_of_stable_baselines3_are_valid():
    sb3 = pytest.importorskip("stable_baselines3")
    parameters = inspect.signature(sb3.PPO).parameters
    config = {"num_envs": 1}

    # Take over each of their defaults for which our config has a key.
    for sb3_name, parameter in parameters.items():
        if sb3_name in KEYS_BY_OTHER_NAME:
            our_key = KEYS_BY_OTHER_NAME[sb3_name]
            config[our_key] = parameter.default

    parsed = parse(config)
    assert parsed.lr == 3e-4  # their learning_rate
    assert parsed.rollout_length == 2048  # n_steps
    assert parsed.minibatch_size == 64  # batch_size
    assert config.keys() == {
        "num_envs",
        "lr",
        "rollout_length",
        "minibatch_size",
        "num_epochs",
        "lambda_",
        "clip_param",
        "entropy_coeff",
        "vf_loss_coeff",
        "grad_clip",
    }


def test_dict_as_model_of_ppo_is_an_error():
    with pytest.raises(ConfigError, match="found a dictionary") as caught:
        PPO("CartPole-v1", model={"fcnet_hiddens": [8]})

    assert "as config={'model': {'fcnet_hiddens': [8]}}" in str(caught.value)
    # What the message says works.
    PPO("CartPole-v1", config={"model": {"fcnet_hiddens": [8]}}).stop()


def test_dict_as_model_of_build_is_an_error():
    with pytest.raises(ConfigError, match="found a dictionary") as caught:
        rlcatalog.build(env="CartPole-v1", model={"fcnet_hiddens": [8]})

    assert "as config={'fcnet_hiddens': [8]}" in str(caught.value)
    # What the message says works.
    rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": [8]})


def test_unknown_environment_is_an_error():
    with pytest.raises(UnknownNameError, match="Environment 'Nowhere-v0' cannot be made"):
        PPO("Nowhere-v0")


def test_old_class_name_warns():
    with pytest.warns(DeprecationWarning, match="PPOTrainer is now called PPO"):
        PPOTrainer(StepCounter, SMALL)


def test_old_key_num_sgd_iter_warns():
    with pytest.warns(DeprecationWarning, match="is now called 'num_epochs'"):
        config = parse({"num_sgd_iter": 3})

    assert config.num_epochs == 3


def test_old_key_use_pytorch_warns():
    with pytest.warns(DeprecationWarning, match="use_pytorch"):
        config = parse({"use_pytorch": True})

    assert config.framework == "torch"
