"""Forms of an environment that `for_sb3` takes: a class, a function, an instance, an id."""

import functools

import gymnasium as gym
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy


class NestedEnv(gym.Env):
    """Random observations of a vector and a number below 3, nested too deeply for
    Stable-Baselines3's own policies.
    """

    def __init__(self, size=3):
        inside = gym.spaces.Dict({"x": gym.spaces.Box(-1, 1, (size,)), "n": gym.spaces.Discrete(3)})
        self.observation_space = gym.spaces.Dict({"inside": inside})
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        is_over = bool(self.np_random.random() < 0.1)
        return self.observation_space.sample(), float(action), is_over, False, {}


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(
    "make_env",
    [
        pytest.param(lambda size: functools.partial(NestedEnv, size), id="class"),
        pytest.param(lambda size: lambda: NestedEnv(size), id="function"),
        pytest.param(NestedEnv, id="instance"),
    ],
)
def test_ppo_trains_in_every_form_of_an_environment(make_env, size):
    env = for_sb3(make_env(size))
    model = PPO(CatalogPolicy, env, n_steps=16, batch_size=16, seed=0)

    model.learn(16)

    assert env.observation_space.shape == (size + 3,)  # the number is a one-hot of 3
    assert to_policy(model).observation_space["inside"]["x"].shape == (size,)


def test_instance_is_the_unwrapped_environment():
    env = NestedEnv()

    assert for_sb3(env).unwrapped is env


def test_id_names_an_environment():
    assert for_sb3("CartPole-v1").observation_space.shape == (4,)


def test_make_vec_env_wraps_each_environment():
    envs = make_vec_env(NestedEnv, 2, wrapper_class=for_sb3)
    model = PPO(CatalogPolicy, envs, n_steps=8, batch_size=16, seed=0)

    model.learn(16)

    assert envs.observation_space == for_sb3(NestedEnv).observation_space


@pytest.mark.parametrize(
    ("make_envs", "name"),
    [
        pytest.param(lambda: SyncVectorEnv([NestedEnv] * 2), "SyncVectorEnv", id="Gymnasium"),
        pytest.param(lambda: make_vec_env("CartPole-v1", 2), "DummyVecEnv", id="SB3"),
    ],
)
def test_vector_environment_is_rejected(make_envs, name):
    with pytest.raises(ModelContractError, match=rf"found a {name} with 2\.") as caught:
        for_sb3(make_envs())

    assert "make_vec_env(MyEnv, n, wrapper" in str(caught.value)


def test_none_is_rejected():
    with pytest.raises(ConfigError, match=r"expected a Gymnasium id, .*; found None"):
        for_sb3(None)
