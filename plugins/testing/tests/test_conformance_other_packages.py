"""The conformance kit beside faulty packages: only faults of the checked package count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import broken_plugins
import faulty_parts
import pytest
import typer
from gymnasium import spaces

from rlcatalog import Catalog, CheckSpec, FrameworkSpec
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import (
    BlockedError,
    Example,
    PluginEntryPoint,
    cases,
    check,
    isolated_catalog,
    outcome_of,
    parametrize_with_checks,
    plugin_of,
    require,
    runner,
)
from rlcatalog_testing.commands import check as check_command
from rlcatalog_testing.scaffold import package_files, write_package

pytestmark = pytest.mark.usefixtures("one_thread")

LISTED = (
    "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian", "rlcatalog-fcnet",
    "rlcatalog-visionnet", "rlcatalog-complex-input", "rlcatalog-lstm",
)  # fmt: skip


class RaisingRecall(faulty_parts.Recall):
    """A memory whose code raises an error."""

    def forward(self, input_dict, state, seq_lens):
        raise ZeroDivisionError("by design")


class WideRecall(faulty_parts.Recall):
    """A memory with one output too many."""

    def forward(self, input_dict, state, seq_lens):
        outputs, state = super().forward(input_dict, state, seq_lens)
        return outputs.repeat(1, 2), state


@pytest.fixture(autouse=True)
def classes_of_this_file(monkeypatch):
    """Let declarations name this file's classes."""
    for cls in (RaisingRecall, WideRecall):
        monkeypatch.setattr(faulty_parts, cls.__name__, cls, raising=False)


def make_trunk_package(distribution, target):
    """Return a package with a trunk that has no config keys."""
    name = f"{distribution}_net"
    spec = faulty_parts.spec(target, name=name, config=None, describe=None)
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), distribution)


def find_case(name, distribution, catalog):
    """Return the case with this name of a distribution."""
    [case] = [case for case in cases(distribution, catalog=catalog) if str(case) == name]
    return case


def run_case(name, distribution, catalog):
    return outcome_of(find_case(name, distribution, catalog))


def make_memory_package(target, **fields):
    """Return package acme with the memory acme_recall."""
    spec = replace(faulty_parts.memory(target), **fields)
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), "acme")


# --- parts of other packages ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        (
            "faulty_parts:NoSuchClass",
            "its target 'faulty_parts:NoSuchClass' cannot be imported",
        ),
        ("faulty_parts:RaisingRecall", "ZeroDivisionError: by design"),
        ("faulty_parts:WideRecall", "outputs (3, 6), expected (3, 3)"),
        # It works with fcnet's 256 features, but not with the features of complex_input.
        ("faulty_parts:OneTrunkOnly", "The size of tensor a"),
    ],
)
def test_faulty_companion_is_noted_and_not_counted(target, fault):
    # A third-party memory without a switch would never be chosen.
    acme = make_memory_package(target, switch="acme_recall")
    catalog = isolated_catalog(*LISTED, acme)

    outcome = run_case(
        "trunk-visionnet-works_inside_memories-torch", "rlcatalog-visionnet", catalog
    )

    # The trunk works inside the memory of rlcatalog-lstm.
    assert outcome.status == "passed", outcome.why
    [note] = outcome.notes
    assert note.startswith("model 'acme_recall' (acme 1.0): ")
    assert fault in note


def test_notes_belong_to_the_case_that_met_a_fault(monkeypatch):
    # The function with the examples of acme's memory raises an error.
    monkeypatch.setattr(faulty_parts, "memory_examples", lambda: 1 / 0)
    catalog = isolated_catalog(*LISTED, make_memory_package("faulty_parts:Recall"))

    inside_memories = run_case(
        "trunk-visionnet-works_inside_memories-torch", "rlcatalog-visionnet", catalog
    )
    under_heads = run_case(
        "trunk-visionnet-works_under_heads-torch", "rlcatalog-visionnet", catalog
    )

    [note] = inside_memories.notes
    assert "'faulty_parts:memory_examples' raised ZeroDivisionError" in note
    assert under_heads.notes == ()


