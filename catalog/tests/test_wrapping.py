"""Environment wrappers of plugins: `wrap_env`, `build(env=...)` and a policy apply them once."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from faulty_functions import function_that_raises

import rlcatalog
from rlcatalog import Catalog, EnvWrapperSpec, Match, Rank
from rlcatalog.catalog import EngineWrapper
from rlcatalog.choice.environments import check_wrapped
from rlcatalog.errors import ModelContractError, ObservationError, PluginError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading
from rlcatalog_testing import PluginEntryPoint, isolated_catalog, plugin_of

BUILT_IN_PLUGINS = ("fcnet", "categorical", "gaussian", "preprocessors")
SMALL = {"fcnet_hiddens": [4]}


# --- wrappers of a plugin -------------------------------------------------------------------------


class Doubled(gym.ObservationWrapper):
    """Returns each observation twice, side by side."""

    def __init__(self, env):
        super().__init__(env)
        space = env.observation_space
        self.observation_space = gym.spaces.Box(
            np.tile(space.low, 2), np.tile(space.high, 2), dtype=np.float32
        )

    def observation(self, observation):
        return np.tile(observation, 2)


def double(env, config):
    return Doubled(env)


def limit_steps(env, config):
    return gym.wrappers.TimeLimit(env, config["max_seq_len"])


def return_unchanged(env, config):
    return env


raise_error = function_that_raises(RuntimeError("no such screen"))


def return_none(env, config):
    return None


def return_invalid_action_space(env, config):
    env = gym.Wrapper(env)
    env.action_space = "left or right"
    return env


def match_cartpole(request):
    if request.env.spec is not None and request.env.spec.id.startswith("CartPole"):
        return Match(Rank.GENERIC, "a cart with a pole")
    return Match(None, "for carts with poles")


@pytest.fixture
def make_catalog(module, entry_point, plugin):
    """Make a catalog with these wrapper functions of a preferred plugin, for CartPole only."""

    def make(*functions):
        module(**{function.__name__: function for function in functions})
        specs = []
        for function in functions:
            name = function.__name__
            target = {"numpy": f"made_up_parts:{name}"}
            specs.append(EnvWrapperSpec(name, target, "", match=match_cartpole))
        points = [point for point in scan() if point.name in BUILT_IN_PLUGINS]
        points.append(entry_point("acme", plugin(rlcatalog_env_wrappers=specs)))
        return Catalog(points, environ={}, prefer=["acme"])

    return make


@pytest.fixture
def catalog(make_catalog):
    """A catalog whose only wrapper is `double`."""
    return make_catalog(double)


def make_cartpole():
    return gym.make("CartPole-v1")


def make_vector(env_id, **options):
    return gym.make_vec(env_id, num_envs=2, vectorization_mode="sync", **options)


def list_wrappers(env):
    """Return the names of the wrappers, the outermost first."""
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


# --- wrap_env -------------------------------------------------------------------------------------


def test_wrap_env_applies_wrappers_in_order(make_catalog):
    env = make_catalog(double, limit_steps).wrap_env(make_cartpole())

    assert list_wrappers(env)[:2] == ["TimeLimit", "Doubled"]


def test_wrap_env_does_not_wrap_twice(make_catalog):
    catalog = make_catalog(double, limit_steps)
    env = catalog.wrap_env(make_cartpole())

    assert catalog.wrap_env(env) is env


def test_wrap_env_finds_its_wrappers_below_another_one(make_catalog):
    catalog = make_catalog(double, limit_steps)
    env = gym.wrappers.TransformReward(catalog.wrap_env(make_cartpole()), lambda reward: reward)

    assert catalog.wrap_env(env) is env


class WrapperOfEngine(EngineWrapper, gym.Wrapper):
    """Stands for a wrapper such as `for_sb3`."""

    right_order = "for_engine(rlcatalog.wrap_env(env))"


def test_wrap_env_adds_nothing_around_the_wrapper_of_an_engine(catalog):
    env = WrapperOfEngine(make_cartpole())

    with pytest.raises(ModelContractError, match=r"'double'.*around WrapperOfEngine") as caught:
        catalog.wrap_env(env)

    assert "for_engine(rlcatalog.wrap_env(env))" in str(caught.value)
    right_order = WrapperOfEngine(catalog.wrap_env(make_cartpole()))
    assert catalog.wrap_env(right_order) is right_order


def test_wrap_env_accepts_a_function_that_changes_nothing(make_catalog):
    env = make_cartpole()

    assert make_catalog(return_unchanged).wrap_env(env) is env


class WithoutDict:
    """Stands for an object of a C extension, which has no `__dict__`."""

    __slots__ = ()


def test_wrap_env_ignores_an_env_attribute_that_is_not_an_env(catalog):
    env = make_cartpole().unwrapped
    env.env = WithoutDict()

    assert catalog.wrap_env(env).env is env


def test_match_of_a_wrapper_gets_both_spaces():
    requests = []

    def match(request):
        requests.append(request)
        return Match(None, "no")

    wrapper = EnvWrapperSpec("watcher", {"numpy": "m:watcher"}, "", match=match)
    acme = PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[wrapper]), "acme")

    isolated_catalog(acme, prefer=["acme"]).wrap_env(gym.make("Pendulum-v1"))

    [request] = requests
    # Pendulum has three features, and one number as its action.
    assert request.obs.shape == (3,)
    assert request.action.kind == "box"
    assert request.action.shape == (1,)


@pytest.mark.parametrize(
    ("function", "error", "cause"),
    [
        pytest.param(raise_error, PluginError, "raised RuntimeError: no such screen", id="raises"),
        pytest.param(
            return_none,
            ModelContractError,
            "must return an environment, found None",
            id="returns-none",
        ),
        pytest.param(
            return_invalid_action_space,
            ModelContractError,
            "found 'left or right'",
            id="returns-env-with-invalid-space",
        ),
    ],
)
def test_broken_wrapper_error_names_plugin_and_cause(make_catalog, function, error, cause):
    with pytest.raises(error, match=cause) as caught:
        make_catalog(function).wrap_env(make_cartpole())

    assert f"env_wrapper '{function.__name__}' (acme 1.0) " in str(caught.value)


def test_wrap_env_rejects_an_id(catalog):
    with pytest.raises(ModelContractError, match=r"expected a gymnasium\.Env, found ") as caught:
        catalog.wrap_env("CartPole-v1")

    assert str(caught.value).startswith("wrap_env: ")
    assert "found 'CartPole-v1'" in str(caught.value)


def test_wrap_env_of_a_vector_says_how_to_wrap_its_environments(catalog):
    with pytest.raises(ModelContractError) as caught:
        catalog.wrap_env(make_vector("CartPole-v1"))

    assert "gymnasium.make_vec(id, wrappers=[rlcatalog.wrap_env])" in str(caught.value)


# --- explaining -----------------------------------------------------------------------------------


def test_explain_wrapping_says_why_a_wrapper_is_applied(catalog):
    _, [(wrapper, answer)] = catalog.explain_wrapping(make_cartpole())

    assert wrapper.name == "double"
    assert answer == Match(Rank.GENERIC, "a cart with a pole")


def test_explain_wrapping_says_that_a_wrapper_is_already_applied(catalog):
    wrapped = catalog.wrap_env(make_cartpole())

    _, [(_, answer)] = catalog.explain_wrapping(wrapped)

    assert answer == Match(None, "is already applied")


def test_explain_wrapping_says_why_a_wrapper_does_not_match(catalog):
    _, [(_, answer)] = catalog.explain_wrapping(gym.make("Pendulum-v1"))

    assert answer == Match(None, "for carts with poles")


# --- policies -------------------------------------------------------------------------------------


def test_build_takes_the_spaces_of_the_wrapped_environment(catalog):
    policy = rlcatalog.build(env=make_cartpole(), config=SMALL, catalog=catalog)

    assert policy.observation_space.shape == (2 * 4,)


def test_policy_acts_in_the_wrapped_environment_only(catalog):
    env = make_cartpole()
    policy = rlcatalog.build(env=env, config=SMALL, catalog=catalog)

    wrapped_obs, _ = policy.wrap_env(env).reset(seed=0)
    raw_obs, _ = env.reset(seed=0)

    assert policy.act([wrapped_obs]).action.shape == (1,)
    with pytest.raises(ObservationError, match=r"obs: expected Box\(8,\) float32"):
        policy.act([raw_obs])


def test_loaded_policy_wraps_environments(catalog, tmp_path):
    rlcatalog.build(env=make_cartpole(), config=SMALL, catalog=catalog).save(tmp_path)

    loaded = loading.load(tmp_path, catalog=catalog)

    assert list_wrappers(loaded.wrap_env(make_cartpole()))[0] == "Doubled"


# --- vector environments --------------------------------------------------------------------------


def test_build_takes_a_vector_of_wrapped_environments(catalog):
    envs = make_vector("CartPole-v1", wrappers=[catalog.wrap_env])

    policy = rlcatalog.build(env=envs, config=SMALL, catalog=catalog)

    assert policy.observation_space.shape == (2 * 4,)


def test_build_rejects_a_vector_of_environments_to_wrap(catalog):
    with pytest.raises(ModelContractError, match="lack the wrapper 'double'") as caught:
        rlcatalog.build(env=make_vector("CartPole-v1"), catalog=catalog)

    assert "(acme 1.0: a cart with a pole)" in str(caught.value)


def test_build_takes_a_vector_that_no_wrapper_matches(catalog):
    policy = rlcatalog.build(env=make_vector("MountainCar-v0"), config=SMALL, catalog=catalog)

    assert policy.observation_space.shape == (2,)


@pytest.fixture
def check_vector(catalog):
    """Check whether a vector environment has its wrappers."""

    def check(envs):
        check_wrapped(catalog.slots.env_wrappers({}), envs, catalog.parse_config({}))

    return check


def test_vector_is_checked_by_its_first_environment(catalog, check_vector):
    raw = make_cartpole()
    wrapped = catalog.wrap_env(raw)

    check_vector(SimpleNamespace(envs=[wrapped, raw]))
    with pytest.raises(ModelContractError, match="'double'"):
        check_vector(SimpleNamespace(envs=[raw, wrapped]))


def test_vector_in_other_processes_is_not_checked(check_vector):
    check_vector(SimpleNamespace())  # without `envs`
