"""Environments from ids, classes and functions: which are made, how many, beside which, and in
another process.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_ppo.environments import EnvMaker, count_passed, registered_id, vector
from rlcatalog_ppo.external_env import ExternalVectorEnv
from rlcatalog_ppo.workers import Workers

CATALOG = rlcatalog.default_catalog()


class Line(gym.Env):
    """Notes its config and whether it was closed."""

    observation_space, action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, config=None):
        self.config, self.closed = config, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, False, False, {}

    def close(self):
        self.closed = True


def maker(env, env_config=None, model=None, catalog=CATALOG):
    return EnvMaker(env, env_config or {}, model or {}, catalog)


def test_a_class_is_given_its_config_and_the_index_of_its_environment():
    make = maker(Line, {"size": 3})
    assert (make.passed, make().config, make().config.index, make(2).config.index) == (
        None,
        {"size": 3},
        0,
        2,
    )
    envs = make.vector(3).envs
    assert [(env.unwrapped.config.index, env.index, env.count) for env in envs] == [
        (0, 0, 3),
        (1, 1, 3),
        (2, 2, 3),
    ]


def test_vector_steps_as_many_as_asked_in_one_memory():
    made = []
    envs = vector(lambda: made.append("other") or Line(), 3, lambda: made.append("first") or Line())
    assert made == ["first", "other", "other"]
    assert envs.num_envs == 3
    assert [(env.index, env.count) for env in envs.envs] == [(0, 3), (1, 3), (2, 3)]
    observed, _ = envs.reset()
    assert np.shares_memory(observed, envs.step(np.zeros(3, int))[0])  # nothing is copied
    assert [env.count for env in vector(Line, 1).envs] == [1]


def test_processes_are_made_only_for_async(monkeypatch):
    given = []
    monkeypatch.setattr(Workers, "__init__", lambda workers, makes: given.append(len(makes)))
    assert isinstance(vector(Line, 2), SyncVectorEnv)
    assert given == []
    assert isinstance(vector(Line, 2, how="async"), Workers)
    assert isinstance(maker(Line).vector(4, "async"), Workers)
    assert given == [2, 4]


@pytest.mark.parametrize("passed", [True, False])
def test_only_environments_made_here_are_closed(passed):
    env = Line()
    make = maker(env if passed else lambda: env)
    envs = make.vector(1)
    assert [one.count for one in envs.envs] == [1]
    envs.close()
    assert env.closed is not passed


def test_environments_that_are_passed_are_counted():
    assert count_passed(SyncVectorEnv([Line] * 3)) == 3
    assert count_passed(Line()) == 1
    assert [count_passed(env) for env in ("CartPole-v1", Line, lambda: Line())] == [None] * 3


def test_a_passed_vector_environment_is_checked_by_the_catalog_and_wrapped():
    asked = []

    def spaces_of(env, model):
        asked.append((env, model))
        if model.get("bad"):
            raise ModelContractError("it lacks a wrapper")

    envs = SyncVectorEnv([Line] * 2)
    found = maker(envs, model={"a": 1}, catalog=SimpleNamespace(spaces_of=spaces_of)).vector(2)
    assert isinstance(found, ExternalVectorEnv)
    assert asked == [(envs, {"a": 1})]
    with pytest.raises(ModelContractError, match="it lacks a wrapper"):
        maker(envs, model={"bad": 1}, catalog=SimpleNamespace(spaces_of=spaces_of)).vector(2)


# --- evaluation -----------------------------------------------------------------------------------


def test_evaluation_makes_the_training_environment_again():
    by_class, by_id = maker(Line, {"size": 3}), maker("CartPole-v1")
    assert by_class.beside() is by_class
    assert by_class.beside(Line) is by_class
    assert by_id.beside("CartPole-v1") is by_id
    other = by_id.beside("Acrobot-v1")
    assert other is not by_id
    assert other().spec.id == "Acrobot-v1"
    # Another environment, another config.
    assert by_class.beside(lambda config: Line(config))().config == {}
    env = Line()
    assert by_class.beside(env).passed == 1
    assert by_class.beside(env)().unwrapped is env


def test_evaluation_beside_a_passed_environment_makes_another_from_its_spec():
    passed = gym.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=7)
    again = maker(passed).beside()
    assert again.passed is None
    assert again().unwrapped is not passed.unwrapped
    assert (again().render_mode, again().spec.max_episode_steps) == (None, 7)
    assert passed.spec.kwargs["render_mode"] == "rgb_array"  # the caller's spec is left alone
    other = Line()
    assert maker(passed).beside(other)().unwrapped is other
    for same in (passed, passed.unwrapped):
        with pytest.raises(
            ConfigError, match="evaluation: expected environments other than the training ones"
        ):
            maker(passed).beside(same)


class Unrecorded(gym.Wrapper):
    """A wrapper whose arguments no spec holds."""


@pytest.mark.parametrize(
    "wrap",
    [
        Unrecorded,
        lambda env: gym.wrappers.ClipReward(Unrecorded(env), 0, 1),
        lambda env: Unrecorded(gym.wrappers.ClipReward(env, 0, 1)),
    ],
)
def test_spec_that_lacks_a_wrapper_is_not_made_again(wrap):
    with pytest.raises(ConfigError, match="evaluation: expected environments other"):
        maker(wrap(gym.make("CartPole-v1"))).beside()


def test_members_of_a_vector_environment_are_made_again():
    envs = gym.make_vec("CartPole-v1", 2, "sync")
    again = maker(envs).beside()
    assert (again.passed, again().spec.id) == (None, "CartPole-v1")
    empty = SyncVectorEnv([Line] * 2)  # its members have no registered id
    with pytest.raises(ConfigError, match="found a vector environment of 2"):
        maker(empty).beside()


# --- another process ------------------------------------------------------------------------------


def test_id_brings_its_registration_along():
    gym.register("Along-v0", Line)
    try:
        pickled = pickle.dumps(maker("Along-v0", {"config": {"size": 2}}))
        gym.registry.pop("Along-v0")
        assert pickle.loads(pickled)().unwrapped.config == {"size": 2}
        mine = gym.registry["Along-v0"]
        pickle.loads(pickled)
        assert gym.registry["Along-v0"] is mine  # what a process registered itself stays
    finally:
        gym.registry.pop("Along-v0", None)


def test_custom_classes_stay_behind():
    model = {"custom_model": lambda: None, "custom_action_dist": lambda: None, "framestack": False}
    other = pickle.loads(pickle.dumps(maker(Line, {"size": 2}, model)))
    assert other(1).config == {"size": 2}
    assert other.passed is None


class Unhashable:
    """Makes an environment; no dictionary takes it as a key."""

    __hash__ = None

    def __call__(self, config):
        return Line(config)


def test_any_callable_that_can_be_pickled_travels():
    assert pickle.loads(pickle.dumps(maker(Unhashable(), {"a": 1})))().config == {"a": 1}


# --- names in checkpoints, masks ------------------------------------------------------------------


def test_checkpoint_names_an_environment_but_imports_no_module():
    folder = Path("run")
    assert registered_id(folder, "CartPole-v1") == "CartPole-v1"
    assert registered_id(folder, "NoSuch-v0") == "NoSuch-v0"  # Gymnasium says that it is unknown
    assert registered_id(folder, "no_such_module:CartPole-v1") == "CartPole-v1"
    with pytest.raises(
        ConfigError, match="run: its environment 'NoSuch-v0' was registered by the module 'no_such'"
    ):
        registered_id(folder, "no_such:NoSuch-v0")
    with pytest.raises(ConfigError, match="run: the environment was not a Gymnasium id; pass it"):
        registered_id(folder, None)
