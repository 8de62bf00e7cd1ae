"""The table of engines: every word in it has a test, and the page says what the data says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import engines_page
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = tomllib.loads((ROOT / "docs/engines.toml").read_text(encoding="utf-8"))
CELLS = [
    pytest.param(word, path, name, id=f"{what}, {engine}")
    for what, engine, word, path, name in engines_page.cells(DATA)
]


def test_table_of_engines_is_complete():
    assert len(DATA["engines"]) == 8
    assert len(DATA["rows"]) >= 12
    # Each row, but for what it is about.
    assert len(CELLS) == sum(len(row) - 1 for row in DATA["rows"])
    assert sorted(engine for half in engines_page.HALVES.values() for engine in half) == sorted(
        DATA["engines"]
    )


def test_page_of_engines_is_fresh():
    page = engines_page.TARGET.read_text(encoding="utf-8")
    assert engines_page.filled(page) == page, "run `make generate`"
    assert len(re.findall(r'\[(?:yes|no)\]\(\S+ "\w+"\)', page)) == len(CELLS)
    stale = page.replace("[yes]", "[no]", 1)
    assert engines_page.filled(stale) == page != stale


@pytest.mark.parametrize(("word", "path", "name"), CELLS)
def test_cell_names_a_test_that_supports_it(word, path, name):
    source = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"^def {name}\(.*?(?=^(?:def |class |@)|\Z)", source, re.M | re.S)
    assert found is not None, f"{path} has no {name}"
    assert word in ("yes", "no")
    assert word == "no" or "refuse" not in name
    assert word == "yes" or "pytest.raises" in found[0]
