"""What stands for an environment: an id, a class, a function, an environment, a
vector environment.
"""

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

#: Widths of the observation.
SIZES = (3, 5)


class Sized(gym.Env):
    """Has an observation of some width, and notes whether it was closed."""

    closed = 0

    def __init__(self, size=SIZES[0]):
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def close(self):
        type(self).closed += 1


class Configured(Sized):
    """Takes a config, as RLlib's environments do."""

    def __init__(self, config):
        self.config = config
        super().__init__(config.get("size", SIZES[0]))


class Optional(Configured):
    """Takes a config, or none."""

    def __init__(self, config=None):
        self.given = config
        super().__init__(config or {})


def keywords(*, size):
    return Sized(size)


def many(**arguments):
    return Sized(**arguments)


def vector(size):
    return gym.vector.SyncVectorEnv([lambda: Sized(size)] * 2)


FORMS = {
    "class": lambda size: functools.partial(Sized, size),
    "function": lambda size: lambda: Sized(size),
    "instance": Sized,
    "vector": vector,
    "vector function": lambda size: lambda: vector(size),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_build_and_explain_take_an_environment_in_every_form(form, size):
    given, made = FORMS[form](size), "function" in form or form == "class"
    Sized.closed = 0
    explanation = rlcatalog.explain(env=given)
    policy = rlcatalog.build(env=given, config={"fcnet_hiddens": [4]})
    assert policy.observation_space.shape == (size,)
    assert explanation.env == ("SyncVectorEnv" if form.startswith("vector") else "Sized")
    assert explanation.resolution.request.obs.shape == (size,)
    each = 2 if form.startswith("vector") else 1
    # What was made for its spaces is closed; what was given is not.
    assert Sized.closed == (2 * each if made else 0)
    if form.startswith("vector") and not made:
        given.close()


def test_an_id_stands_for_its_environment():
    assert rlcatalog.build(
        env="CartPole-v1", config={"fcnet_hiddens": [4]}
    ).observation_space.shape == (4,)
    assert rlcatalog.explain(env="CartPole-v1").env == "CartPole-v1"
    assert rlcatalog.explain(env=gym.make("CartPole-v1")).env == "CartPole-v1"
    with pytest.raises(UnknownNameError, match="Environment 'CartPole-v7' cannot be made"):
        rlcatalog.build(env="CartPole-v7")


@pytest.mark.parametrize(
    ("make", "config", "size"),
    [
        (Sized, {}, 3),
        (Sized, {"size": 5}, 5),  # by keyword
        (keywords, {"size": 5}, 5),
        (many, {"size": 5}, 5),
        (Configured, {}, 3),  # required, so it gets the empty one
        (Configured, {"size": 5}, 5),
        (Optional, {"size": 5}, 5),  # has no parameter of that name
        (functools.partial(Sized, 5), {}, 5),
        (functools.partial(gym.make, "CartPole-v1"), {}, 4),
        (functools.partial(gym.make, "CartPole-v1"), {"max_episode_steps": 7}, 4),
    ],
)
def test_a_callable_gets_its_config_by_keyword_or_whole(make, config, size):
    env = make_env(make, config)
    assert env.observation_space.shape == (size,)
    assert getattr(env, "config", config) == config
    if "max_episode_steps" in config:
        assert env.get_wrapper_attr("_max_episode_steps") == 7


def test_a_config_is_handed_over_as_it_is():
    class Context(dict):
        index = 3

    assert make_env(Configured, Context()).config.index == 3
    assert make_env(Optional).given is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
        make_env(lambda: Sized(), {"sizes": 5})


def test_what_is_no_environment_is_refused():
    for wrong in (None, 3, {"id": "CartPole-v1"}):
        with pytest.raises(
            ConfigError, match=r"env: expected a Gymnasium id, a class or function.*; found"
        ):
            make_env(wrong)
    with pytest.raises(ModelContractError, match=r"expected a gymnasium\.Env, found None"):
        rlcatalog.build(env=lambda: None)


def test_a_class_and_an_object_with_the_spaces_of_a_vector_are_told_apart():
    class Members(Sized):
        single_action_space = gym.spaces.Discrete(2)

    vector_like = SimpleNamespace(single_action_space=gym.spaces.Discrete(2))
    assert make_env(vector_like) is vector_like
    assert isinstance(make_env(Members), Members)


def test_a_function_with_a_required_argument_gets_the_whole_config():
    def make(config, size=SIZES[1]):
        return Sized(size) if config == {} else Sized()

    assert make_env(make).observation_space.shape == (5,)
    assert make_env(make, {"size": 7}).observation_space.shape == (3,)


# --- modules in the working folder ----------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, with a search path of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    return tmp_path


@pytest.mark.parametrize(
    ("module", "files", "found"),
    [
        ("look_here_file", ["look_here_file.py"], True),
        ("look_here_folder", ["look_here_folder/__init__.py"], True),
        ("look_here_folder.inner", ["look_here_folder/__init__.py"], True),
        ("look_here_none", ["another.py", "__init__.py", "look_here_none/another.py"], False),
        ("look-here", ["look-here.py"], False),  # no name of a module
        ("json", ["json.py"], False),  # another module has the name
    ],
)
def test_the_working_folder_is_searched_for_a_module_that_is_there_and_nowhere_else(
    here, module, files, found
):
    for file in files:
        (here / file).parent.mkdir(exist_ok=True)
        (here / file).touch()
    before = list(sys.path)
    for _ in range(2):  # it is not added twice
        look_here(module)
        assert sys.path == ([*before, str(here)] if found else before)


def test_an_id_may_name_a_module_in_the_working_folder(here):
    text = (
        "import gymnasium\ngymnasium.register('LookHere-v0',"
        " 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    (here / "look_here_envs.py").write_text(text)
    assert make_env("look_here_envs:LookHere-v0").observation_space.shape == (4,)
    gym.registry.pop("LookHere-v0")
    del sys.modules["look_here_envs"]


def test_an_unknown_id_says_how_to_import_its_package():
    with pytest.raises(UnknownNameError, match="PACKAGE:NoSuchEnv-v0"):
        make_env("NoSuchEnv-v0")
    # a package is named; the environment refuses its argument.
    for named in ("json:NoSuchEnv-v0", "CartPole-v1"):
        with pytest.raises(UnknownNameError) as raised:
            make_env(named, {"no_such_argument": 3})
        assert "PACKAGE" not in str(raised.value)
