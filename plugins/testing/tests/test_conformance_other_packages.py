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
    kit,
    outcome_of,
    outcomes,
    parametrize_with_checks,
    plugin_of,
    require,
)
from rlcatalog_testing.commands import check as command
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


def catalog_beside(distribution="acme", **hooks):
    """Return a catalog of listed packages and one more."""
    return isolated_catalog(*LISTED, PluginEntryPoint(plugin_of(**hooks), distribution))


def package_with_trunk(distribution, target):
    """Return a package with a trunk that has no config keys."""
    name = f"{distribution}_net"
    spec = faulty_parts.spec(target, name=name, config=None, describe=None)
    return PluginEntryPoint(plugin_of(rlcatalog_models=[spec]), distribution)


def case_named(name, distribution, catalog):
    """Return one case of a distribution."""
    [case] = [case for case in cases(distribution, catalog=catalog) if str(case) == name]
    return case


# --- parts of other packages ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "fault"),
    [
        ("NoSuchClass", "its target 'faulty_parts:NoSuchClass' cannot be imported"),
        ("RaisingRecall", "ZeroDivisionError: by design"),
        ("WideRecall", "outputs (3, 6), expected (3, 3)"),
        # It works with fcnet's 256 features, but not with the features of complex_input.
        ("OneTrunkOnly", "The size of tensor a"),
    ],
)
def test_faulty_companion_is_noted_and_not_counted(memory, fault):
    spec = faulty_parts.memory(f"faulty_parts:{memory}")
    # Without a switch, the memory of an unlisted package is never chosen.
    catalog = catalog_beside(rlcatalog_models=[replace(spec, switch="acme_recall")])
    name = "trunk-visionnet-works_inside_memories-torch"

    outcome = outcome_of(case_named(name, "rlcatalog-visionnet", catalog))

    assert outcome.status == "passed", outcome.why  # with lstm
    [note] = outcome.notes
    assert note.startswith("model 'acme_recall' (acme 1.0): ")
    assert fault in note


def test_faulty_examples_of_a_companion_are_noted(monkeypatch):
    monkeypatch.setattr(faulty_parts, "memory_examples", lambda: 1 / 0)
    catalog = catalog_beside(rlcatalog_models=[faulty_parts.memory()])
    name = "trunk-visionnet-works_inside_memories-torch"

    outcome = outcome_of(case_named(name, "rlcatalog-visionnet", catalog))

    assert outcome.status == "passed", outcome.why
    [note] = outcome.notes
    assert "'faulty_parts:memory_examples' raised ZeroDivisionError" in note


def test_notes_belong_to_the_case_that_met_a_fault(monkeypatch):
    monkeypatch.setattr(faulty_parts, "memory_examples", lambda: 1 / 0)
    catalog = catalog_beside(rlcatalog_models=[faulty_parts.memory()])
    names = ("works_inside_memories", "works_under_heads")
    all_cases = cases("rlcatalog-visionnet", catalog=catalog)

    inside, under = outcomes([case for case in all_cases if case.check.name in names][:2])

    assert len(inside.notes) == 1
    assert under.notes == ()


@pytest.mark.parametrize("trunk", ["SaysAnotherWidth", "SaysNoWidth"])
def test_faulty_part_fails_inside_a_sound_memory(trunk):
    catalog = catalog_beside(rlcatalog_models=[faulty_parts.spec(f"faulty_parts:{trunk}")])
    name = "trunk-acme_net-works_inside_memories-torch"

    outcome = outcome_of(case_named(name, "acme", catalog))

    assert (outcome.status, outcome.notes) == ("failed", ())


def test_faulty_part_fails_if_its_companion_needs_it():
    """Without the trunk under test, no policy with the other package's memory can be built."""
    memory = replace(faulty_parts.memory(), switch="acme_recall")
    catalog = isolated_catalog(
        "rlcatalog-preprocessors",
        "rlcatalog-categorical",
        PluginEntryPoint(plugin_of(rlcatalog_models=[memory]), "acme"),
        package_with_trunk("mine", "faulty_parts:SaysAnotherWidth"),
    )
    name = "trunk-mine_net-works_inside_memories-torch"

    outcome = outcome_of(case_named(name, "mine", catalog))

    assert (outcome.status, outcome.notes) == ("failed", ())


def test_faulty_part_fails_beside_a_faulty_companion():
    faulty_memory = faulty_parts.memory("faulty_parts:RaisingRecall")
    companion = PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_memory]), "acme")
    catalog = isolated_catalog(
        *LISTED, companion, package_with_trunk("mine", "faulty_parts:OneOutputMore")
    )

    outcome = outcome_of(case_named("trunk-mine_net-output_width-torch", "mine", catalog))

    assert outcome.status == "failed"
    assert "outputs (3, 4), expected (3, 3)" in outcome.why


