"""Codecs, filters and environment wrappers that break their contracts: errors that name them.

Each test draws plugins with one part, of which a random method does something wrong. Whatever it
is, using the part must either work or raise an error that names the part. Nothing here imports a
framework.
"""

import random
import sys
import warnings
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
from faulty_functions import function_that_raises, function_that_returns
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from rlcatalog import (
    Catalog,
    EnvWrapperSpec,
    Filter,
    FilterSpec,
    Match,
    Preprocessor,
    PreprocessorSpec,
    Rank,
    restore_original_dimensions,
)
from rlcatalog.choice import Explanation
from rlcatalog.errors import CatalogError
from rlcatalog.observations.filter import make_filter
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, plugin_of

#: What a method may return instead of an array or a shape.
WRONG_VALUES = [
    None,
    0,
    -1,
    2.5,
    "x",
    b"x",
    (),
    (1,),
    (2.5,),
    (-1,),
    ("a",),
    (2**40, 2**40),
    [[1], [2, 3]],
    {},
    {"a": 1},
    object(),
    np.zeros(0),
    np.zeros(7),
    np.zeros((7, 7)),
    np.zeros(2, complex),
    np.array(["a", "b"]),
    np.array([None, {}]),
    np.zeros(2, "datetime64[s]"),
    np.array(3.0),
    float("nan"),
    lambda *arguments: None,
    Box(0, 1, (9,)),
    Discrete(3),
    iter(()),
]
#: What a method may raise.
ERRORS = [
    ZeroDivisionError("no"),
    KeyError("k"),
    RuntimeError(),
    StopIteration(),
    AssertionError("bad"),
    MemoryError(),
    RecursionError(),
    OSError(2, "gone"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
    Exception(object()),
    ImportError("later"),
    SystemExit(3),
    NotImplementedError(),
    LookupError("\ud800"),
]
#: Names of the part, one of which an error has to contain.
NAMES = ("WrongCodec", "WrongFilter", "wrong_part", "acme-wrong")
TWO_FEATURES = Box(-1, 1, (2,))
SPACES = [
    TWO_FEATURES,
    Dict(a=TWO_FEATURES, b=Discrete(3)),
    Tuple([Discrete(2), Dict(c=TWO_FEATURES, d=Text(3))]),
]
KINDS = ("preprocessor", "filter", "env_wrapper")


# --- parts that are drawn -------------------------------------------------------------------------


def draw_method(rng):
    """Draw a method that raises an error or returns a wrong value."""
    if rng.random() < 0.4:
        return function_that_raises(rng.choice(ERRORS))
    return function_that_returns(rng.choice(WRONG_VALUES))


def overwrite(self, observation, *arguments, **options):
    """Write into the array of the environment."""
    observation[...] = 7
    return np.zeros(2)


def encode(self, observation, **options):
    return np.asarray(observation, np.float32)


def init_shape(self, space, options):
    return (2,)


def writer(self, start):
    def write(observation, out):
        out[start : start + 2] = observation

    return write


#: Methods of correct codecs for VECTOR, in the form of RLlib and in ours.
RLLIB_CODEC = {"_init_shape": init_shape, "transform": encode}
CODEC = {"_init_shape": init_shape, "writer": writer}


def draw_codec(rng):
    methods = dict(rng.choice([RLLIB_CODEC, CODEC]))
    others = ["bounds", "__init__", "leaves", "batch_writer", "check"]
    name = rng.choice([*methods, *methods, *others])
    methods[name] = draw_method(rng)
    if rng.random() < 0.15:
        methods = {**RLLIB_CODEC, "transform": overwrite}
    if rng.random() < 0.1:
        methods["writer"] = lambda self, start: draw_method(rng)
    return type("WrongCodec", (Preprocessor,), methods)


def halve(self, encoded, *, update=False):
    return encoded / 2


def draw_filter(rng):
    methods = {"__call__": halve}
    name = rng.choice(["__call__", "__call__", "__call__", "processed_space", "__init__"])
    methods[name] = draw_method(rng)
    if rng.random() < 0.2:
        methods = {"__call__": overwrite}
    return type("WrongFilter", (Filter,), methods)


def draw_wrapper(rng):
    """Draw a wrapper: a function of an environment and a config, or something else."""

    class RaisingWrapper(gym.Wrapper):
        @property
        def observation_space(self):
            raise rng.choice([error for error in ERRORS if isinstance(error, Exception)])

    def wrap_with_wrong_space(env, config):
        wrapper = gym.Wrapper(env)
        wrapper.observation_space = rng.choice(WRONG_VALUES)
        return wrapper

    def wrap_in_vector_env(env, config):
        return gym.vector.SyncVectorEnv([lambda: env])

    def wrap_with_raising_space(env, config):
        return RaisingWrapper(env)

    return rng.choice(
        [
            draw_method(rng),
            draw_method(rng),
            wrap_with_wrong_space,
            wrap_in_vector_env,
            wrap_with_raising_space,
            RaisingWrapper,  # it takes no config
            Box,
        ]
    )


# --- how parts are used ---------------------------------------------------------------------------


def make_plugin(kind, target):
    """Return a plugin with one part, which is chosen wherever it may be."""

    def match(request):
        if kind != "preprocessor" or request.obs.space == TWO_FEATURES:
            return Match(Rank.SPECIFIC, "made for it")
        return Match(Rank.FALLBACK, "never best")

    # `find_fault` removes the module.
    module = ModuleType("acme_wrong")
    module.target = target
    sys.modules["acme_wrong"] = module
    specs = {"preprocessor": PreprocessorSpec, "filter": FilterSpec, "env_wrapper": EnvWrapperSpec}
    spec = specs[kind]("wrong_part", {"numpy": "acme_wrong:target"}, "wrong", match=match)
    return PluginEntryPoint(plugin_of(**{f"rlcatalog_{kind}s": [spec]}), "acme-wrong")


def use(catalog, kind, rng):
    """Use a part as a policy does, without a framework."""
    if kind == "env_wrapper":
        catalog.wrap_env(gym.make("CartPole-v1"))
        return

    space = rng.choice(SPACES) if kind == "preprocessor" else TWO_FEATURES
    space.seed(0)
    config = {"observation_filter": "wrong_part" if kind == "filter" else "NoFilter"}
    resolution = catalog.resolve(space, Discrete(2), config, "torch")
    Explanation(resolution).as_dict()

    preprocessor = catalog.preprocessor_for(space, resolution.config)
    encoded = preprocessor.encode_batch([space.sample() for _ in range(3)])
    assert encoded.shape == (3, *preprocessor.shape)
    restore_original_dimensions(encoded.reshape(3, -1), preprocessor.observation_space)

    if kind == "filter":
        part = resolution.choices["filter"].part
        obs_filter = make_filter(part, preprocessor, resolution.config)
        filtered = obs_filter.filtered(encoded, update=True)
        assert filtered.shape == (3, *obs_filter.processed_space(preprocessor).shape)


def find_fault(entry_points, kind, seed):
    """Draw a part, use it, and return what is wrong with the error that it causes, or None."""
    rng = random.Random(f"{kind} {seed}")
    draw = {"preprocessor": draw_codec, "filter": draw_filter, "env_wrapper": draw_wrapper}[kind]
    plugin = make_plugin(kind, draw(rng))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(Catalog([*entry_points, plugin], environ={}), kind, rng)
    except CatalogError as error:
        message = str(error)
        # If no values are left, the error names the space instead.
        if not any(name in message for name in (*NAMES, "no values")):
            return f"{kind} {seed}: the error names no part: {message}"
    except BaseException as error:
        return f"{kind} {seed}: not an error of rlcatalog: {error!r}"
    finally:
        del sys.modules["acme_wrong"]
    return None


@pytest.fixture(scope="module")
def entry_points():
    """The installed plugins, without the one that would wrap games."""
    return [point for point in scan() if point.dist.name != "rlcatalog-atari"]


def find_faults(entry_points, seeds):
    faults = [find_fault(entry_points, KINDS[seed % 3], seed) for seed in seeds]
    return [fault for fault in faults if fault is not None]


def test_part_breaking_its_contract_is_rejected_by_name(entry_points):
    assert find_faults(entry_points, range(60)) == []


@pytest.mark.slow
def test_many_parts_breaking_their_contract_are_rejected(entry_points):
    assert find_faults(entry_points, range(2_000)) == []
