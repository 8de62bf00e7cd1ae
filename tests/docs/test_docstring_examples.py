"""Examples in docstrings: those of the names that users type most run, and print what they show."""

import doctest
import importlib

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

#: Packages and modules whose names an example may use without an import.
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
def empty_folder_and_new_catalog(tmp_path, monkeypatch):
    """Examples write files, and register parts in the default catalog."""
    monkeypatch.chdir(tmp_path)
    default_catalog.cache_clear()
    yield
    default_catalog.cache_clear()


def load(owner, name):
    """Return a name of a module, or of a class of a module."""
    try:
        value = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, cls = owner.rpartition(".")
        value = getattr(importlib.import_module(module), cls)
    return getattr(value, name)


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in EXAMPLES.items() for name in names]
)
class TestExample:
    """The example of a function, class or method."""

    @staticmethod
    def find(owner, name):
        finder = doctest.DocTestFinder(recurse=False)
        tests = finder.find(load(owner, name), name, globs=dict(NAMES))
        (test,) = (test for test in tests if test.examples)
        return test

    def test_example_prints_what_it_shows(self, owner, name):
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        result = runner.run(self.find(owner, name), out=report.append)
        assert result.failed == 0, "".join(report)

    def test_example_has_few_lines(self, owner, name):
        examples = self.find(owner, name).examples
        assert sum(len(example.source.splitlines()) for example in examples) <= 6