# --- parts of other packages that a part needs ----------------------------------------------------


@pytest.fixture
def needy(monkeypatch):
    """A catalog in which the memory of `acme` needs a trunk of `other` that cannot be imported."""
    config = {"acme_recall": True, "custom_model": "other/other_net"}
    example = Example(faulty_parts.VECTOR, spaces.Discrete(3), config)
    monkeypatch.setattr(faulty_parts, "memory_examples", lambda: [example])
    return isolated_catalog(
        *LISTED,
        package_with_trunk("other", "faulty_parts:NoSuchClass"),
        PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.memory()]), "acme"),
    )


def test_needed_part_that_is_faulty_blocks_a_check(needy):
    case = case_named("memory-acme_recall-output_width-torch", "acme", needy)

    with pytest.raises(BlockedError, match=r"model 'other_net' \(other 1.0\): its target .*NoSuch"):
        case()
    assert outcome_of(case).status == "blocked"


def test_needed_part_that_is_faulty_fails_the_command(needy, monkeypatch, capsys):
    monkeypatch.setattr(kit, "default_catalog", lambda: needy)

    with pytest.raises(typer.Exit) as exit_info:
        command("acme")

    assert exit_info.value.exit_code == 1
    text = capsys.readouterr().out
    assert "passed   memory-acme_recall-has_a_summary\n" in text
    assert "\nblocked  memory-acme_recall-output_width-torch (model 'other_net' (other 1.0)" in text
    assert "\nfailed" not in text
    before, sentence, faults = text.partition("acme cannot be checked in full, because parts of ")
    assert "acme: " in before
    assert faults.splitlines()[1].startswith("  model 'other_net' (other 1.0): its target")
    assert "note:" not in sentence + faults


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("output_width-torch", "passed"),
        ("output_width-other_arrays", "blocked"),
        ("frameworks_agree", "blocked"),
    ],
)
def test_framework_that_cannot_be_imported_blocks_checks(check, status):
    targets = {"backend": "m:Backend", "ops": "m:OPS", "kit": "no_such_module:Kit"}
    framework = FrameworkSpec("other_arrays", targets, "arrays", module="numpy")
    both = {"torch": "faulty_parts:Net", "other_arrays": "faulty_parts:Net"}
    catalog = isolated_catalog(
        *LISTED,
        PluginEntryPoint(plugin_of(rlcatalog_frameworks=[framework]), "other"),
        PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.spec(targets=both)]), "acme"),
    )

    outcome = outcome_of(case_named(f"trunk-acme_net-{check}", "acme", catalog))

    assert outcome.status == status, outcome.why
    if status == "blocked":
        fault = "framework 'other_arrays' (other 1.0): it cannot be imported: ModuleNotFoundError"
        assert fault in outcome.why


# --- checks of other packages ---------------------------------------------------------------------


@check("trunk", hint="be another")
def refuses_every_part(part):
    require(False, "no part pleases")


@check("trunk", hint="be another")
def exits(part):
    raise SystemExit(3)


@check("trunk", hint="be another")
def refuses_acme(part):
    require(part.component.distribution != "acme", "it is from acme")


@pytest.fixture
def check_beside(monkeypatch):
    """A function that returns a sound trunk's outcome of a check from another package."""

    def outcome_of_check(name):
        for one in (refuses_every_part, exits, refuses_acme):
            monkeypatch.setattr(faulty_parts, one.run.__name__, one, raising=False)
        monkeypatch.setattr(faulty_parts, "no_check", lambda part: None, raising=False)
        spec = CheckSpec("other_check", {"checks": f"faulty_parts:{name}"}, "a check")
        catalog = isolated_catalog(
            *LISTED,
            PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.spec()]), "acme"),
            PluginEntryPoint(plugin_of(rlcatalog_checks=[spec]), "other"),
        )
        [case] = [case for case in cases("acme", catalog=catalog) if case.provider is not None]
        return outcome_of(case)

    return outcome_of_check


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("refuses_every_part", "it also fails for model 'complex_input' (rlcatalog-complex-input"),
        ("exits", "it also fails for model 'complex_input' (rlcatalog-complex-input"),
        ("no_such_check", "its target 'faulty_parts:no_such_check' cannot be imported"),
        ("no_check", "its target must be a rlcatalog_testing.Check"),
    ],
)
def test_faulty_check_of_another_package_is_skipped(check_beside, name, fault):
    outcome = check_beside(name)

    assert outcome.status == "skipped"
    [note] = outcome.notes
    assert note.startswith(f"check 'other_check' (other 1.0): {fault}")


