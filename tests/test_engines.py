"""The README's table of engines: every word in it has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Under which engine")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in SECTION.splitlines() if line.startswith("| ")]
HEAD, *BODY = ROWS
CELLS = [
    pytest.param(word, path, name, id=f"{row[0]}, {engine}")
    for row in BODY
    for engine, cell in zip(HEAD[1:], row[1:], strict=True)
    for word, path, name in re.findall(r"\[(\w+)\]\((\S+) \"(\w+)\"\)", cell)
]


def test_the_table_is_read_whole():
    assert len(HEAD) == 9
    assert len(BODY) >= 12
    assert len(CELLS) == sum(bool(cell) for row in BODY for cell in row[1:])


@pytest.mark.parametrize(("word", "path", "name"), CELLS)
def test_a_word_has_its_test(word, path, name):
    source = (ROOT / path).read_text(encoding="utf-8")
    found = re.search(rf"^def {name}\(.*?(?=^(?:def |class |@)|\Z)", source, re.M | re.S)
    assert found is not None, f"{path} has no {name}"
    assert word in ("yes", "no")
    assert word == "no" or "refuse" not in name
    assert word == "yes" or "pytest.raises" in found[0]
