"""The site's reference: it has an entry for every error, command, part, public name and example."""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import shutil
import tomllib
from pathlib import Path

import api_pages
import command_line
import gallery
import msgspec
import pytest
import results_page

from rlcatalog.errors import CatalogError, CatalogWarning

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for pattern in ("catalog/src", "builtin_*/*/src", "plugins/*/src")
    for path in ROOT.glob(pattern)
    if "example" not in path.parts
)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def read_headings(page):
    """Return the names that are headings of a page: "## `name`"."""
    return re.findall(r"^## `([\w-]+)`$", read(page), re.M)


def read_sections(page):
    """Return heading → text for a page whose headings are names."""
    _, *parts = re.split(r"^## `([\w-]+)`$", read(page), flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@functools.cache
def find_declared_errors():
    """Return the names of the classes in our sources that derive from CatalogError or
    CatalogWarning, without importing them.
    """
    bases = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    errors = {"CatalogError", "CatalogWarning"}
    while True:
        derived = {name for name, names in bases.items() if names & errors}
        if derived <= errors:
            return errors
        errors |= derived


# --- entries --------------------------------------------------------------------------------------


def test_page_of_errors_has_every_error():
    assert len(find_declared_errors()) > 35
    assert set(read_headings("docs/reference/errors.md")) == find_declared_errors()


def test_ways_out_has_every_error():
    assert set(tomllib.loads(read("docs/reference/ways_out.toml"))) == find_declared_errors()


@pytest.mark.parametrize("error", read_headings("docs/reference/errors.md"))
def test_error_has_a_message_and_a_way_out(error):
    section = read_sections("docs/reference/errors.md")[error]
    assert "\n**What to do.** " in section
    # A real message; the base class is never raised itself.
    assert error == "CatalogError" or f"\n{error}: " in section


def test_public_errors_are_among_the_declared_ones():
    module = vars(importlib.import_module("rlcatalog.errors"))
    for name, value in module.items():
        if inspect.isclass(value) and issubclass(value, CatalogError | CatalogWarning):
            assert name in find_declared_errors()


@pytest.mark.parametrize("command", read_headings("docs/reference/commands.md"))
def test_page_of_commands_lists_the_options_of_help(command):
    section = read_sections("docs/reference/commands.md")[command]
    listed_options = set(re.findall(r"`(--[a-z-]+)`", section))

    run = command_line.rlcatalog(command, "--help", COLUMNS="300", NO_COLOR="1", TERM="dumb")

    assert run.returncode == 0, run.stderr
    # An option stands at the beginning of a line, or behind a frame.
    options = set(re.findall(r"^[│\s*]*(--[a-z-]+)", run.stdout, re.MULTILINE))
    assert options
    assert options - {"--help"} <= listed_options
    # The page lists nothing that the help does not mention.
    assert listed_options <= set(re.findall(r"--[a-z-]+", run.stdout))


@pytest.mark.parametrize("door", sorted(api_pages.listed()))
def test_signatures_of_public_names_can_be_read(door):
    """`inspect.signature` evaluates a struct's annotations; `help` and the site call it."""
    module = importlib.import_module(door)
    for name in api_pages.listed()[door]:
        value = getattr(module, name)
        if inspect.isfunction(value) or isinstance(value, type(msgspec.Struct)):
            inspect.signature(value)


def test_examples_all_have_a_page_and_a_record():
    pages = {path.stem for path in ROOT.glob("docs/examples/*.md")} - {"index"}
    assert pages == {path.stem for path in ROOT.glob("examples/*.py")}
    assert pages == set(gallery.records())


# --- freshness ------------------------------------------------------------------------------------


def tools_of_target(target, *, option):
    """Return the tools that a target of the Makefile runs with an option."""
    lines = read("Makefile").partition(f"\n{target}:")[2].partition("\n\n")[0]
    return re.findall(rf"python tools/(\w+)\.py{option}$", lines, re.M)


def test_lint_checks_each_page_that_generate_writes():
    written = tools_of_target("generate", option="")
    assert {"reference_pages", "results_page", "gallery", "config_table"} <= set(written)
    assert tools_of_target("lint", option=" --check") == written


def test_check_finds_a_stale_page(tmp_path, monkeypatch, capsys):
    stale_page = tmp_path / "results.md"
    text = read("docs/results.md").replace("CartPole", "Acrobot", 1)
    stale_page.write_text(text, encoding="utf-8")
    monkeypatch.setattr(results_page, "TARGET", stale_page)
    assert results_page.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err


def test_gallery_check_finds_an_example_that_was_changed(tmp_path, monkeypatch, capsys):
    for path in ROOT.glob("examples/*.py"):
        shutil.copy(path, tmp_path)
    with (tmp_path / "lookup.py").open("a", encoding="utf-8") as example:
        example.write("changed = True\n")
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)

    assert gallery.main(["--check"]) == 1

    expected = "examples/lookup.py was changed: python tools/gallery.py --run lookup"
    assert capsys.readouterr().err.strip() == expected
