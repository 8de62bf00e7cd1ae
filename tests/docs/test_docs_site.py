"""The pages of the site: their code runs, their form is right, and each is in the contents."""

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


def test_many_pages_have_code():
    assert len(RUNNABLE) > 25
    assert set(SITE) >= ELSEWHERE


def test_many_blocks_show_their_output():
    outputs = []
    for page in RUNNABLE:
        outputs += [output for _, _, output in pages.blocks(read(page)) if output is not None]
    assert len(outputs) > 35


@pytest.mark.parametrize("page", RUNNABLE)
def test_python_of_a_page_runs(page):
    # All that a reader may take for one, whatever its indentation or its fence.
    fence = r"^\s*(?:```+|~~~+|:::+)\s*\{?(?:python|py|code-cell|code-block)\b.*$"
    assert len(re.findall(fence, read(page), re.M)) == len(pages.blocks(read(page)))


def without_code(page):
    return re.sub(r"^(`{3,}).*?^\1", "", read(page), flags=re.S | re.M)


@pytest.mark.parametrize("page", SITE)
def test_containers_in_page_are_closed(page):
    # Sphinx takes colons that are not alone on their line for text, without a warning, so the next
    # card would be inside this one.
    open_containers = []
    for line in re.findall(r"^.*:::.*$", without_code(page), re.M):
        colons, directive = re.fullmatch(r"(:{3,})(\{.*)?", line).groups()
        if directive:
            open_containers.append(colons)
        else:
            open_containers.remove(colons)
    assert open_containers == []


@pytest.mark.parametrize("page", SITE)
def test_titles_in_page_have_no_links(page):
    # Sphinx ends with a KeyError when it writes the contents of such a page.
    assert not re.search(r"^#+ .*\]\(", without_code(page), re.M)


def pages_in_contents_of(page):
    """Return the pages that the tables of contents of a page list."""
    listed = set()
    for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", read(page), re.S | re.M):
        entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
        for entry in entries:
            paths = list((ROOT / page).parent.glob(f"{entry}.md"))  # an entry may be a pattern
            assert paths, f"{page} lists {entry}"
            # An entry may also be in another folder, as in "../export".
            listed |= {path.resolve().relative_to(ROOT).as_posix() for path in paths}
    return listed


def test_pages_are_all_in_the_contents():
    listed = {"docs/index.md"}
    for page in SITE:
        listed |= pages_in_contents_of(page)
    assert listed == set(SITE)


# --- building the site ----------------------------------------------------------------------------


class FakeSphinx:
    """Stands in for the application that Sphinx gives to an extension."""

    def __init__(self, folder):
        self.srcdir = folder
        self.callbacks = []

    def connect(self, event, callback):
        assert event == "build-finished"
        self.callbacks.append(callback)

    def finish_build(self):
        for callback in self.callbacks:
            callback(self, None)


def commit_everything(folder):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)


@pytest.fixture
def docs(tmp_path):
    """A folder docs with two committed pages, of which one was edited since."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "page.md").touch()
    (folder / "edited.md").touch()
    (folder / ".gitignore").write_text("_build\n", encoding="utf-8")
    commit_everything(tmp_path)
    (folder / "edited.md").write_text("by hand, before the build\n", encoding="utf-8")
    return folder


@pytest.fixture
def build(docs, monkeypatch):
    """A build of these pages that has begun, with the extension that looks for changes."""
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    clean_tree = importlib.import_module("clean_tree")
    sphinx = FakeSphinx(docs)
    clean_tree.setup(sphinx)
    return sphinx


def test_build_may_write_its_output(docs, build):
    (docs / "_build").mkdir()
    (docs / "_build/page.html").touch()
    build.finish_build()


def test_build_that_changes_the_repository_fails(docs, build):
    (docs / "vault").mkdir()
    (docs / "vault/policy.json").touch()
    (docs / "page.md").write_text("rewritten\n", encoding="utf-8")
    # And not docs/edited.md, which had been changed before.
    changed = r"the build changed docs/page\.md, docs/vault/policy\.json\."
    with pytest.raises(RuntimeError, match=changed):
        build.finish_build()


def test_code_of_pages_runs_in_a_temporary_folder(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # conf.py extends it
    conf = runpy.run_path(str(ROOT / "docs/conf.py"))
    assert conf["nb_execution_in_temp"]
    assert "clean_tree" in conf["extensions"]
