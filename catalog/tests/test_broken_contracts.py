"""Codecs, filters and environment wrappers that break their contracts: each is refused under its
name.

A plugin of one part is drawn together: what its methods do is one of many wrong things, or right.
What then happens is compared with what a part of this kind must do; nothing here imports a
framework.
"""

import random
import sys
import warnings
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
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
    hookimpl,
    restore_original_dimensions,
)
from rlcatalog.choice import Explanation
from rlcatalog.errors import CatalogError
from rlcatalog.observations.filter import make_filter
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint

#: What a method of the contract may return instead of an array or a shape.
WRONG = [
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
    lambda *a: None,
    Box(0, 1, (9,)),
    Discrete(3),
    iter(()),
]
RAISED = [
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
#: What a refusal may call the part by.
NAMES = ("WrongCodec", "WrongFilter", "wrong_part", "acme-wrong")
OBSERVED = Box(-1, 1, (2,))
SPACES = [
    OBSERVED,
    Dict(a=OBSERVED, b=Discrete(3)),
    Tuple([Discrete(2), Dict(c=OBSERVED, d=Text(3))]),
]


def wrong(rng):
    """Draw a method: it raises, or returns what it must not."""
    if rng.random() < 0.4:
        error = rng.choice(RAISED)

        def method(*arguments, **options):
            raise error

        return method
    value = rng.choice(WRONG)
    return lambda *arguments, **options: value


def harm(self, observation, *rest, **options):
    observation[...] = 7  # the environment's own array
    return np.zeros(2)


def as_is(self, observation, **options):
    return np.asarray(observation, np.float32)


def codec(rng):
    """Draw a class of codecs for OBSERVED, in RLlib's form or in ours."""
    right = {"_init_shape": lambda self, space, options: (2,), "transform": as_is}
    ours = {
        "_init_shape": right["_init_shape"],
        "writer": lambda self, start: (
            lambda obs, out: out.__setitem__(slice(start, start + 2), obs)
        ),
    }
    body = dict(rng.choice([right, ours]))
    name = rng.choice([*body, *body, "bounds", "__init__", "leaves", "batch_writer", "check"])
    body[name] = wrong(rng)
    if rng.random() < 0.15:
        body = {**right, "transform": harm}
    if rng.random() < 0.1:
        body |= {"writer": lambda self, start: wrong(rng)}
    return type("WrongCodec", (Preprocessor,), body)


def filter_class(rng):
    body = {"__call__": lambda self, encoded, *, update=False: encoded / 2}
    body[rng.choice(["__call__", "__call__", "__call__", "processed_space", "__init__"])] = wrong(
        rng
    )
    if rng.random() < 0.2:
        body = {"__call__": harm}
    return type("WrongFilter", (Filter,), body)


def wrapper(rng):
    def with_spaces(env, config):
        made = gym.Wrapper(env)
        made.observation_space = rng.choice(WRONG)
        return made

    def vector(env, config):
        return gym.vector.SyncVectorEnv([lambda: env])

    class Unfinished(gym.Wrapper):
        @property
        def observation_space(self):
            raise rng.choice([e for e in RAISED if isinstance(e, Exception)])

    return rng.choice(
        [
            wrong(rng),
            wrong(rng),
            with_spaces,
            vector,
            lambda env, config: Unfinished(env),
            Unfinished,
            Box,
        ]
    )


def plugin(kind, target):
    """Return a plugin of one part that is chosen wherever it may be."""

    def match(request):
        fits = kind != "preprocessor" or request.obs.space == OBSERVED
        return Match(Rank.SPECIFIC, "made for it") if fits else Match(Rank.FALLBACK, "never best")

    home = ModuleType("acme_wrong")
    home.target = target
    sys.modules["acme_wrong"] = home  # `fault` takes it out again
    specs = {"preprocessor": PreprocessorSpec, "filter": FilterSpec, "env_wrapper": EnvWrapperSpec}

    class Plugin:
        pass

    hook = hookimpl(
        lambda: [specs[kind]("wrong_part", {"numpy": "acme_wrong:target"}, "wrong", match=match)]
    )
    setattr(Plugin, f"rlcatalog_{kind}s", staticmethod(hook))
    return PluginEntryPoint(Plugin(), "acme-wrong")


def use(catalog, kind, rng):
    """Do with a part what a policy does with it, without a framework."""
    if kind == "env_wrapper":
        catalog.wrap_env(gym.make("CartPole-v1"))
        return
    space = rng.choice(SPACES) if kind == "preprocessor" else OBSERVED
    space.seed(0)
    config = {"observation_filter": "wrong_part" if kind == "filter" else "NoFilter"}
    resolution = catalog.resolve(space, Discrete(2), config, "torch")
    Explanation(resolution).as_dict()
    preprocessor = catalog.preprocessor_for(space, resolution.config)
    encoded = preprocessor.encode_batch([space.sample() for _ in range(3)])
    assert encoded.shape == (3, *preprocessor.shape)
    restore_original_dimensions(encoded.reshape(3, -1), preprocessor.observation_space)
    if kind == "filter":
        made = make_filter(resolution.choices["filter"].component, preprocessor, resolution.config)
        assert made.filtered(encoded, update=True).shape == (
            3,
            *made.processed_space(preprocessor).shape,
        )


def fault(entry_points, kind, seed):
    rng = random.Random(f"{kind} {seed}")
    target = {"preprocessor": codec, "filter": filter_class, "env_wrapper": wrapper}[kind](rng)
    catalog = Catalog([*entry_points, plugin(kind, target)], environ={})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(catalog, kind, rng)
    except CatalogError as error:
        said = str(error)
        if not any(name in said for name in (*NAMES, "no values")):
            return f"{kind} {seed}: names nobody: {said}"
    except BaseException as error:
        return f"{kind} {seed}: {type(error).__name__} is raw: {error!r}"
    finally:
        del sys.modules["acme_wrong"]
    return None


@pytest.fixture(scope="module")
def entry_points():
    return [entry_point for entry_point in scan() if entry_point.dist.name != "rlcatalog-atari"]


def attack(entry_points, seeds):
    kinds = ("preprocessor", "filter", "env_wrapper")
    faults = [found for seed in seeds if (found := fault(entry_points, kinds[seed % 3], seed))]
    assert not faults, f"{len(faults)} of {len(seeds)}:\n" + "\n".join(faults[:20])


def test_a_part_that_breaks_its_contract_is_refused_under_its_name(entry_points):
    attack(entry_points, range(60))


@pytest.mark.attack
def test_every_way_to_break_a_contract_is_refused_under_its_name(entry_points):
    attack(entry_points, range(2_000))
