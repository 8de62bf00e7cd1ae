"""Forms of an environment: an id, a class, a function, an environment, a vector environment."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.catalog import make_env
from rlcatalog.choice.environments import look_here
from rlcatalog.errors import ConfigError, ModelContractError, UnknownNameError

DEFAULT_SIZE = 3


class Sized(gym.Env):
    """Has an observation of some width; the class counts how many of its objects were closed."""

    times_closed = 0

    def __init__(self, size=DEFAULT_SIZE):
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def close(self):
        Sized.times_closed += 1


class WithConfig(Sized):
    """Takes a config, as RLlib's environments do."""

    def __init__(self, config):
        self.config = config
        super().__init__(config.get("size", DEFAULT_SIZE))


class WithOptionalConfig(WithConfig):
    """Takes a config, or none."""

    def __init__(self, config=None):
        self.received_config = config
        super().__init__(config or {})


def make_by_keyword(*, size):
    return Sized(size)


def make_by_any_keyword(**arguments):
    return Sized(**arguments)


def make_vector(size):
    return gym.vector.SyncVectorEnv([lambda: Sized(size)] * 2)


# --- building and explaining ----------------------------------------------------------------------

SMALL = {"fcnet_hiddens": [4]}
each_size = pytest.mark.parametrize("size", [3, 5])
#: A function of the size that returns an environment in this form, and the name it is explained by.
each_form = pytest.mark.parametrize(
    ("make_form", "name"),
    [
        pytest.param(lambda size: functools.partial(Sized, size), "Sized", id="partial"),
        pytest.param(lambda size: lambda: Sized(size), "Sized", id="function"),
        pytest.param(Sized, "Sized", id="environment"),
        pytest.param(make_vector, "SyncVectorEnv", id="vector"),
        pytest.param(
            lambda size: lambda: make_vector(size), "SyncVectorEnv", id="function-of-a-vector"
        ),
    ],
)


@each_size
@each_form
def test_build_takes_the_spaces_of_an_environment(make_form, name, size):
    policy = rlcatalog.build(env=make_form(size), config=SMALL)

    assert policy.observation_space.shape == (size,)


@each_size
@each_form
def test_explain_names_an_environment(make_form, name, size):
    explanation = rlcatalog.explain(env=make_form(size))

    assert explanation.env == name
    assert explanation.resolution.request.obs.shape == (size,)


@pytest.mark.parametrize(
    ("env", "closed"),
    [
        pytest.param(functools.partial(Sized, 3), 1, id="partial"),
        pytest.param(lambda: Sized(3), 1, id="function"),
        pytest.param(lambda: make_vector(3), 2, id="function-of-a-vector-of-2"),
        # The caller goes on with an environment that was passed.
        pytest.param(Sized(3), 0, id="environment"),
        pytest.param(make_vector(3), 0, id="vector"),
    ],
)
@pytest.mark.parametrize("function", [rlcatalog.build, rlcatalog.explain])
def test_environment_made_for_its_spaces_is_closed(monkeypatch, function, env, closed):
    monkeypatch.setattr(Sized, "times_closed", 0)

    function(env=env, config=SMALL)

    assert Sized.times_closed == closed


def test_build_takes_an_id():
    assert rlcatalog.build(env="CartPole-v1", config=SMALL).observation_space.shape == (4,)


@pytest.mark.parametrize("env", ["CartPole-v1", gym.make("CartPole-v1")], ids=["id", "env"])
def test_explain_names_the_id(env):
    assert rlcatalog.explain(env=env).env == "CartPole-v1"


def test_build_rejects_an_unknown_id():
    with pytest.raises(UnknownNameError, match="Environment 'CartPole-v7' cannot be made"):
        rlcatalog.build(env="CartPole-v7")


def test_build_rejects_a_function_that_returns_none():
    with pytest.raises(ModelContractError, match=r"expected a gymnasium\.Env, found None"):
        rlcatalog.build(env=lambda: None)


# --- making environments --------------------------------------------------------------------------

make_cartpole = functools.partial(gym.make, "CartPole-v1")


@pytest.mark.parametrize(
    ("make", "config", "size"),
    [
        pytest.param(Sized, {}, 3, id="class"),
        pytest.param(Sized, {"size": 5}, 5, id="class-with-parameter"),
        pytest.param(make_by_keyword, {"size": 5}, 5, id="function-with-keyword"),
        pytest.param(make_by_any_keyword, {"size": 5}, 5, id="function-with-any-keyword"),
        pytest.param(functools.partial(Sized, 5), {}, 5, id="partial"),
        pytest.param(make_cartpole, {}, 4, id="gymnasium-make"),
        pytest.param(make_cartpole, {"max_episode_steps": 7}, 4, id="gymnasium-make-with-keyword"),
    ],
)
def test_config_is_passed_by_keyword(make, config, size):
    assert make_env(make, config).observation_space.shape == (size,)


