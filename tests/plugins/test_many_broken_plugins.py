"""Broken and greedy plugins: each is named in a warning, and changes no lookup.

Crosses: all packages.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from broken_plugins import install_parts, list_broken_plugins

from rlcatalog import Catalog
from rlcatalog.catalog import default_catalog
from rlcatalog.choice.explanation import explanation_sheet
from rlcatalog.errors import CatalogError, PluginWarning, reason
from rlcatalog_cli.listing import list_sheet
from rlcatalog_testing import isolated_catalog

HEALTHY = (
    "rlcatalog-preprocessors",
    "rlcatalog-fcnet",
    "rlcatalog-visionnet",
    "rlcatalog-lstm",
    "rlcatalog-categorical",
    "rlcatalog-gaussian",
    "rlcatalog-ppo",
)
SPACES = [
    (gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)),
    (
        gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1, 1, (2,), np.float32)),
        gym.spaces.Box(-1, 1, (2,)),
    ),
]
CONFIG = {"fcnet_hiddens": [32, 16]}
BROKEN = list_broken_plugins()


@pytest.fixture(autouse=True)
def broken_parts(monkeypatch):
    """Make the modules of broken plugins importable, and installed plugins invisible to them."""
    install_parts()
    # It is cached for other tests of this process, so it must know the installed plugins.
    default_catalog()
    # Some broken plugins build a catalog.
    monkeypatch.setattr("rlcatalog.catalog.catalog.scan", lambda: ())


def explain_lookups(catalog: Catalog) -> list[dict[str, Any]]:
    return [catalog.explain(*spaces, CONFIG, "torch").as_dict() for spaces in SPACES]


def select_choices(explanation: dict[str, Any]) -> dict[str, Any]:
    """Return what a lookup chooses and builds, without the candidates that it rejects."""
    slots = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
    choices = {key: explanation[key] for key in ("plan", "model_sees", "shapes")}
    for slot in slots:
        choices[slot] = (explanation[slot]["chosen"], explanation[slot]["distribution"])
    return choices


class Healthy(NamedTuple):
    """A catalog without broken plugins."""

    parts: dict[tuple[str, str], str]  # kind and name → distribution
    choices: list[dict[str, Any]]


@pytest.fixture(scope="module")
def healthy() -> Healthy:
    catalog = isolated_catalog(*HEALTHY)
    parts = {(part.kind, part.name): part.distribution for part in catalog.parts()}
    choices = [select_choices(explanation) for explanation in explain_lookups(catalog)]
    return Healthy(parts, choices)


def check_broken_plugins(numbers: Iterable[int], order: random.Random, healthy: Healthy) -> None:
    """Load some broken plugins among the healthy ones, in random order, and use the catalog."""
    broken = {number: BROKEN[number] for number in numbers}
    points = [*HEALTHY, *(plugin.entry_point(number) for number, plugin in broken.items())]
    order.shuffle(points)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        catalog = isolated_catalog(*points)
        explanations = explain_lookups(catalog)
        use_catalog(catalog)
        print_explanation(explanations[0])

    messages = [str(warning.message) for warning in caught]
    assert all(issubclass(warning.category, PluginWarning) for warning in caught), messages
    for number, plugin in broken.items():
        if not plugin.loads:
            assert any(f"broken-{number} " in message for message in messages), plugin.fault
    assert [select_choices(explanation) for explanation in explanations] == healthy.choices
    check_healthy_plugins(catalog, healthy)


def use_catalog(catalog: Catalog) -> None:
    """Use what a program and the command line use beside lookups."""
    env = gym.make("CartPole-v1")
    catalog.explain_wrapping(env)
    env.close()
    assert catalog.parse_config(CONFIG)["fcnet_hiddens"] == [32, 16]
    print(list_sheet(catalog.plugins, catalog.parts()).text())
    json.dumps([record.error for record in catalog.plugins])


def print_explanation(explanation: dict[str, Any]) -> None:
    print(explanation_sheet(explanation, all=True).text())
    json.dumps(explanation)


def check_healthy_plugins(catalog: Catalog, healthy: Healthy) -> None:
    for record in catalog.plugins:
        if record.distribution in HEALTHY:
            assert record.status == "loaded"
            assert record.error is None
    parts = {
        (part.kind, catalog.registry.name_of(part)): part.distribution for part in catalog.parts()
    }
    assert healthy.parts.items() <= parts.items()


def find_failures(mixes: Iterable[tuple[int, list[int]]], healthy: Healthy) -> list[str]:
    """Check mixes of broken plugins, each a seed and numbers of plugins, and describe failures."""
    failures = []
    for seed, numbers in mixes:
        try:
            check_broken_plugins(numbers, random.Random(seed), healthy)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a broken plugin may raise any
            names = [BROKEN[number].fault for number in numbers]
            failures.append(f"{seed}: {names}: {type(error).__name__}: {str(error)[:300]!a}")
    return failures


def alone(numbers: Iterable[int]) -> list[tuple[int, list[int]]]:
    return [(number, [number]) for number in numbers]


def random_mixes(seeds: Iterable[int]) -> list[tuple[int, list[int]]]:
    """Return a mix of 2 to 12 plugins for each seed."""
    mixes = []
    for seed in seeds:
        rng = random.Random(seed)
        mixes.append((seed, rng.sample(range(len(BROKEN)), rng.randint(2, 12))))
    return mixes


def test_broken_plugin_alone_breaks_nothing_else(healthy):
    every_thirteenth = range(0, len(BROKEN), 13)
    assert find_failures(alone(every_thirteenth), healthy) == []


def test_broken_plugins_together_break_nothing_else(healthy):
    assert find_failures(random_mixes(range(15)), healthy) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_broken_plugins_one_by_one_break_nothing_else(healthy, part):
    every_fourth = range(part, len(BROKEN), 4)
    assert find_failures(alone(every_fourth), healthy) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_broken_plugins_in_many_mixes(healthy, part):
    seeds = range(1000 + 100 * part, 1100 + 100 * part)
    assert find_failures(random_mixes(seeds), healthy) == []


#: Every seventh plugin, of those that load without a warning.
LOADED = [number for number, plugin in enumerate(BROKEN) if plugin.loads and number % 7 == 0]


def explain_error(catalog: Catalog, spaces: tuple[Any, Any]) -> str | None:
    """Return the message of the error that a lookup raises, if it raises one."""
    try:
        catalog.explain(*spaces, CONFIG, "torch")
    except CatalogError as error:
        return reason(error)
    return None


@pytest.mark.parametrize("number", LOADED, ids=[BROKEN[number].fault for number in LOADED])
@pytest.mark.parametrize("spaces", SPACES, ids=["vector", "Dict"])
def test_preferred_broken_part_is_named(number, spaces):
    point = BROKEN[number].entry_point(number)
    catalog = isolated_catalog(*HEALTHY, point, prefer=[f"broken-{number}"])

    message = explain_error(catalog, spaces)

    # Some parts can be chosen, and fail only when they are built.
    assert message is None or f"broken-{number} " in message


def test_plugin_that_requests_the_default_catalog_fails():
    [plugin] = [plugin for plugin in BROKEN if plugin.fault == "requests the default catalog"]
    with pytest.warns(PluginWarning, match="a catalog while it is being loaded"):
        catalog = isolated_catalog(plugin.entry_point(0))
    assert [record.status for record in catalog.plugins] == ["failed"]
