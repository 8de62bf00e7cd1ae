"""Adapters of environments: recognised by names, and asked wherever an environment comes in."""

from __future__ import annotations

import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import EnvAdapterSpec, public_index
from rlcatalog.catalog import count_envs, is_environment, make_env, makes_vector
from rlcatalog.errors import (
    DeclarationError,
    MissingPluginError,
    PluginError,
    UnknownNameError,
)

#: The module that the simulators below pretend to come from.
SIMULATOR_MODULE = "acme_core.python.env"


class Simulator:
    """An environment of another kind than Gymnasium's."""

    times_closed = 0

    def __init__(self, size=3, num_envs=1, seed=None):
        self.size = size
        self.num_envs = num_envs
        self.seed = seed

    def close(self):
        Simulator.times_closed += 1


class Adapted(VectorEnv):
    """The simulator in Gymnasium's form."""

    def __init__(self, simulator):
        self.simulator = simulator
        self.num_envs = simulator.num_envs
        self.single_observation_space = gym.spaces.Box(-1, 1, (simulator.size,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def close(self, **_):
        self.simulator.close()


def adapt(env):
    return Adapted(getattr(env, "unwrapped", env))


def make_simulator(**arguments):
    return Simulator(**arguments)


def make_by_name(name, **arguments):
    if name != "Maze-v1":
        raise KeyError(name)
    return Adapted(Simulator(**arguments))


def make_vec(name, num_envs, **arguments):
    return make_by_name(name, num_envs=num_envs, **arguments)


@pytest.fixture
def declare(monkeypatch, entry_point, plugin):
    """Return a function that installs acme's plugin with an adapter, and the adapter's code."""
    code = ModuleType("acme_adapters")
    vars(code).update(adapt=adapt, make=make_by_name, make_vec=make_vec, fail=lambda _: 1 / 0)
    code.nothing = lambda _: None
    monkeypatch.setitem(sys.modules, "acme_adapters", code)
    monkeypatch.setattr(Simulator, "__module__", SIMULATOR_MODULE)
    # Targets are imported once per process, and these belong to one test.
    monkeypatch.setattr("rlcatalog.choice.env_adapters._load", load_without_memory)

    def install(function="adapt", distribution="acme", **fields):
        targets = {"numpy": f"acme_adapters:{function}", **fields.pop("targets", {})}
        if "attributes" not in fields:
            fields.setdefault("modules", ("acme_core",))
        spec = EnvAdapterSpec(distribution, targets, "simulations", **fields)
        acme = plugin(rlcatalog_env_adapters=[spec])
        return make_catalog(entry_point(distribution, acme))

    return install


def load_without_memory(target):
    module, _, name = target.partition(":")
    return getattr(sys.modules[module], name)


# --- recognition ----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["acme_core", "acme_core.python", SIMULATOR_MODULE])
def test_adapter_fits_a_class_in_its_package(declare, module):
    declare(modules=(module,))
    simulator = Simulator()

    adapted = make_env(simulator)

    assert adapted.simulator is simulator


def test_adapter_fits_a_subclass_of_another_module(declare):
    declare()

    class OwnSimulator(Simulator):
        __module__ = "my_project"

    assert is_environment(OwnSimulator())


def test_adapter_of_the_nearest_class_is_asked(declare, monkeypatch):
    declare()
    sys.modules["acme_adapters"].adapt_nearest = lambda _: gym.make("CartPole-v1")
    declare("adapt_nearest", distribution="nearer", modules=("my_project",))

    class OwnSimulator(Simulator):
        __module__ = "my_project"

    assert make_env(OwnSimulator()).spec.id == "CartPole-v1"


@pytest.mark.parametrize("module", ["acme", "acme_core.pyth", "core"])
def test_adapter_does_not_fit_part_of_a_name(declare, module):
    declare(modules=(module,))

    assert not is_environment(Simulator())


def test_adapter_fits_all_its_attributes(declare):
    declare(attributes=("num_envs", "gpu"))
    simulator = Simulator()

    assert not is_environment(simulator)

    simulator.gpu = "cuda:0"

    assert isinstance(make_env(simulator), Adapted)


def test_attributes_are_read_inside_gymnasiums_wrappers(declare):
    declare(attributes=("num_envs", "gpu"))
    env = gym.make("CartPole-v1")
    env.unwrapped.gpu = "cuda:0"

    assert make_env(env) is env

    env.unwrapped.num_envs = 2
    env.unwrapped.size = 3

    assert make_env(env).simulator is env.unwrapped


def test_class_is_not_an_environment(declare):
    declare()
    Simulator.single_action_space = gym.spaces.Discrete(2)

    assert not is_environment(Simulator)

    del Simulator.single_action_space


def test_environment_of_gymnasium_is_not_adapted(declare):
    declare()
    env = gym.make("CartPole-v1")

    assert make_env(env) is env


# --- where an environment comes in ----------------------------------------------------------------


def test_build_and_explain_read_the_adapted_spaces(declare):
    catalog = declare()

    policy = rlcatalog.build(env=Simulator(size=5), catalog=catalog)
    explanation = catalog.explain(env=Simulator(size=5))

    assert policy.observation_space.shape == (5,)
    assert explanation.resolution.request.obs.shape == (5,)


@pytest.mark.parametrize(
    ("env", "times_closed"),
    [
        pytest.param(Simulator(), 0, id="passed"),  # its caller goes on with it
        pytest.param(lambda: Simulator(), 1, id="made"),
    ],
)
def test_read_env_closes_only_what_it_made(declare, monkeypatch, env, times_closed):
    catalog = declare()
    monkeypatch.setattr(Simulator, "times_closed", 0)

    catalog.read_env(env)

    assert Simulator.times_closed == times_closed


def test_environment_that_a_function_makes_is_adapted(declare):
    declare()

    adapted = make_env(make_simulator, {"size": 7})

    assert adapted.single_observation_space.shape == (7,)


# --- ids ------------------------------------------------------------------------------------------


def test_prefix_makes_one_environment(declare):
    declare(prefix="acme", targets={"make": "acme_adapters:make"})

    env = make_env("acme:Maze-v1", {"size": 5, "seed": 3})

    assert env.simulator.size == 5
    assert env.simulator.seed == 3
    assert not makes_vector("acme:Maze-v1")


@pytest.mark.parametrize(("config", "num_envs"), [({}, 1), ({"num_envs": 4}, 4)])
def test_prefix_makes_a_vector_environment(declare, config, num_envs):
    declare(prefix="acme", targets={"make_vec": "acme_adapters:make_vec"})

    env = make_env("acme:Maze-v1", {**config, "seed": 3})

    assert count_envs(env) == num_envs
    assert env.simulator.seed == 3
    assert makes_vector("acme:Maze-v1")


def test_prefix_takes_precedence_over_gymnasium(declare):
    declare(prefix="json", targets={"make": "acme_adapters:make"})

    # Gymnasium would import the module json, and make its own CartPole.
    with pytest.raises(UnknownNameError, match="'json:CartPole-v1' cannot be made"):
        make_env("json:CartPole-v1")


def test_prefix_of_a_package_that_is_not_installed(monkeypatch):
    listed = {"env_adapter/pool:": "acme-pool"}
    monkeypatch.setattr(
        public_index, "provider_of", lambda kind, name: listed.get(f"{kind}/{name}")
    )

    with pytest.raises(MissingPluginError, match="acme-pool"):
        make_env("pool:CartPole-v1")


# --- faults ---------------------------------------------------------------------------------------


def test_adapter_that_raises_is_named(declare):
    declare("fail")

    with pytest.raises(PluginError, match="env_adapter 'acme' raised ZeroDivisionError"):
        make_env(Simulator())


def test_adapter_that_returns_something_else_is_named(declare):
    declare("nothing")

    with pytest.raises(PluginError, match=r"must return a gymnasium\.Env"):
        make_env(Simulator())


def test_two_adapters_of_one_module_are_left_out(monkeypatch, entry_point, plugin):
    monkeypatch.setattr(Simulator, "__module__", "simulators")
    points = []
    for name in ("acme", "rival"):
        spec = EnvAdapterSpec(name, {"numpy": "m:adapt"}, "", modules=("simulators",))
        points.append(entry_point(name, plugin(rlcatalog_env_adapters=[spec])))

    with pytest.warns(UserWarning, match="is claimed by acme and rival"):
        make_catalog(*points)

    assert not is_environment(Simulator())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({}, "modules or attributes must say", id="nothing-to-match"),
        pytest.param(
            {"modules": ("m",), "prefix": "acme"}, "needs one target, 'make'", id="prefix-alone"
        ),
        pytest.param({"modules": "acme_core"}, "must be a tuple of text", id="text"),
        pytest.param({"modules": ("m",), "prefix": "a:b"}, "prefix must be a word", id="colon"),
    ],
)
def test_declaration_rejects_wrong_fields(fields, problem):
    with pytest.raises(DeclarationError, match=problem):
        EnvAdapterSpec("acme", {"numpy": "m:adapt"}, "", **fields)


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        pytest.param({"make": "m:make"}, "targets must have 'numpy'", id="no-adapt"),
        pytest.param({"numpy": "m:f", "make": "m:make"}, "needs a prefix", id="no-prefix"),
    ],
)
def test_declaration_rejects_wrong_targets(targets, problem):
    with pytest.raises(DeclarationError, match=problem):
        EnvAdapterSpec("acme", targets, "", modules=("acme_core",))


