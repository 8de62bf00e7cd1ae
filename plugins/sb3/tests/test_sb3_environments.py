"""Environments as people have them, under Stable-Baselines3."""

import functools

import gymnasium as gym
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_sb3 import CatalogPolicy, for_sb3, to_policy


class Pair(gym.Env):
    """Shows a number and a vector, which Stable-Baselines3 flattens by itself only where they are
    not nested.
    """

    def __init__(self, size=3):
        inside = gym.spaces.Dict({"x": gym.spaces.Box(-1, 1, (size,)), "n": gym.spaces.Discrete(3)})
        self.observation_space = gym.spaces.Dict({"inside": inside})
        self.action_space = gym.spaces.Discrete(2)
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return (
            self.observation_space.sample(),
            float(action),
            bool(self.np_random.random() < 0.1),
            False,
            {},
        )

    def close(self):
        self.closed = True


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("form", ["class", "function", "instance"])
def test_an_environment_is_taken_in_every_form(form, size):
    env = {
        "class": functools.partial(Pair, size),
        "function": lambda: Pair(size),
        "instance": Pair(size),
    }[form]
    flat = for_sb3(env)
    assert flat.observation_space.shape == (size + 3,)  # the number one-hot
    assert form != "instance" or flat.unwrapped is env
    model = PPO(CatalogPolicy, flat, n_steps=16, batch_size=16, seed=0)
    model.learn(16)
    assert to_policy(model).observation_space["inside"]["x"].shape == (size,)


def test_several_are_made_of_a_class():
    envs = make_vec_env(Pair, 2, wrapper_class=for_sb3)
    model = PPO(CatalogPolicy, envs, n_steps=8, batch_size=16, seed=0)
    model.learn(16)
    assert for_sb3(Pair).observation_space == envs.observation_space
    assert for_sb3("CartPole-v1").observation_space.shape == (4,)


def test_a_vector_environment_is_refused():
    for envs, name in (
        (SyncVectorEnv([Pair] * 2), "SyncVectorEnv"),
        (make_vec_env("CartPole-v1", 2), "DummyVecEnv"),
    ):
        with pytest.raises(
            ModelContractError, match=rf"found a {name} with 2\..*make_vec_env\(MyEnv, n, wrapper"
        ):
            for_sb3(envs)
    with pytest.raises(ConfigError, match=r"env: expected a Gymnasium id, .*; found None"):
        for_sb3(None)
