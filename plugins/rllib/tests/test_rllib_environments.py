"""Forms of an environment under RLlib, which makes its own in each runner."""

import functools
import pickle

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")
import cloudpickle
from agents_env import TwoCartPoles
from gymnasium.vector import SyncVectorEnv
from ray.rllib.algorithms.ppo import PPOConfig

from rlcatalog.errors import ConfigError
from rlcatalog_rllib import configure
from rlcatalog_rllib.envs import create_env


class SizedEnv(gym.Env):
    """Random observations of some width, by default 3; its parameter is not a config."""

    def __init__(self, size=3):
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        is_over = bool(self.np_random.random() < 0.1)
        return self.observation_space.sample(), 1.0, is_over, False, {}


class EnvOfWidth5(SizedEnv):
    """Has no parameter."""

    def __init__(self):
        super().__init__(5)


class EnvWithConfig(SizedEnv):
    """Takes a config, as Ray's environments do."""

    def __init__(self, config=None):
        self.config = config
        super().__init__((config or {}).get("size", 3))


def make_env_of_width_5():
    return SizedEnv(5)


def make_env_with_config(config):
    return EnvWithConfig(config)


@pytest.mark.parametrize(
    ("env", "env_config", "size"),
    [
        pytest.param(EnvWithConfig, {}, 3, id="class with config"),
        pytest.param(EnvWithConfig, {"size": 5}, 5, id="class with config and size"),
        pytest.param(SizedEnv, {}, 3, id="class"),
        pytest.param(SizedEnv, {"size": 5}, 5, id="class with size"),
        pytest.param(EnvOfWidth5, {}, 5, id="class without parameter"),
        pytest.param(make_env_of_width_5, {}, 5, id="function"),
        pytest.param(make_env_with_config, {"size": 5}, 5, id="function with config"),
        pytest.param(functools.partial(SizedEnv, 5), {}, 5, id="partial"),
    ],
)
def test_runners_make_environments_of_every_form(rllib, env, env_config, size):
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=8)
    config = configure(config, env, model={"fcnet_hiddens": [4]}, env_config=env_config)
    config = pickle.loads(cloudpickle.dumps(config))  # as Ray sends it to other processes
    runner = rllib.make_runner(config)

    episodes = runner.sample()

    assert sum(len(episode) for episode in episodes) == 8
    for episode in episodes:
        # The size is the number of values in an observation, by default 3.
        assert episode.get_observations(0).shape == (size,)


def test_config_of_an_environment_has_its_worker_index():
    config = create_env(EnvWithConfig, {"size": 5}).config

    assert config.worker_index == 0
    assert config["size"] == 5


def test_config_of_an_environment_keeps_a_given_worker_index():
    context = create_env(EnvWithConfig, {}).config.copy_with_overrides(worker_index=2)

    env = create_env(EnvWithConfig, {}, context)

    assert env.config.worker_index == 2


@pytest.mark.parametrize(
    ("make_env", "description", "advice"),
    [
        pytest.param(SizedEnv, "one environment (SizedEnv)", "env=SizedEnv", id="class"),
        pytest.param(
            lambda: gym.make("CartPole-v1"),
            "one environment (CartPoleEnv)",
            "env='CartPole-v1'",
            id="registered",
        ),
        pytest.param(
            TwoCartPoles, "one environment (TwoCartPoles)", "env=TwoCartPoles", id="several agents"
        ),
        pytest.param(
            lambda: SyncVectorEnv([SizedEnv] * 2),
            "a vector environment of 2 (SyncVectorEnv)",
            "env=MyEnv",
            id="vector",
        ),
    ],
)
def test_environment_instance_is_rejected(make_env, description, advice):
    env = make_env()

    # Each of Ray's runners makes its own environment.
    with pytest.raises(ConfigError, match="expected an id") as caught:
        configure(PPOConfig(), env)

    message = str(caught.value)
    assert f"found {description}." in message
    assert advice in message


def test_several_agents_need_an_environment_class():
    config = PPOConfig().multi_agent(policies={"all"}, policy_mapping_fn=lambda *_, **__: "all")

    with pytest.raises(ConfigError, match="expected an environment class") as caught:
        configure(config, lambda: TwoCartPoles())

    assert "class whose first argument is its config, found" in str(caught.value)
