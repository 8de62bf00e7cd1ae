"""The examples in the docstrings of the names that users type most run, and print
what they show.
"""

import doctest

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlcatalog
import rlcatalog.spaces
import rlcatalog_ppo
import rlcatalog_sb3
import rlcatalog_testing
from rlcatalog.catalog import default_catalog

#: What an example may use without an import: usual modules and the names of the doors.
DOORS = (rlcatalog, rlcatalog.spaces, rlcatalog_ppo, rlcatalog_sb3, rlcatalog_testing)
NAMES = {name: getattr(door, name) for door in DOORS for name in door.__all__}
NAMES |= {"gym": gym, "np": np, "spaces": spaces, "torch": torch, "rlcatalog": rlcatalog}
EXAMPLES = {
    "rlcatalog": [
        "build",
        "load",
        "one_hot",
        "Actor",
        "Catalog",
        "ModelCatalog",
        "Policy",
        "ModelSpec",
        "ActionDistSpec",
        "Match",
        "register_model",
        "register_action_dist",
        "register_preprocessor",
    ],
    "rlcatalog.Policy": [
        "act",
        "evaluate",
        "preprocess",
        "raw_action",
        "stepper",
        "as_module",
        "explain",
        "summary",
        "save",
        "export",
        "freeze",
    ],
    "rlcatalog.spaces": ["Repeated", "Simplex"],
    "rlcatalog.private_names": ["PrivateNames"],
    "rlcatalog_ppo": ["PPO", "A2C", "PG"],
    "rlcatalog_ppo.PPO": ["train", "learn", "save_checkpoint", "restore"],
    "rlcatalog_sb3": ["CatalogPolicy", "for_sb3", "to_policy"],
    "rlcatalog_testing": ["check_plugin"],
}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """An empty folder, and a catalog without the registrations of other examples."""
    monkeypatch.chdir(tmp_path)
    default_catalog.cache_clear()
    yield
    default_catalog.cache_clear()


@pytest.mark.parametrize(
    "name", [f"{owner}.{name}" for owner, names in EXAMPLES.items() for name in names]
)
def test_example_runs(name):
    owner, _, attribute = name.rpartition(".")
    module, _, cls = owner.partition(".") if owner != "rlcatalog.spaces" else (owner, "", "")
    holder = __import__(module, fromlist=["_"])
    value = getattr(getattr(holder, cls) if cls else holder, attribute)
    found = doctest.DocTestFinder(recurse=False).find(value, name, globs=dict(NAMES))
    [test] = [test for test in found if test.examples]
    assert len([line for example in test.examples for line in example.source.splitlines()]) <= 6
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
        test, out=report.append
    )
    assert result.failed == 0, "".join(report)
