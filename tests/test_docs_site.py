"""The pages of the site: their code runs and prints what they say, and each is in the contents."""

import re
from pathlib import Path

import pages
import pytest
import warm

ROOT = Path(__file__).resolve().parents[1]
SITE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)
#: Pages whose code runs as hooks and as packages: `test_docs.py`.
ELSEWHERE = {"docs/hooks.md", "docs/plugins.md"}


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


RUNNABLE = [page for page in SITE if page not in ELSEWHERE and pages.blocks(read(page))]


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_in_page_runs(page, tmp_path):
    pages.check(page, ROOT, tmp_path, warm.run)


def test_pages_whose_code_runs_are_there():
    assert len(RUNNABLE) > 25
    assert set(SITE) >= ELSEWHERE
    assert sum(output is not None for page in RUNNABLE for *_, output in pages.blocks(read(page))) > 35


def test_no_block_of_python_is_overlooked():
    """What looks like one to whoever reads, whatever its indentation or its mark, is one that runs."""
    for page in RUNNABLE:
        marks = re.findall(r"^\s*(?:```+|~~~+|:::+)\s*\{?(?:python|py|code-cell|code-block)\b.*$", read(page), re.M)
        assert len(marks) == len(pages.blocks(read(page))), page


def test_every_page_of_the_site_is_in_its_contents():
    """As the site's own build says, which not every machine is set up for."""
    listed = {"docs/index.md"}
    for page in SITE:
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", read(page), re.S | re.M):
            for entry in (line for line in tree.splitlines() if line and not line.startswith(":")):
                found = {path.relative_to(ROOT).as_posix() for path in (ROOT / page).parent.glob(f"{entry}.md")}
                assert found, f"{page} lists {entry}"
                listed |= found
    assert set(SITE) == listed
