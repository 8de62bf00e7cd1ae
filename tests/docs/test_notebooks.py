"""The tutorials as notebooks that readers download."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pages
import pytest

pytest.importorskip("myst_nb", reason="needs myst-nb, which `make docs` installs")

import notebooks

ROOT = Path(__file__).resolve().parents[2]
PAGES = notebooks.tutorials()


def test_tutorials_in_python_are_all_notebooks():
    names = {path.stem for path in ROOT.glob("docs/tutorials/*.md")} - {"index"}
    names.remove("robot")  # it consists of files and commands
    assert {page.stem for page in PAGES} == names


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_notebook_has_the_code_of_its_page(page):
    install, *cells = notebooks.make_notebook(page).cells

    code = [cell.source.strip() for cell in cells if cell.cell_type == "code"]
    blocks = [block.strip() for _, block, _ in pages.blocks(page.read_text(encoding="utf-8"))]
    # A block may begin with options of its cell, such as tags.
    assert len(code) == len(blocks) > 3
    for source, block in zip(code, blocks, strict=True):
        assert block.endswith(source)
    assert install.cell_type == "code"


def test_first_cell_installs_extras_of_the_clone():
    [extras] = re.findall(r"%pip install --quiet '\.\[(.*?)\]'", notebooks.INSTALL)
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_text_of_notebook_has_no_links(page):
    texts = [
        cell.source for cell in notebooks.make_notebook(page).cells if cell.cell_type == "markdown"
    ]
    assert texts[0].startswith("# ")
    assert not any("](" in text for text in texts)