# --- counting -------------------------------------------------------------------------------------


class VectorInOneClass(gym.Env):
    """A `gymnasium.Env` with `num_envs`, as in older versions of EnvPool."""

    num_envs = 6
    single_observation_space = gym.spaces.Box(-1, 1, (5,), np.float32)
    single_action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-1, 1, (6, 5), np.float32)
    action_space = gym.spaces.MultiDiscrete([2] * 6)


def test_environments_are_counted_by_their_number():
    assert count_envs(VectorInOneClass()) == 6
    assert count_envs(gym.Wrapper(VectorInOneClass())) == 6
    assert count_envs(gym.make("CartPole-v1")) is None
    assert count_envs(VectorInOneClass) is None
    assert count_envs("CartPole-v1") is None


@pytest.mark.parametrize("wrap", [lambda env: env, gym.Wrapper], ids=["bare", "wrapped"])
def test_build_takes_the_spaces_of_one_of_them(wrap):
    policy = rlcatalog.build(env=wrap(VectorInOneClass()))

    assert policy.observation_space.shape == (5,)


def test_spec_without_an_id_is_explained_by_its_class():
    env = VectorInOneClass()
    env.spec = object()  # EnvPool's describes the simulator

    assert rlcatalog.explain(env=env).env == "VectorInOneClass"