def test_faulty_part_fails_if_its_companion_needs_it():
    # The trunk of package mine is the only one, so that acme's memory cannot do without it.
    catalog = isolated_catalog(
        "rlcatalog-preprocessors",
        "rlcatalog-categorical",
        make_memory_package("faulty_parts:Recall", switch="acme_recall"),
        make_trunk_package("mine", "faulty_parts:SaysAnotherWidth"),
    )

    outcome = run_case("trunk-mine_net-works_inside_memories-torch", "mine", catalog)

    assert outcome.status == "failed"
    assert outcome.notes == ()


def test_faulty_part_fails_beside_a_faulty_companion():
    catalog = isolated_catalog(
        *LISTED,
        make_memory_package("faulty_parts:RaisingRecall"),
        make_trunk_package("mine", "faulty_parts:OneOutputMore"),
    )

    outcome = run_case("trunk-mine_net-output_width-torch", "mine", catalog)

    assert outcome.status == "failed"
    # It is the trunk's own fault: one output more than the kit asks for.
    assert "outputs (3, 4), expected (3, 3)" in outcome.why


# --- parts of other packages that a part needs ----------------------------------------------------


@pytest.fixture
def needs_a_faulty_trunk(monkeypatch):
    """A catalog in which the memory of `acme` needs a trunk of `other` that cannot be imported."""
    config = {"acme_recall": True, "custom_model": "other/other_net"}
    example = Example(faulty_parts.VECTOR, spaces.Discrete(3), config)
    monkeypatch.setattr(faulty_parts, "memory_examples", lambda: [example])
    catalog = isolated_catalog(
        *LISTED,
        make_trunk_package("other", "faulty_parts:NoSuchClass"),
        make_memory_package("faulty_parts:Recall"),
    )
    monkeypatch.setattr(runner, "default_catalog", lambda: catalog)  # the one of the command
    return catalog


def test_needed_part_that_is_faulty_blocks_a_check(needs_a_faulty_trunk):
    case = find_case("memory-acme_recall-output_width-torch", "acme", needs_a_faulty_trunk)

    with pytest.raises(BlockedError, match=r"\(other 1.0\): its target .*NoSuch"):
        case()
    assert outcome_of(case).status == "blocked"


@pytest.mark.usefixtures("needs_a_faulty_trunk")
def test_needed_part_that_is_faulty_fails_the_command(capsys):
    with pytest.raises(typer.Exit) as exit_info:
        check_command("acme")

    assert exit_info.value.exit_code == 1
    output = capsys.readouterr().out
    assert "passed   memory-acme_recall-has_a_summary\n" in output
    assert "\nblocked  memory-acme_recall-output_width-torch" in output
    assert "(model 'other_net' (o" in output
    assert "\nfailed" not in output


@pytest.mark.usefixtures("needs_a_faulty_trunk")
def test_command_lists_the_faulty_parts_at_the_end(capsys):
    with pytest.raises(typer.Exit):
        check_command("acme")

    output = capsys.readouterr().out
    _, list_at_the_end = output.split("acme cannot be checked in full, because parts of ")
    assert "\n  model 'other_net' (other 1.0): its target" in list_at_the_end
    assert "note:" not in list_at_the_end


@pytest.fixture
def catalog_with_framework_of_other():
    """A catalog in which acme_net has code for PyTorch and for other_arrays.

    The latter is a framework of package `other`, whose code for the kit cannot be imported.
    """
    targets = {"backend": "m:Backend", "ops": "m:OPS", "kit": "no_such_module:Kit"}
    framework = FrameworkSpec("other_arrays", targets, "arrays", module="numpy")
    acme_net = faulty_parts.spec(
        targets={"torch": "faulty_parts:Net", "other_arrays": "faulty_parts:Net"}
    )
    return isolated_catalog(
        *LISTED,
        PluginEntryPoint(plugin_of(rlcatalog_frameworks=[framework]), "other"),
        PluginEntryPoint(plugin_of(rlcatalog_models=[acme_net]), "acme"),
    )


