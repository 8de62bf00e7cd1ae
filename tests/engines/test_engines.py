"""The table of engines: each cell names a test that supports it, and the page shows the data."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import engines_page
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = tomllib.loads((ROOT / "docs/engines.toml").read_text(encoding="utf-8"))
#: "yes" or "no", and the path and name of a test.
CELLS = [
    pytest.param(word, path, name, id=f"{row}, {engine}")
    for row, engine, word, path, name in engines_page.cells(DATA)
]


def test_table_of_engines_is_complete():
    assert len(DATA["engines"]) == 13
    assert len(DATA["rows"]) >= 12
    cells_of_rows = [len(row) - 1 for row in DATA["rows"]]  # one entry is the title
    assert len(CELLS) == sum(cells_of_rows)


def test_parts_of_the_table_have_all_engines():
    engines = [engine for part in engines_page.PARTS.values() for engine in part]
    assert sorted(engines) == sorted(DATA["engines"])


@pytest.mark.parametrize(("word", "path", "name"), CELLS)
def test_cell_names_a_test_that_supports_it(word, path, name):
    source = (ROOT / path).read_text(encoding="utf-8")
    function = re.search(rf"^def {name}\(.*?(?=^(?:def |class |@)|\Z)", source, re.M | re.S)
    assert function is not None, f"{path} has no {name}"
    assert word in ("yes", "no")
    if word == "yes":
        assert "refuse" not in name
    else:
        assert "pytest.raises" in function[0]


# --- other libraries ------------------------------------------------------------------------------

OTHERS = tomllib.loads((ROOT / "docs/other_libraries.toml").read_text(encoding="utf-8"))


def test_other_libraries_are_compared_in_each_capability():
    names = [library["name"] for library in OTHERS["libraries"]]
    assert names == ["rlcatalog", "Stable-Baselines3", "RLlib", "rsl_rl", "skrl", "TorchRL"]
    for library in OTHERS["libraries"]:
        for capability in OTHERS["capabilities"]:
            assert library[capability]["text"]
            assert library[capability]["place"]


def test_places_of_facts_are_of_the_version_that_is_named():
    for library in OTHERS["libraries"]:
        if library["name"] == "rlcatalog":  # its places are pages
            continue
        for capability in OTHERS["capabilities"]:
            link = engines_page.place_link(library["source"], library[capability]["place"])
            assert f"{library['version']}/" in link
