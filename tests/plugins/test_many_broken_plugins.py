"""Broken and greedy plugins, alone and in mixes: each is named, and every lookup is what it is
without them.

Crosses: all packages.
"""

from __future__ import annotations

import json
import random
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from broken_plugins import Broken, install_parts, table

from rlcatalog.catalog import default_catalog
from rlcatalog.choice.explanation import explanation_sheet
from rlcatalog.errors import CatalogError, PluginWarning, reason
from rlcatalog_cli.app import list_sheet
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
TABLE = table()


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    install_parts()
    default_catalog()  # before nothing is found: it stays for the other tests of this process
    # For plugins that make catalogs.
    monkeypatch.setattr("rlcatalog.catalog.catalog.scan", lambda: ())


def found_by(catalog: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What lookups choose, and all they say."""
    said = [catalog.explain(*spaces, CONFIG, "torch").as_dict() for spaces in SPACES]
    slots = ("preprocessor", "filter", "model", "memory", "head", "action_dist")
    chosen = [
        {
            **{slot: (one[slot]["chosen"], one[slot]["distribution"]) for slot in slots},
            **{key: one[key] for key in ("plan", "model_sees", "shapes")},
        }
        for one in said
    ]
    return chosen, said


@pytest.fixture(scope="module")
def without():
    """What is there, and what lookups choose, where no plugin is broken."""
    catalog = isolated_catalog(*HEALTHY)
    return {(c.kind, c.name): c.distribution for c in catalog.components()}, found_by(catalog)[0]


def attack(broken: list[tuple[int, Broken]], order: random.Random, without: Any) -> None:
    """Load the plugins in any order; look up, list, print."""
    points = [*HEALTHY, *(one.entry_point(number) for number, one in broken)]
    order.shuffle(points)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        catalog = isolated_catalog(*points)
        chosen, explained = found_by(catalog)
        env = gym.make("CartPole-v1")
        catalog.explain_wrapping(env)
        env.close()
        assert catalog.parse_config(CONFIG)["fcnet_hiddens"] == [32, 16]
        print(list_sheet(catalog.plugins, catalog.components()).text())
        for one in explained[:1]:
            print(explanation_sheet(one, all=True).text())
            json.dumps(one)
    assert all(issubclass(w.category, PluginWarning) for w in caught), [
        str(w.message) for w in caught
    ]
    parts, expected = without
    assert chosen == expected
    names = {(c.kind, catalog.registry.name_of(c)): c.distribution for c in catalog.components()}
    assert parts.items() <= names.items()
    records = {record.distribution: record for record in catalog.plugins}
    assert all(records[name].status == "loaded" and records[name].error is None for name in HEALTHY)
    warned = " ".join(str(w.message) for w in caught)
    for number, one in broken:
        assert one.quiet or f"broken-{number} " in warned, (one.name, warned)
    json.dumps([record.error for record in catalog.plugins])


def test_table_of_broken_plugins_is_large():
    assert len({one.name for one in TABLE}) == len(TABLE) >= 150


def alone(numbers: Any, without: Any) -> None:
    failures = []
    for number in numbers:
        try:
            attack([(number, TABLE[number])], random.Random(number), without)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures.append(f"{TABLE[number].name}: {type(error).__name__}: {str(error)[:300]!a}")
    assert not failures, "\n".join([f"{len(failures)} of {len(numbers)}", *failures])


def mixed(seeds: Any, without: Any) -> None:
    failures = []
    for seed in seeds:
        order = random.Random(seed)
        chosen = order.sample(range(len(TABLE)), order.randint(2, 12))
        try:
            attack([(number, TABLE[number]) for number in chosen], order, without)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures.append(
                f"{seed}: {[TABLE[n].name for n in chosen]}: {type(error).__name__}:"
                f" {str(error)[:300]!a}"
            )
    assert not failures, "\n".join([f"{len(failures)} of {len(seeds)}", *failures])


def test_broken_plugin_alone_breaks_nothing_else(without):
    alone(range(0, len(TABLE), 13), without)


def test_broken_plugins_together_break_nothing_else(without):
    mixed(range(15), without)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(4))
def test_every_broken_plugin_alone(without, part):
    alone(range(part, len(TABLE), 4), without)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(4))
def test_broken_plugins_in_many_mixes(without, part):
    mixed(range(1000 + 100 * part, 1100 + 100 * part), without)


def test_preferred_broken_part_is_named():
    """Preferred, it is asked as the listed ones are: it is fit for use, or the error names its
    plugin.
    """
    failures = []
    for number, one in enumerate(TABLE):
        if not one.quiet or number % 7:
            continue
        catalog = isolated_catalog(*HEALTHY, one.entry_point(number), prefer=[f"broken-{number}"])
        for spaces in SPACES:
            try:
                catalog.explain(*spaces, CONFIG, "torch")
            except CatalogError as error:
                if f"broken-{number} " not in reason(error):
                    failures.append(f"{one.name}: {reason(error)!a}")
            except BaseException as error:
                failures.append(f"{one.name}: {type(error).__name__}: {reason(error)!a}")
    assert not failures, "\n".join(failures)


def test_plugin_that_requests_the_default_catalog_fails():
    asks = next(one for one in TABLE if one.name.endswith("the default catalog"))
    with pytest.warns(PluginWarning, match="requests a catalog while it is being loaded"):
        catalog = isolated_catalog(asks.entry_point(0))
    assert [record.status for record in catalog.plugins] == ["failed"]
