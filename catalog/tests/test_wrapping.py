"""Environment wrappers of plugins: applied once, in order, by `wrap_env`, `build(env=...)` and a
policy.
"""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import Catalog, EnvWrapperSpec, Match, Rank
from rlcatalog.choice.environments import check_wrapped
from rlcatalog.errors import ModelContractError, ObservationError, PluginError
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading

OWN = ("fcnet", "categorical", "gaussian", "preprocessors")


class Doubled(gym.ObservationWrapper):
    """Shows the observation twice."""

    def __init__(self, env):
        super().__init__(env)
        low, high = (
            np.tile(bound, 2) for bound in (env.observation_space.low, env.observation_space.high)
        )
        self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation):
        return np.tile(observation, 2)


def double(env, config):
    return Doubled(env)


def limit(env, config):
    return gym.wrappers.TimeLimit(env, config["max_seq_len"])


def leave(env, config):
    return env


def fail(env, config):
    raise RuntimeError("no such screen")


def nothing(env, config):
    return None


def spaceless(env, config):
    env = gym.Wrapper(env)
    env.action_space = "left or right"
    return env


def only_cartpole(request):
    if request.env.spec is not None and request.env.spec.id.startswith("CartPole"):
        return Match(Rank.GENERIC, "a cart with a pole")
    return Match(None, "for carts with poles")


@pytest.fixture
def catalog(module, entry_point, plugin):
    """Make a catalog with the given wrapper functions."""

    def make(*functions):
        module(**{function.__name__: function for function in functions})
        specs = [
            EnvWrapperSpec(
                f.__name__, {"numpy": f"made_up_parts:{f.__name__}"}, "", match=only_cartpole
            )
            for f in functions
        ]
        points = [point for point in scan() if point.name in OWN]
        points.append(entry_point("acme", plugin(rlcatalog_env_wrappers=specs)))
        return Catalog(points, environ={}, prefer=["acme"])

    return make


def chain(env):
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


def test_wrapping_twice_is_wrapping_once(catalog):
    catalog = catalog(double, limit)
    env = catalog.wrap_env(gym.make("CartPole-v1"))
    assert chain(env)[:2] == ["TimeLimit", "Doubled"]
    assert catalog.wrap_env(env) is env
    # Also beneath a wrapper of the user's own.
    mine = gym.wrappers.TransformReward(env, lambda reward: reward)
    assert catalog.wrap_env(mine) is mine


def test_a_wrapper_that_returns_the_environment_may_be_asked_again(catalog):
    env = gym.make("CartPole-v1")
    assert catalog(leave).wrap_env(env) is env


def test_a_wrapper_is_asked_with_both_spaces_of_the_environment(entry_point, plugin):
    seen = []
    spec = EnvWrapperSpec(
        "watcher",
        {"numpy": "made_up_parts:watcher"},
        "",
        match=lambda r: seen.append(r) or Match(None, "no"),
    )
    catalog = Catalog(
        [entry_point("acme", plugin(rlcatalog_env_wrappers=[spec]))], environ={}, prefer=["acme"]
    )
    for name in ("CartPole-v1", "Pendulum-v1"):
        catalog.wrap_env(gym.make(name))
    assert [(r.obs.shape, r.action.kind, r.action.shape) for r in seen] == [
        ((4,), "discrete", ()),
        ((3,), "box", (1,)),
    ]


class Native:
    """Stands for an object of an extension, which has no `__dict__`."""

    __slots__ = ()


def test_an_attribute_called_env_need_not_be_an_environment(catalog):
    env = gym.make("CartPole-v1").unwrapped
    env.env = Native()
    assert catalog(double).wrap_env(env).env is env


