"""Installing packages never changes what a config builds: lookups with random mixes of plugins
beside the built-ins.

Crosses: all packages.
"""

from __future__ import annotations

import random
import warnings

import gymnasium as gym
import numpy as np
import pytest
from broken_plugins import install_parts, table
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

VECTOR, IMAGE = Box(-1, 1, (4,), np.float32), Box(0, 255, (84, 84, 3), np.uint8)
OBSERVATIONS = [
    VECTOR,
    IMAGE,
    Discrete(5),
    MultiDiscrete([2, 3]),
    MultiBinary(3),
    Box(0, 1, (4, 8, 8, 3), np.float32),
    Dict({"a": VECTOR, "b": Discrete(2)}),
    Dict({"eye": IMAGE, "self": VECTOR}),
    Tuple([VECTOR, Discrete(3)]),
    Dict({"action_mask": Box(0, 1, (3,), np.int8), "obs": VECTOR}),
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


def greedy(rank: Rank, word: str) -> PluginEntryPoint:
    """A plugin that matches everything in every slot."""

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


LOOKUPS = [
    (o, a, c, f) for o in OBSERVATIONS for a in ACTIONS for c in CONFIGS for f in ("torch", "tf")
]


def answer(catalog: Catalog, lookup: tuple) -> tuple:
    """Return what a lookup chooses by address, or the error that it ends with."""
    obs, action, config, framework = lookup
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = catalog.explain(obs, action, config, framework).as_dict()
        except CatalogError as error:
            return type(error).__name__, str(error).partition(" Known: ")[0]
    chosen = [(slot, found[slot]["distribution"], found[slot]["chosen"]) for slot in SLOTS]
    return (*chosen, *((part["path"], part["chosen"]) for part in found["action_parts"]))


def outside_plugins() -> list[PluginEntryPoint]:
    """Return greedy plugins of each rank, and one plugin for each fault of the broken ones."""
    install_parts()
    entry_points = [greedy(rank, f"greedy{rank.value}") for rank in Rank]
    return [*entry_points, *(broken.entry_point(number) for number, broken in enumerate(table()))]


@pytest.fixture(scope="module")
def bare_answers() -> list[tuple]:
    bare = Catalog(scan(), environ={})
    return [answer(bare, lookup) for lookup in LOOKUPS]


def differences(bare_answers: list[tuple], mixes: int, lookups_each: int, seed: int) -> list[str]:
    rng, everyone = random.Random(seed), outside_plugins()
    found = []
    for _ in range(mixes):
        mix = rng.sample(everyone, rng.randrange(1, len(everyone)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            full = Catalog((*scan(), *mix), environ={})
        for number in rng.sample(range(len(LOOKUPS)), lookups_each):
            before, after = bare_answers[number], answer(full, LOOKUPS[number])
            if before != after:
                found.append(f"{LOOKUPS[number]}: {before} became {after}")
    return found


def test_installing_plugins_changes_no_lookup(bare_answers):
    assert differences(bare_answers, mixes=6, lookups_each=20, seed=0) == []


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_mixes_of_plugins_change_no_lookup(bare_answers, seed):
    assert differences(bare_answers, mixes=25, lookups_each=300, seed=seed) == []


def test_comparison_detects_a_preferred_package():
    """The comparison sees a change where there is one."""
    bare = Catalog(scan(), environ={})
    full = Catalog((*scan(), greedy(Rank.SPECIFIC, "greedy")), environ={}, prefer=["greedy"])
    lookup = (VECTOR, Discrete(3), {}, "torch")
    assert answer(bare, lookup) != answer(full, lookup)


def test_wrappers_of_plugins_need_a_switch():
    env = gym.make("CartPole-v1")
    full = Catalog((*scan(), greedy(Rank.SPECIFIC, "greedy")), environ={})
    assert full.wrap_env(env) is env