def test_sound_check_of_another_package_counts(check_beside):
    outcome = check_beside("refuses_acme")

    assert outcome.status == "failed"
    assert outcome.why.endswith("it is from acme. Hint: be another.")
    assert outcome.notes == ()


def test_faulty_check_of_the_same_package_counts(monkeypatch):
    monkeypatch.setattr(faulty_parts, "exits", exits, raising=False)
    spec = CheckSpec("acme_exits", {"checks": "faulty_parts:exits"}, "a check")
    catalog = catalog_beside(rlcatalog_models=[faulty_parts.spec()], rlcatalog_checks=[spec])

    outcome = outcome_of(case_named("trunk-acme_net-exits-torch", "acme", catalog))

    assert outcome.status == "failed"


def test_pytest_skips_a_faulty_check_of_another_package(monkeypatch):
    monkeypatch.setattr(faulty_parts, "exits", exits, raising=False)
    spec = CheckSpec("other_exits", {"checks": "faulty_parts:exits"}, "a check")
    catalog = isolated_catalog(
        *LISTED,
        PluginEntryPoint(plugin_of(rlcatalog_models=[faulty_parts.spec()]), "acme"),
        PluginEntryPoint(plugin_of(rlcatalog_checks=[spec]), "other"),
    )
    parameters = parametrize_with_checks("acme", catalog=catalog).mark.args[1]
    [parameter] = [one for one in parameters if one.id == "trunk-acme_net-exits-torch"]

    with pytest.raises(pytest.skip.Exception, match=r"check 'other_exits' \(other 1.0\): it also"):
        parameter.values[0]()


# --- plugins that do not load, and many faulty ones -----------------------------------------------


def test_import_check_ignores_a_plugin_that_cannot_load(tmp_path, monkeypatch):
    hook = "import rlcatalog\n\n\n@rlcatalog.hookimpl\ndef rlcatalog_models():\n"
    spec = "    return [rlcatalog.ModelSpec('acme_net', {'torch': 'faulty_parts:Net'}, 'a toy')]\n"
    (tmp_path / "acme_plugin.py").write_text(hook + spec, encoding="utf-8")
    (tmp_path / "other_plugin.py").write_text("raise ValueError('broken')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(match="other 1.0 has failed: ValueError: broken"):
        catalog = isolated_catalog(
            PluginEntryPoint("acme_plugin", "acme"), PluginEntryPoint("other_plugin", "other")
        )

    outcome = outcome_of(case_named("trunk-acme_net-imports_no_framework", "acme", catalog))
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
    write_package(tmp_path / "new", package_files("filter", "acme-filter"))
    install(tmp_path, "acme-filter")
    install(tmp_path, "no-import", "raise ValueError('broken')")
    hook = "from rlcatalog import CheckSpec, hookimpl\n\n\n@hookimpl\ndef rlcatalog_checks():\n"
    spec = "    return [CheckSpec('no_check_yet', {'checks': 'no_check.nowhere:x'}, 'gone')]\n"
    install(tmp_path, "no-check", hook + spec)
    path = os.pathsep.join([str(tmp_path), str(tmp_path / "new/src")])

    run = subprocess.run(
        [sys.executable, "-m", "rlcatalog_cli", "check", "acme-filter", "--json"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    rows = {row["name"]: row for row in json.loads(run.stdout)}
    assert {row["status"] for row in rows.values()} == {"passed", "skipped"}
    [note] = rows["filter-acme_filter-no_check_yet"]["notes"]
    assert note.startswith("check 'no_check_yet' (no-check 1.0): its target")
    assert run.stderr.count("plugin 'no_import' of no-import 1.0 has failed") == 1


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")
@pytest.mark.parametrize(
    "named",
    [
        "rlcatalog-filters",
        "rlcatalog-lstm",
        *(
            pytest.param(name, marks=pytest.mark.attack)
            for name in ("rlcatalog-fcnet", "rlcatalog-attention", "rlcatalog-categorical")
        ),
    ],
)
def test_every_broken_plugin_beside_a_sound_package(named):
    broken_plugins.install_parts()
    table = broken_plugins.table()
    broken = [one.entry_point(number) for number, one in enumerate(table)]
    catalog = Catalog((*scan(), *broken), environ={})

    results = list(
        outcomes(
            [
                case
                for case in cases(named, catalog=catalog)
                # RLlib pickles catalogs, which is impossible with these made-up plugins.
                if case.part.framework in (None, "torch") and "rllib" not in case.check.name
            ]
        )
    )

    assert {outcome.status for outcome in results} <= {"passed", "skipped"}, results