def test_config_reaches_the_wrappers_of_gymnasium():
    env = make_env(make_cartpole, {"max_episode_steps": 7})

    assert env.get_wrapper_attr("_max_episode_steps") == 7


@pytest.mark.parametrize(
    ("make", "config", "size"),
    [
        pytest.param(WithConfig, {}, 3, id="required-and-empty"),
        pytest.param(WithConfig, {"size": 5}, 5, id="required"),
        # None of its parameters is called "size".
        pytest.param(WithOptionalConfig, {"size": 5}, 5, id="optional"),
    ],
)
def test_config_is_passed_whole_to_rllib_environments(make, config, size):
    env = make_env(make, config)

    assert env.observation_space.shape == (size,)
    assert env.config == config


def test_config_keeps_its_class():
    class Context(dict):
        index = 3

    assert make_env(WithConfig, Context()).config.index == 3


def test_config_that_is_not_given_is_none():
    assert make_env(WithOptionalConfig).received_config is None


def test_config_with_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        make_env(lambda: Sized(), {"sizes": 5})


@pytest.mark.parametrize(
    ("config", "size"),
    [pytest.param({}, 5, id="empty"), pytest.param({"size": 7}, 3, id="key-of-a-parameter")],
)
def test_config_is_passed_whole_to_a_required_parameter(config, size):
    def make(received_config, size=5):
        return Sized(size) if received_config == {} else Sized()

    assert make_env(make, config).observation_space.shape == (size,)


@pytest.mark.parametrize("value", [None, 3, {"id": "CartPole-v1"}], ids=["none", "number", "dict"])
def test_make_env_rejects_other_values(value):
    with pytest.raises(ConfigError, match="env: expected a Gymnasium id") as caught:
        make_env(value)

    assert "; found" in str(caught.value)


def test_make_env_returns_an_object_like_a_vector_environment():
    vector_like = SimpleNamespace(single_action_space=gym.spaces.Discrete(2))

    assert make_env(vector_like) is vector_like


def test_make_env_calls_a_class_like_a_vector_environment():
    class VectorLike(Sized):
        single_action_space = gym.spaces.Discrete(2)

    assert isinstance(make_env(VectorLike), VectorLike)


# --- modules in the working folder ----------------------------------------------------------------


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """An empty working folder that is not on the search path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    return tmp_path


def create_files(folder, files):
    for file in files:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).touch()


@pytest.mark.parametrize(
    ("module", "files"),
    [
        pytest.param("look_here_file", ["look_here_file.py"], id="file"),
        pytest.param("look_here_folder", ["look_here_folder/__init__.py"], id="package"),
        pytest.param("look_here_folder.inner", ["look_here_folder/__init__.py"], id="submodule"),
    ],
)
def test_look_here_adds_folder_of_the_module_once(working_folder, module, files):
    create_files(working_folder, files)
    path_before = list(sys.path)

    look_here(module)
    look_here(module)

    assert sys.path == [*path_before, str(working_folder)]


@pytest.mark.parametrize(
    ("module", "files"),
    [
        pytest.param(
            "look_here_none",
            ["another.py", "__init__.py", "look_here_none/another.py"],
            id="other-files",
        ),
        pytest.param("look-here", ["look-here.py"], id="invalid-module-name"),
        pytest.param("json", ["json.py"], id="name-of-an-installed-module"),
    ],
)
def test_look_here_leaves_the_path_alone_otherwise(working_folder, module, files):
    create_files(working_folder, files)
    path_before = list(sys.path)

    look_here(module)

    assert sys.path == path_before


REGISTERS_CARTPOLE = """
import gymnasium

gymnasium.register("LookHere-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


def test_id_may_name_a_module_in_the_working_folder(working_folder):
    (working_folder / "look_here_envs.py").write_text(REGISTERS_CARTPOLE)

    env = make_env("look_here_envs:LookHere-v0")

    assert env.observation_space.shape == (4,)
    gym.registry.pop("LookHere-v0")
    del sys.modules["look_here_envs"]


def test_unknown_id_error_says_how_to_import_its_package():
    with pytest.raises(UnknownNameError, match="PACKAGE:NoSuchEnv-v0"):
        make_env("NoSuchEnv-v0")


@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param("json:NoSuchEnv-v0", id="package-is-named"),
        pytest.param("CartPole-v1", id="argument-is-unknown"),
    ],
)
def test_other_errors_of_an_id_do_not_mention_packages(env_id):
    with pytest.raises(UnknownNameError) as caught:
        make_env(env_id, {"no_such_argument": 3})

    assert "PACKAGE" not in str(caught.value)