@pytest.mark.parametrize("check", ["output_width-other_arrays", "frameworks_agree"])
def test_framework_that_cannot_be_imported_blocks_checks(catalog_with_framework_of_other, check):
    outcome = run_case(f"trunk-acme_net-{check}", "acme", catalog_with_framework_of_other)

    assert outcome.status == "blocked"
    fault = "framework 'other_arrays' (other 1.0): it cannot be imported: ModuleNotFoundError"
    assert fault in outcome.why


def test_framework_that_cannot_be_imported_leaves_others_alone(catalog_with_framework_of_other):
    name = "trunk-acme_net-output_width-torch"

    outcome = run_case(name, "acme", catalog_with_framework_of_other)

    assert outcome.status == "passed", outcome.why


# --- checks of other packages ---------------------------------------------------------------------


@check("trunk", hint="be another")
def refuses_every_part(subject):
    require(False, "no part pleases")


@check("trunk", hint="be another")
def exits(subject):
    raise SystemExit(3)


@check("trunk", hint="be another")
def refuses_acme(subject):
    require(subject.part.distribution != "acme", "it is from acme")


@pytest.fixture
def run_check_of_other(monkeypatch):
    """Check the sound trunk of `acme` by a check of `other`, and return the outcome."""

    def run(name):
        for function in (refuses_every_part, exits, refuses_acme):
            monkeypatch.setattr(faulty_parts, function.run.__name__, function, raising=False)
        monkeypatch.setattr(faulty_parts, "no_check", lambda part: None, raising=False)
        spec = CheckSpec("other_check", {"checks": f"faulty_parts:{name}"}, "a check")
        catalog = isolated_catalog(
            *LISTED,
            PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.spec()]), "acme"),
            PluginEntryPoint(plugin_of(rlcatalog_checks=[spec]), "other"),
        )
        [case] = [case for case in cases("acme", catalog=catalog) if case.provider is not None]
        return outcome_of(case)

    return run


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("refuses_every_part", "it also fails for model 'complex_input' (rlcatalog-complex-input"),
        ("exits", "it also fails for model 'complex_input' (rlcatalog-complex-input"),
        ("no_such_check", "its target 'faulty_parts:no_such_check' cannot be imported"),
        ("no_check", "its target must be a rlcatalog_testing.Check"),
    ],
)
def test_faulty_check_of_another_package_is_skipped(run_check_of_other, name, fault):
    outcome = run_check_of_other(name)

    assert outcome.status == "skipped"
    [note] = outcome.notes
    assert note.startswith(f"check 'other_check' (other 1.0): {fault}")


def test_sound_check_of_another_package_counts(run_check_of_other):
    outcome = run_check_of_other("refuses_acme")

    assert outcome.status == "failed"
    assert outcome.why.endswith("it is from acme. Hint: be another.")
    assert outcome.notes == ()


def test_faulty_check_of_the_same_package_counts(monkeypatch):
    monkeypatch.setattr(faulty_parts, "exits", exits, raising=False)
    spec = CheckSpec("acme_exits", {"checks": "faulty_parts:exits"}, "a check")
    plugin = plugin_of(rlcatalog_models=[faulty_parts.spec()], rlcatalog_checks=[spec])
    catalog = isolated_catalog(*LISTED, PluginEntryPoint(plugin, "acme"))

    outcome = run_case("trunk-acme_net-exits-torch", "acme", catalog)

    assert outcome.status == "failed"


