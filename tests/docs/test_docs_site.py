"""The pages of the site: their code runs and prints what they say, and each is in the contents."""

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pages
import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
SITE = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts
)
#: Pages whose code runs as hooks and as packages: `test_docs_plugins.py`.
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
    assert (
        sum(output is not None for page in RUNNABLE for *_, output in pages.blocks(read(page))) > 35
    )


def test_no_block_of_python_is_overlooked():
    """What looks like one to whoever reads, whatever its indentation or its mark, is
    one that runs.
    """
    for page in RUNNABLE:
        marks = re.findall(
            r"^\s*(?:```+|~~~+|:::+)\s*\{?(?:python|py|code-cell|code-block)\b.*$", read(page), re.M
        )
        assert len(marks) == len(pages.blocks(read(page))), page


def test_containers_are_closed_on_a_line_of_their_own():
    """Otherwise the colons are text, and the next card lies in this one; Sphinx warns
    of neither.
    """
    for page in SITE:
        colons = re.findall(
            r"^.*:::.*$", re.sub(r"^(`{3,}).*?^\1", "", read(page), flags=re.S | re.M), re.M
        )
        opened = []
        for line in colons:
            mark, opens = re.fullmatch(r"(:{3,})(\{.*)?", line).groups()
            opened.append(mark) if opens else opened.remove(mark)
        assert opened == [], page


def test_titles_have_no_links():
    """Sphinx ends with a KeyError when it writes the contents of such a page."""
    for page in SITE:
        text = re.sub(r"^(`{3,}).*?^\1", "", read(page), flags=re.S | re.M)
        assert not re.search(r"^#+ .*\]\(", text, re.M), page


def test_every_page_of_the_site_is_in_its_contents():
    """As the site's own build says, which not every machine is set up for."""
    listed = {"docs/index.md"}
    for page in SITE:
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", read(page), re.S | re.M):
            for entry in (line for line in tree.splitlines() if line and not line.startswith(":")):
                found = {
                    path.relative_to(ROOT).as_posix()
                    for path in (ROOT / page).parent.glob(f"{entry}.md")
                }
                assert found, f"{page} lists {entry}"
                listed |= found
    assert set(SITE) == listed


class Builder:
    """What a Sphinx extension is given: it keeps what is to be called when the build has ended."""

    def __init__(self, folder):
        self.srcdir, self.ended = folder, []

    def connect(self, event, function):
        assert event == "build-finished"
        self.ended.append(function)

    def end(self):
        for function in self.ended:
            function(self, None)


def test_a_build_of_the_site_that_changes_the_repository_fails(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    clean_tree = importlib.import_module("clean_tree")
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("page.md", "edited.md", ".gitignore"):
        (docs / name).write_text("_build\n", encoding="utf-8")
    git = [
        "git",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    for line in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        subprocess.run([*git, *line], cwd=tmp_path, check=True)
    (docs / "edited.md").write_text("by hand, before the build\n", encoding="utf-8")
    builder = Builder(docs)
    clean_tree.setup(builder)
    (docs / "_build").mkdir()
    (docs / "_build/page.html").touch()
    builder.end()
    (docs / "vault").mkdir()
    (docs / "vault/policy.json").touch()
    (docs / "page.md").write_text("rewritten\n", encoding="utf-8")
    with pytest.raises(
        RuntimeError,
        match=r"the build changed docs/page\.md, docs/vault/policy\.json\. Let the page",
    ):
        builder.end()


def test_pages_write_into_a_folder_that_is_removed(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    conf = runpy.run_path(str(ROOT / "docs/conf.py"))
    assert conf["nb_execution_in_temp"]
    assert "clean_tree" in conf["extensions"]