def test_what_each_wrapper_said(catalog):
    catalog = catalog(double)
    env, said = catalog.explain_wrapping(gym.make("CartPole-v1"))
    assert [(c.name, answer) for c, answer in said] == [
        ("double", Match(Rank.GENERIC, "a cart with a pole"))
    ]
    _, said = catalog.explain_wrapping(env)
    assert [answer for _, answer in said] == [Match(None, "is already applied")]
    _, said = catalog.explain_wrapping(gym.make("Pendulum-v1"))
    assert [answer for _, answer in said] == [Match(None, "for carts with poles")]


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (
            fail,
            PluginError,
            r"env_wrapper 'fail' \(acme 1\.0\) raised RuntimeError: no such screen",
        ),
        (
            nothing,
            ModelContractError,
            r"env_wrapper 'nothing' \(acme 1\.0\) must return an environment, found None",
        ),
        (
            spaceless,
            ModelContractError,
            r"env_wrapper 'spaceless' \(acme 1\.0\) .* found 'left or right'",
        ),
    ],
)
def test_a_wrapper_that_fails_is_named(catalog, function, error, said):
    with pytest.raises(error, match=said):
        catalog(function).wrap_env(gym.make("CartPole-v1"))


def test_what_is_no_single_environment_is_refused(catalog):
    catalog = catalog(double)
    with pytest.raises(
        ModelContractError, match=r"wrap_env: expected a gymnasium\.Env, found 'CartPole-v1'"
    ):
        catalog.wrap_env("CartPole-v1")
    with pytest.raises(
        ModelContractError, match=r"gymnasium\.make_vec\(id, wrappers=\[rlcatalog\.wrap_env\]\)"
    ):
        catalog.wrap_env(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))


def test_build_takes_the_spaces_of_the_wrapped_environment(catalog, tmp_path):
    catalog, raw = catalog(double), gym.make("CartPole-v1")
    policy = rlcatalog.build(env=raw, config={"fcnet_hiddens": [4]}, catalog=catalog)
    assert policy.observation_space.shape == (8,)
    env = policy.wrap_env(raw)
    obs, _ = env.reset(seed=0)
    assert policy.act([obs]).action.shape == (1,)
    with pytest.raises(ObservationError, match=r"obs: expected Box\(8,\) float32"):
        policy.act([raw.reset(seed=0)[0]])
    policy.save(tmp_path)
    again = loading.load(tmp_path, catalog=catalog)
    assert chain(again.wrap_env(gym.make("CartPole-v1")))[0] == "Doubled"


def test_build_reads_a_vector_environment_that_is_wrapped_already(catalog):
    catalog = catalog(double)
    envs = gym.make_vec(
        "CartPole-v1", num_envs=2, vectorization_mode="sync", wrappers=[catalog.wrap_env]
    )
    assert rlcatalog.build(
        env=envs, config={"fcnet_hiddens": [4]}, catalog=catalog
    ).observation_space.shape == (8,)


def test_a_vector_environment_without_its_wrappers_is_refused(catalog):
    catalog = catalog(double)
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(
        ModelContractError, match=r"lack the wrapper 'double' \(acme 1\.0: a cart with a pole\)"
    ):
        rlcatalog.build(env=envs, catalog=catalog)
    other = gym.make_vec("MountainCar-v0", num_envs=2, vectorization_mode="sync")
    assert rlcatalog.build(
        env=other, config={"fcnet_hiddens": [4]}, catalog=catalog
    ).observation_space.shape == (2,)


def test_the_first_member_of_a_vector_environment_stands_for_all(catalog):
    catalog = catalog(double)
    wrappers, config = catalog.slots.env_wrappers({}), catalog.parse_config({})
    raw = gym.make("CartPole-v1")
    check_wrapped(wrappers, SimpleNamespace(envs=[catalog.wrap_env(raw), raw]), config)
    check_wrapped(wrappers, SimpleNamespace(), config)  # its members are in other processes
    with pytest.raises(ModelContractError, match="'double'"):
        check_wrapped(wrappers, SimpleNamespace(envs=[raw, catalog.wrap_env(raw)]), config)