def test_pytest_skips_a_faulty_check_of_another_package(monkeypatch):
    # This check of the package "other" fails for every part, sound ones too.
    monkeypatch.setattr(faulty_parts, "exits", exits, raising=False)
    spec = CheckSpec("other_exits", {"checks": "faulty_parts:exits"}, "a check")
    catalog = isolated_catalog(
        *LISTED,
        PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.spec()]), "acme"),
        PluginEntryPoint(plugin_of(rlcatalog_checks=[spec]), "other"),
    )
    # The decorator is pytest.mark.parametrize(names, parameters).
    _, parameters = parametrize_with_checks("acme", catalog=catalog).mark.args
    checks_by_id = {parameter.id: parameter.values[0] for parameter in parameters}

    # The message is: it also fails for a built-in part.
    with pytest.raises(pytest.skip.Exception, match=r"'other_exits' \(other 1.0\): it also"):
        checks_by_id["trunk-acme_net-exits-torch"]()


# --- plugins that do not load, and many faulty ones -----------------------------------------------


def test_import_check_ignores_a_plugin_that_cannot_load(tmp_path, monkeypatch):
    source = """
import rlcatalog

@rlcatalog.hookimpl
def rlcatalog_models():
    return [rlcatalog.ModelSpec('acme_net', {'torch': 'faulty_parts:Net'}, 'a toy')]
"""
    (tmp_path / "acme_plugin.py").write_text(source, encoding="utf-8")
    (tmp_path / "other_plugin.py").write_text("raise ValueError('broken')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(match="other 1.0 has failed: ValueError: broken"):
        catalog = isolated_catalog(
            PluginEntryPoint("acme_plugin", "acme"), PluginEntryPoint("other_plugin", "other")
        )

    outcome = run_case("trunk-acme_net-imports_no_framework", "acme", catalog)
    del sys.modules["acme_plugin"]

    assert outcome.status == "passed", outcome.why


def install(folder, name, plugin=None):
    """Install a package into a folder as pip does, with a plugin module if its code is given."""
    package = name.replace("-", "_")
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir()
    metadata = f"Name: {name}\nVersion: 1.0\nRequires-Dist: rlcatalog>=0.1,<0.2\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    entry_points = f"[rlcatalog.plugins]\n{package} = {package}.plugin\n"
    (information / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    if plugin is not None:
        (folder / package).mkdir()
        (folder / package / "plugin.py").write_text(plugin, encoding="utf-8")


def test_command_passes_beside_broken_installed_packages(tmp_path):
    plugin_with_a_missing_check = """
from rlcatalog import CheckSpec, hookimpl

@hookimpl
def rlcatalog_checks():
    return [CheckSpec('no_check_yet', {'checks': 'no_check.nowhere:x'}, 'gone')]
"""
    write_package(tmp_path / "acme", package_files("filter", "acme-filter"))
    install(tmp_path, "acme-filter")
    install(tmp_path, "no-import", "raise ValueError('broken')")
    install(tmp_path, "no-check", plugin_with_a_missing_check)

    run = subprocess.run(
        [sys.executable, "-m", "rlcatalog_cli", "check", "acme-filter", "--json"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{tmp_path / 'acme/src'}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    rows = {row["name"]: row for row in json.loads(run.stdout)}
    assert {row["status"] for row in rows.values()} == {"passed", "skipped"}
    [note] = rows["filter-acme_filter-no_check_yet"]["notes"]
    assert note.startswith("check 'no_check_yet' (no-check 1.0): its target")
    assert "plugin 'no_import' of no-import 1.0 has failed" in run.stderr


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")
@pytest.mark.parametrize(
    "package", ["rlcatalog-filters", pytest.param("rlcatalog-lstm", marks=pytest.mark.slow)]
)
def test_sound_package_passes_beside_every_broken_plugin(package):
    broken_plugins.install_parts()
    plugins = broken_plugins.list_broken_plugins()
    broken = [plugin.entry_point(number) for number, plugin in enumerate(plugins)]
    catalog = Catalog((*scan(), *broken), environ={})

    for case in cases(package, catalog=catalog):
        # RLlib pickles catalogs, which is impossible with these made-up plugins.
        if case.subject.framework != "tf" and "rllib" not in case.check.name:
            outcome = outcome_of(case)
            assert outcome.status in ("passed", "skipped"), outcome.why
