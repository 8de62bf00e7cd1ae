"""The reference of the site: every error, command, part, door and example has its entry, and no
other.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import api_pages
import command_line
import gallery
import msgspec
import pytest
import results_page

from rlcatalog.errors import CatalogError, CatalogWarning
from rlcatalog_cli.app import OWN_COMMANDS
from rlcatalog_testing import isolated_catalog

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for pattern in ("catalog/src", "builtin_*/*/src", "plugins/*/src")
    for path in ROOT.glob(pattern)
    if "example" not in path.parts
)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def headings(page):
    return re.findall(r"^## `([\w-]+)`$", read(page), re.M)


@functools.cache
def declared_errors():
    """The classes in our sources that derive from CatalogError or CatalogWarning, by their source
    alone.
    """
    bases = {}
    for path in (path for source in SOURCES for path in source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"CatalogError", "CatalogWarning"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def catalog():
    names = [
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]
        for path in map(package_file, SOURCES)
    ]
    return isolated_catalog(*(name for name in names if name != "rlcatalog"))


def package_file(source):
    return source.parent / "pyproject.toml"


# --- every one has its entry ----------------------------------------------------------------------


def test_every_error_has_an_entry_with_a_way_out():
    assert set(headings("docs/reference/errors.md")) == declared_errors()
    assert set(tomllib.loads(read("docs/reference/ways_out.toml"))) == declared_errors()
    assert len(declared_errors()) > 35
    ours = CatalogError | CatalogWarning
    page = read("docs/reference/errors.md")
    for part in re.split(r"^## ", page, flags=re.M)[1:]:
        assert "\n**What to do.** " in part, part
        name = part.split("`")[1]
        assert name == "CatalogError" or f"\n{name}: " in part, part  # a real message
    errors = vars(importlib.import_module("rlcatalog.errors"))
    public = {
        name for name, value in errors.items() if inspect.isclass(value) and issubclass(value, ours)
    }
    assert public <= declared_errors()


def test_every_command_has_an_entry():
    named = {component.name for component in catalog().components("command")}
    assert len(named) > 6
    assert set(headings("docs/reference/commands.md")) == named | set(OWN_COMMANDS)


@pytest.mark.parametrize("command", headings("docs/reference/commands.md"))
def test_a_command_s_options_are_those_it_takes(command):
    """As its own help prints them."""
    section = (
        read("docs/reference/commands.md").partition(f"## `{command}`\n")[2].partition("\n## ")[0]
    )
    listed = set(re.findall(r"`(--[a-z-]+)`", section))
    done = command_line.rlcatalog(command, "--help", COLUMNS="300", NO_COLOR="1", TERM="dumb")
    assert done.returncode == 0, done.stderr
    taken = {
        name
        for line in done.stdout.splitlines()
        for name in re.findall(r"^[│\s*]*(--[a-z-]+)", line)
    }
    assert taken
    assert taken - {"--help"} <= listed
    assert listed <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_every_part_has_an_entry():
    listed = set(
        re.findall(r"^\| `([\w.-]+)` \| `([\w-]+)` \|", read("docs/reference/parts.md"), re.M)
    )
    components = catalog().components()
    assert len(components) > 40
    assert listed == {(component.name, component.distribution) for component in components}


@pytest.mark.parametrize("door", sorted(api_pages.listed()))
def test_signatures_of_public_names_can_be_read(door):
    """`inspect.signature` evaluates a struct's annotations; `help` and the site call it."""
    module = importlib.import_module(door)
    for name in api_pages.listed()[door]:
        value = getattr(module, name)
        if inspect.isfunction(value) or isinstance(value, type(msgspec.Struct)):
            inspect.signature(value)


def test_every_door_has_a_page_with_all_its_names():
    found = api_pages.doors()
    assert len(found["rlcatalog"]) > 35
    assert set(found) >= {
        "rlcatalog",
        "rlcatalog_torch",
        "rlcatalog_tf",
        "rlcatalog_testing",
        "rlcatalog_ppo",
    }
    for door, names in found.items():
        page = read(f"docs/reference/api/{door}.md")
        shown = set(re.findall(rf"^\.\. auto\w+:: {re.escape(door)}\.(\w+)$", page, re.M))
        shown |= set(re.findall(r"^- `(\w+)`", page, re.M))
        assert set(names) - shown == set(), door


def test_every_example_has_a_page():
    shown = {path.stem for path in ROOT.glob("docs/examples/*.md")} - {"index"}
    assert shown == {path.stem for path in ROOT.glob("examples/*.py")}
    assert set(gallery.records()) == shown
    for name in shown:
        assert gallery.shows(ROOT / f"examples/{name}.py")[0], f"{name} does not say what it shows"


# --- and it is up to date -------------------------------------------------------------------------


def test_each_tool_that_writes_pages_checks_them_in_lint():
    """`make lint` says of each page whether it is fresh; here, that it asks."""

    def tools(verb, option):
        lines = read("Makefile").partition(f"\n{verb}:")[2].partition("\n\n")[0]
        return re.findall(rf"python tools/(\w+)\.py{option}$", lines, re.M)

    assert {"reference_pages", "results_page", "gallery", "config_table"} <= set(
        tools("generate", "")
    )
    assert tools("generate", "") == tools("lint", " --check")


def test_a_stale_page_is_found(tmp_path, monkeypatch, capsys):
    stale = read("docs/results.md").replace("CartPole", "Acrobot", 1)
    (tmp_path / "results.md").write_text(stale, encoding="utf-8")
    monkeypatch.setattr(results_page, "TARGET", tmp_path / "results.md")
    assert results_page.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err


def test_an_example_whose_code_was_changed_since_it_was_run_is_found(tmp_path, monkeypatch, capsys):
    """Comments are not code."""
    for path in ROOT.glob("examples/*.py"):
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(
            text + "changed = True\n" * (path.stem == "lookup"), encoding="utf-8"
        )
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
    assert gallery.main(["--check"]) == 1
    assert (
        capsys.readouterr().err.strip()
        == "examples/lookup.py was changed: python tools/gallery.py --run lookup"
    )
