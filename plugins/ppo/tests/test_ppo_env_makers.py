"""Environments from ids, classes and functions: how they are made, for training and evaluation."""

from __future__ import annotations

import pickle
from pathlib import Path

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


class ConfiguredEnv(gym.Env):
    """Keeps its config, and whether it was closed."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, config=None):
        self.config = config
        self.is_closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, False, False, {}

    def close(self):
        self.is_closed = True


def make_maker(env, env_config=None, model=None, catalog=None):
    return EnvMaker(env, env_config or {}, model or {}, catalog or rlcatalog.default_catalog())


# --- one environment ------------------------------------------------------------------------------


def test_class_gets_its_config():
    make = make_maker(ConfiguredEnv, {"size": 3})

    assert make.num_passed is None
    assert make().config == {"size": 3}


def test_config_has_the_index_of_the_environment():
    make = make_maker(ConfiguredEnv, {"size": 3})

    assert make().config.index == 0
    assert make(2).config.index == 2


@pytest.mark.parametrize("env", ["CartPole-v1", ConfiguredEnv, lambda: ConfiguredEnv()])
def test_ids_classes_and_functions_are_not_passed_environments(env):
    assert count_passed(env) is None


def test_passed_environments_are_counted():
    assert count_passed(ConfiguredEnv()) == 1
    assert count_passed(SyncVectorEnv([ConfiguredEnv] * 3)) == 3


# --- vector environments --------------------------------------------------------------------------


def test_vector_tells_each_environment_its_index():
    envs = make_maker(ConfiguredEnv, {"size": 3}).vector(3).envs

    assert [env.unwrapped.config.index for env in envs] == [0, 1, 2]
    assert [env.index for env in envs] == [0, 1, 2]
    assert [env.count for env in envs] == [3, 3, 3]


def test_vector_may_make_its_first_environment_differently():
    calls = []

    def make():
        calls.append("make")
        return ConfiguredEnv()

    def make_first():
        calls.append("make_first")
        return ConfiguredEnv()

    envs = vector(make, n=3, first=make_first)

    assert calls == ["make_first", "make", "make"]
    # Error messages say "environment 0 of 3".
    assert [env.index for env in envs.envs] == [0, 1, 2]
    assert [env.count for env in envs.envs] == [3, 3, 3]


def test_vector_of_one_counts_one():
    assert vector(ConfiguredEnv, 1).envs[0].count == 1


def test_vector_does_not_copy_observations():
    envs = vector(ConfiguredEnv, 3)

    observed, _ = envs.reset()
    next_observed, *_ = envs.step(np.zeros(3, int))

    assert np.shares_memory(observed, next_observed)


@pytest.fixture
def started_workers(monkeypatch):
    """The numbers of processes that `Workers` would start; it starts none."""
    counts = []
    monkeypatch.setattr(Workers, "__init__", lambda workers, makes: counts.append(len(makes)))
    return counts


def test_vector_starts_no_processes_by_default(started_workers):
    assert isinstance(vector(ConfiguredEnv, 2), SyncVectorEnv)
    assert started_workers == []


def test_vector_starts_processes_if_async(started_workers):
    assert isinstance(vector(ConfiguredEnv, 2, how="async"), Workers)
    assert isinstance(make_maker(ConfiguredEnv).vector(4, "async"), Workers)
    assert started_workers == [2, 4]


def test_vector_closes_environments_that_it_made():
    env = ConfiguredEnv()
    envs = make_maker(lambda: env).vector(1)

    envs.close()

    assert envs.envs[0].count == 1
    assert env.is_closed


def test_vector_leaves_a_passed_environment_open():
    env = ConfiguredEnv()
    envs = make_maker(env).vector(1)

    envs.close()

    assert envs.envs[0].count == 1
    assert not env.is_closed


def test_passed_vector_environment_is_wrapped():
    envs = SyncVectorEnv([ConfiguredEnv] * 2)

    assert isinstance(make_maker(envs).vector(2), ExternalVectorEnv)


def test_passed_vector_environment_is_checked_by_the_catalog():
    calls = []

    class RefusingCatalog:
        def read_env(self, env, model):
            calls.append((env, model))
            raise ModelContractError("it lacks a wrapper")

    envs = SyncVectorEnv([ConfiguredEnv, ConfiguredEnv])
    make = make_maker(envs, model={"framestack": True}, catalog=RefusingCatalog())

    with pytest.raises(ModelContractError, match="it lacks a wrapper"):
        make.vector(2)
    assert calls == [(envs, {"framestack": True})]


# --- evaluation -----------------------------------------------------------------------------------


def test_evaluation_uses_the_environment_of_training_by_default():
    make = make_maker(ConfiguredEnv, {"size": 3})

    assert make.for_evaluation() is make


@pytest.mark.parametrize("env", [ConfiguredEnv, "CartPole-v1"], ids=["class", "id"])
def test_evaluation_in_the_training_environment_has_its_config(env):
    make = make_maker(env, {"size": 3})

    assert make.for_evaluation(env) is make


def test_evaluation_in_another_environment_has_another_config():
    make = make_maker(ConfiguredEnv, {"size": 3})

    other = make.for_evaluation(lambda config: ConfiguredEnv(config))

    assert other().config == {}


def test_evaluation_in_another_id_makes_that_environment():
    make = make_maker("CartPole-v1")

    other = make.for_evaluation("Acrobot-v1")

    assert other is not make
    assert other().spec.id == "Acrobot-v1"


def test_evaluation_uses_a_passed_environment():
    env = ConfiguredEnv()

    make = make_maker(ConfiguredEnv).for_evaluation(env)

    assert make.num_passed == 1
    assert make().unwrapped is env


def test_evaluation_beside_a_passed_environment_uses_another_one():
    env = ConfiguredEnv()

    make = make_maker(gym.make("CartPole-v1")).for_evaluation(env)

    assert make().unwrapped is env


def test_passed_environment_is_made_again_from_its_spec():
    passed = gym.make("CartPole-v1", max_episode_steps=7)

    make = make_maker(passed).for_evaluation()

    assert make.num_passed is None
    assert make().unwrapped is not passed.unwrapped
    assert make().spec.max_episode_steps == 7


def test_environment_made_again_shows_no_window():
    passed = gym.make("CartPole-v1", render_mode="rgb_array")

    make = make_maker(passed).for_evaluation()

    assert make().render_mode is None
    assert passed.spec.kwargs["render_mode"] == "rgb_array"  # the caller's spec does not change


def test_member_of_a_vector_environment_is_made_again():
    envs = gym.make_vec("CartPole-v1", 2, "sync")

    make = make_maker(envs).for_evaluation()

    assert make.num_passed is None
    assert make().spec.id == "CartPole-v1"


@pytest.mark.parametrize("is_unwrapped", [False, True])
def test_evaluation_in_the_passed_environment_is_refused(is_unwrapped):
    passed = gym.make("CartPole-v1")
    env = passed.unwrapped if is_unwrapped else passed

    message = "evaluation: expected environments other than the training ones"
    with pytest.raises(ConfigError, match=message):
        make_maker(passed).for_evaluation(env)


class WithoutSpec(gym.Wrapper):
    """A wrapper whose arguments are in no spec, because it is no `RecordConstructorArgs`."""


def clip_rewards(env):
    return gym.wrappers.ClipReward(env, 0, 1)


@pytest.mark.parametrize(
    "wrap",
    [
        WithoutSpec,
        lambda env: clip_rewards(WithoutSpec(env)),
        lambda env: WithoutSpec(clip_rewards(env)),
    ],
    ids=["alone", "inside", "outside"],
)
def test_environment_with_unknown_wrapper_is_not_made_again(wrap):
    passed = wrap(gym.make("CartPole-v1"))

    with pytest.raises(ConfigError, match="evaluation: expected environments other"):
        make_maker(passed).for_evaluation()


def test_passed_vector_environment_without_ids_is_not_made_again():
    envs = SyncVectorEnv([ConfiguredEnv] * 2)

    with pytest.raises(ConfigError, match="found a vector environment of 2"):
        make_maker(envs).for_evaluation()


# --- another process ------------------------------------------------------------------------------


@pytest.fixture
def pickled_id():
    """A pickled maker of the id `Pickled-v0`, which is not registered any more."""
    gym.register("Pickled-v0", ConfiguredEnv)
    pickled = pickle.dumps(make_maker("Pickled-v0", {"config": {"size": 2}}))
    gym.registry.pop("Pickled-v0")
    yield pickled
    gym.registry.pop("Pickled-v0", None)


def test_pickled_id_brings_its_registration(pickled_id):
    make = pickle.loads(pickled_id)

    assert make().unwrapped.config == {"size": 2}


def test_pickled_id_does_not_replace_a_registration(pickled_id):
    gym.register("Pickled-v0", ConfiguredEnv)
    spec = gym.registry["Pickled-v0"]

    pickle.loads(pickled_id)

    assert gym.registry["Pickled-v0"] is spec


def test_pickled_class_has_its_config():
    make = pickle.loads(pickle.dumps(make_maker(ConfiguredEnv, {"size": 2})))

    assert make(1).config == {"size": 2}
    assert make.num_passed is None


def test_pickled_maker_leaves_custom_classes_out():
    """Functions inside a test cannot be pickled."""
    model = {"custom_model": lambda: None, "custom_action_dist": lambda: None, "framestack": False}

    make = pickle.loads(pickle.dumps(make_maker(ConfiguredEnv, {"size": 2}, model)))

    assert make().config == {"size": 2}


class Unhashable:
    """Makes an environment, and cannot be a key of a dict."""

    __hash__ = None

    def __call__(self, config):
        return ConfiguredEnv(config)


def test_unhashable_callable_can_be_pickled():
    make = pickle.loads(pickle.dumps(make_maker(Unhashable(), {"a": 1})))

    assert make().config == {"a": 1}


# --- names in checkpoints -------------------------------------------------------------------------


def test_checkpoint_names_an_environment_by_id():
    assert registered_id(Path("run"), "CartPole-v1") == "CartPole-v1"
    # Gymnasium reports an unknown id when it makes the environment.
    assert registered_id(Path("run"), "NoSuch-v0") == "NoSuch-v0"


def test_module_of_a_registered_id_is_not_imported():
    assert registered_id(Path("run"), "no_such_module:CartPole-v1") == "CartPole-v1"


def test_module_of_an_unregistered_id_is_not_imported():
    message = "run: its environment 'NoSuch-v0' was registered by the module 'no_such'"
    with pytest.raises(ConfigError, match=message):
        registered_id(Path("run"), "no_such:NoSuch-v0")


def test_checkpoint_without_an_id_needs_the_environment():
    with pytest.raises(ConfigError, match="the environment was not a Gymnasium id"):
        registered_id(Path("run"), None)


@pytest.mark.parametrize(
    ("episodes", "num_envs"), [(3, 3), (100, 20)], ids=["one-each", "at-most-20"]
)
def test_evaluation_has_an_environment_per_episode(episodes, num_envs):
    maker = EnvMaker("CartPole-v1", {}, {}, rlcatalog.default_catalog())

    envs = maker.evaluation_vector(episodes, seed=0)

    assert envs.num_envs == num_envs
    envs.close()
