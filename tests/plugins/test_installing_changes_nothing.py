"""Installing packages changes no lookup: random mixes of plugins beside the built-in ones.

Crosses: all packages.
"""

from __future__ import annotations

import itertools
import random
import warnings

import gymnasium as gym
import numpy as np
import pytest
from broken_plugins import install_parts, list_broken_plugins
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import (
    ActionDistSpec,
    Catalog,
    EnvWrapperSpec,
    Match,
    ModelSpec,
    PreprocessorSpec,
    Rank,
)
from rlcatalog.errors import CatalogError
from rlcatalog.frameworks import frameworks
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import PluginEntryPoint, plugin_of

FOUR_FEATURES = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (84, 84, 3), np.uint8)
OBSERVATIONS = [
    FOUR_FEATURES,
    IMAGE,
    Discrete(5),
    MultiDiscrete([2, 3]),
    MultiBinary(3),
    Box(0, 1, (4, 8, 8, 3), np.float32),
    Dict({"a": FOUR_FEATURES, "b": Discrete(2)}),
    Dict({"eye": IMAGE, "self": FOUR_FEATURES}),
    Tuple([FOUR_FEATURES, Discrete(3)]),
    Dict({"action_mask": Box(0, 1, (3,), np.int8), "obs": FOUR_FEATURES}),
]
ACTIONS = [
    Discrete(3),
    Box(-1, 1, (2,), np.float32),
    MultiDiscrete([3, 3]),
    Tuple([Discrete(3), Box(-1, 1, (2,))]),
]
CONFIGS = [
    {}, {"fcnet_hiddens": [8]}, {"use_lstm": True}, {"use_attention": True},
    {"observation_filter": "MeanStdFilter"}, {"vf_share_layers": False}, {"free_log_std": True},
    {"custom_model": "fcnet"},
]  # fmt: skip
SLOTS = ("preprocessor", "filter", "model", "memory", "head", "action_dist")


def make_greedy_plugin(rank: Rank, word: str) -> PluginEntryPoint:
    """Return a plugin that matches everything in every slot, with names that begin with a word."""

    def match(request: rlcatalog.Request) -> Match:
        return Match(rank, "takes anything")

    target = dict.fromkeys(frameworks(), f"{word}_parts:Part")
    plugin = plugin_of(
        rlcatalog_models=[
            ModelSpec(f"{word}_{slot}", target, "", slot=slot, match=match)
            for slot in ("trunk", "memory", "head")
        ],
        rlcatalog_action_dists=[
            ActionDistSpec(f"{word}_dist", target, "", match=match, size=lambda action, config: 4)
        ],
        rlcatalog_preprocessors=[
            PreprocessorSpec(f"{word}_codec", {"numpy": f"{word}_parts:Codec"}, "", match=match)
        ],
        rlcatalog_env_wrappers=[
            EnvWrapperSpec(f"{word}_wrapper", {"numpy": f"{word}_parts:wrap"}, "", match=match)
        ],
    )
    return PluginEntryPoint(plugin, word)


LOOKUPS = list(itertools.product(OBSERVATIONS, ACTIONS, CONFIGS, ("torch", "tf")))


def look_up(catalog: Catalog, lookup: tuple) -> tuple:
    """Return what a lookup chooses by address, or the error that it ends with."""
    obs, action, config, framework = lookup
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            explanation = catalog.explain(obs, action, config, framework).as_dict()
        except CatalogError as error:
            # After "Known:", the message lists all that is installed.
            return type(error).__name__, str(error).partition(" Known: ")[0]
    choices = [
        (slot, explanation[slot]["distribution"], explanation[slot]["chosen"]) for slot in SLOTS
    ]
    parts = [(part["path"], part["chosen"]) for part in explanation["action_parts"]]
    return (*choices, *parts)


def make_other_plugins() -> list[PluginEntryPoint]:
    """Return a greedy plugin of each rank, and a plugin for each fault of the broken ones."""
    install_parts()
    plugins = [make_greedy_plugin(rank, f"greedy{rank.value}") for rank in Rank]
    plugins += [broken.entry_point(number) for number, broken in enumerate(list_broken_plugins())]
    return plugins


@pytest.fixture(scope="module")
def built_in_results() -> list[tuple]:
    """The result of each lookup where only the packages of this repository are installed."""
    catalog = Catalog(scan(), environ={})
    return [look_up(catalog, lookup) for lookup in LOOKUPS]


def find_changes(built_in_results: list[tuple], mixes: int, lookups: int, seed: int) -> list[str]:
    """Describe the lookups that random mixes of other plugins change.

    Args:
        built_in_results: The result of each lookup without them.
        mixes: Number of mixes.
        lookups: Number of random lookups with each mix.
        seed: Seed of both choices.
    """
    rng = random.Random(seed)
    plugins = make_other_plugins()
    changes = []
    for _ in range(mixes):
        mix = rng.sample(plugins, rng.randrange(1, len(plugins)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            catalog = Catalog((*scan(), *mix), environ={})
        for number in rng.sample(range(len(LOOKUPS)), lookups):
            before = built_in_results[number]
            after = look_up(catalog, LOOKUPS[number])
            if before != after:
                changes.append(f"{LOOKUPS[number]}: {before} became {after}")
    return changes


def test_installing_plugins_changes_no_lookup(built_in_results):
    assert find_changes(built_in_results, mixes=6, lookups=20, seed=0) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_mixes_of_plugins_change_no_lookup(built_in_results, seed):
    assert find_changes(built_in_results, mixes=25, lookups=300, seed=seed) == []


def test_comparison_detects_a_preferred_package():
    greedy = make_greedy_plugin(Rank.SPECIFIC, "greedy")
    lookup = (FOUR_FEATURES, Discrete(3), {}, "torch")

    built_in = Catalog(scan(), environ={})
    preferring = Catalog((*scan(), greedy), environ={}, prefer=["greedy"])

    assert look_up(built_in, lookup) != look_up(preferring, lookup)


def test_wrappers_of_plugins_need_a_switch():
    env = gym.make("CartPole-v1")
    greedy = make_greedy_plugin(Rank.SPECIFIC, "greedy")
    catalog = Catalog((*scan(), greedy), environ={})
    assert catalog.wrap_env(env) is env
