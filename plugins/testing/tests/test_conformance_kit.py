"""The conformance kit itself: its cases, how they end, pytest's and the command line's view of
them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import faulty_parts
import gymnasium
import numpy as np
import pytest
import typer

from rlcatalog import Catalog
from rlcatalog.errors import PartError, UnknownNameError
from rlcatalog.plugins import CheckSpec, EnvWrapperSpec, FrameworkSpec
from rlcatalog_preprocessors.arrays import NoPreprocessor
from rlcatalog_testing import (
    ConformanceError,
    Part,
    PluginEntryPoint,
    cases,
    check,
    check_plugin,
    isolated_catalog,
    kit,
    outcomes,
    parametrize_with_checks,
    plugin_of,
    require,
)
from rlcatalog_testing.commands import check as command

pytestmark = pytest.mark.usefixtures("one_thread")

BESIDE = ("rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian")
WIDE = "trunk-acme_net-output_width-torch"


def catalog_with(spec, **hooks):
    return isolated_catalog(
        *BESIDE, PluginEntryPoint(plugin_of(rlcatalog_models=[spec], **hooks), "acme")
    )


@pytest.fixture
def faulty():
    return catalog_with(faulty_parts.spec("faulty_parts:OneOutputMore"))


@pytest.fixture
def sound():
    return catalog_with(faulty_parts.spec())


def ended(catalog, **options):
    return {
        outcome.name: outcome for outcome in outcomes(cases("acme", catalog=catalog, **options))
    }


def test_a_failure_names_case_part_provider_and_hint(faulty):
    with pytest.raises(ConformanceError) as found:
        check_plugin("acme", catalog=faulty)
    text = str(found.value)
    assert text.startswith("acme: ")
    assert (
        f"\n{WIDE}: model 'acme_net' (acme 1.0): Box(-1.0, 1.0, (4,), float32) → Discrete(3,"
        " start=1)" in text
    )
    assert "outputs (3, 4), expected (3, 3). Hint: let forward return [B, num_outputs]" in text


def test_all_cases_of_a_sound_part_pass(sound):
    assert {outcome.status for outcome in check_plugin("acme", catalog=sound)} == {
        "passed",
        "skipped",
    }


def test_a_failure_may_be_expected_and_must_then_fail(faulty, sound):
    failing = {
        name: "known" for name, outcome in ended(faulty).items() if outcome.status == "failed"
    }
    assert WIDE in failing
    found = ended(faulty, expected=failing)
    assert {(found[name].status, found[name].why) for name in failing} == {("expected", "known")}
    check_plugin("acme", catalog=faulty, expected=failing)
    with pytest.raises(ConformanceError, match=r"expected to fail \(known\), but passes"):
        check_plugin("acme", catalog=sound, expected={WIDE: "known"})


def test_an_expectation_of_no_case_is_refused(sound):
    with pytest.raises(UnknownNameError, match=f"is not a case of acme. Did you mean '{WIDE}'"):
        cases(
            "acme", catalog=sound, expected={"trunk-acme_net-output_with-torch": "a typing error"}
        )


def test_a_distribution_without_parts_is_refused_with_the_reason(sound):
    with pytest.raises(
        UnknownNameError, match=r"'acne' is not in this catalog. Did you mean 'acme'"
    ):
        check_plugin("acne", catalog=sound)
    with pytest.raises(
        UnknownNameError, match=r"'acme-small' is not installed\. .*`pip install -e \.` in"
    ) as found:
        check_plugin("acme-small")
    assert "rlcatalog-fcnet" not in str(found.value)
    empty = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_models=[]), "acme"))
    with pytest.raises(UnknownNameError, match=r"'acme' has no part in this catalog"):
        check_plugin("acme", catalog=empty)
    broken = PluginEntryPoint("no_such_module_at_all", "acme")
    with pytest.warns(match="acme"):
        catalog = isolated_catalog(broken)
    with pytest.raises(ConformanceError, match=r"acme 1.0 has failed: .*no_such_module_at_all"):
        check_plugin("acme", catalog=catalog)


def test_a_star_import_that_fails_is_named(tmp_path, monkeypatch):
    lines = ["from rlcatalog import hookimpl", "from rlcatalog import *  # all of it"]
    (tmp_path / "acme_stars.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(match="acme"):
        catalog = isolated_catalog(PluginEntryPoint("acme_stars", "acme"))
    star = r"`from rlcatalog import \*  # all of it` \(acme_stars.py:2\): import the names you use"
    with pytest.raises(ConformanceError, match=rf"acme 1.0 has failed: .* {star}"):
        check_plugin("acme", catalog=catalog)


@pytest.mark.parametrize("beyond", [0.0, 5e-6])
def test_listed_codecs_are_held_to_their_bounds_as_others_are(beyond, monkeypatch):
    """The kit asks the rule of run time, which knows no tolerance, though listed codecs are not
    watched there.
    """
    bounds = NoPreprocessor.bounds

    def narrower(self):
        low, high = bounds(self)
        return low + np.float32(beyond), high - np.float32(beyond)

    monkeypatch.setattr(NoPreprocessor, "bounds", narrower)
    catalog = isolated_catalog("rlcatalog-preprocessors")
    [case] = [
        case
        for case in cases("rlcatalog-preprocessors", catalog=catalog)
        if str(case) == "preprocessor-none-encodes_within_its_bounds"
    ]
    if not beyond:
        case()
        return
    with pytest.raises(ConformanceError, match=r"the range that its bounds\(\) returns"):
        case()


@pytest.mark.parametrize(
    ("name", "fits"), [("numpy", True), ("acme_arrays", True), ("arrays", False)]
)
def test_a_framework_may_be_called_after_its_library(name, fits):
    targets = {"backend": "toy_framework:Backend", "ops": "toy_framework:OPS"}
    spec = FrameworkSpec(name, targets, "arrays", module="numpy")
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_frameworks=[spec]), "acme"))
    found = ended(catalog)[f"framework-{name}-names_are_its_own"]
    assert found.status == ("passed" if fits else "failed"), found.why


def test_pytest_gets_a_case_by_name_and_nothing_is_built_before(sound, monkeypatch):
    for name in ("build_from_lookup", "resolve"):
        monkeypatch.setattr(
            Catalog, name, lambda *args, **kwargs: pytest.fail("asked while tests are collected")
        )
    mark = parametrize_with_checks("acme", catalog=sound, expected={WIDE: "known"}).mark
    name, parameters = mark.args
    assert name == "check"
    ids = [parameter.id for parameter in parameters]
    assert ids == [str(case) for case in cases("acme", catalog=sound)]
    assert len(set(ids)) == len(ids)
    [xfail] = parameters[ids.index(WIDE)].marks
    assert (xfail.name, xfail.kwargs) == ("xfail", {"reason": "known", "strict": True})


def test_pytest_skips_what_a_check_has_nothing_to_say_about(sound):
    parameters = parametrize_with_checks("acme", catalog=sound).mark.args[1]
    [parameter] = [p for p in parameters if p.id == "trunk-acme_net-state_at_seq_lens-torch"]
    with pytest.raises(pytest.skip.Exception, match="it has no state"):
        parameter.values[0]()


def test_a_plugin_brings_checks_of_its_own(monkeypatch):
    @check("trunk", hint="be better")
    def pleases(part: Part) -> None:
        require(False, "it does not please")

    monkeypatch.setattr(faulty_parts, "pleases", pleases, raising=False)
    spec = CheckSpec("acme_pleases", {"checks": "faulty_parts:pleases"}, "pleases")
    found = ended(catalog_with(faulty_parts.spec(), rlcatalog_checks=[spec]))
    assert found["trunk-acme_net-pleases-torch"].why.endswith(
        "it does not please. Hint: be better."
    )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (list, r"must return at least one rlcatalog_testing.Example, found \[\]"),
        (lambda: ["CartPole-v1"], "found .'CartPole-v1'."),
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
    ids=["none", "others", "raises"],
)
def test_examples_that_are_none_are_a_fault_of_the_part(function, words, monkeypatch):
    monkeypatch.setattr(faulty_parts, "examples", function)
    catalog = catalog_with(faulty_parts.spec())
    [component] = [c for c in catalog.components("model") if c.distribution == "acme"]
    with pytest.raises(
        PartError, match=rf"'acme_net' \(acme 1.0\): its examples function .* {words}"
    ):
        len(Part(component, catalog).examples)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, "it has no switch, so it is never applied"),
        (
            {"match": lambda request: faulty_parts.Match(None, "sails only")},
            "no standard environment: .*CartPole.*: sails only",
        ),
        ({"match": lambda request: request.nope}, "its match function raised AttributeError"),
        (
            {
                "match": lambda request: faulty_parts.Match(None, "sails only"),
                "examples": "faulty_parts:environments",
            },
            "none of its examples: .*CartPole.* with {'max_seq_len': 7}: sails",
        ),
    ],
    ids=["matchless", "refuses", "raises", "examples"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_wrapper_that_is_put_around_nothing_is_told_why(declared, words, monkeypatch):
    pair = (lambda: gymnasium.make("CartPole-v1"), {"max_seq_len": 7})
    monkeypatch.setattr(faulty_parts, "environments", lambda: [pair], raising=False)
    spec = EnvWrapperSpec("sails", {"numpy": "faulty_parts:sails"}, "sails", **declared)
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[spec]), "acme"))
    found = ended(catalog)["env_wrapper-sails-applied_twice_is_once"]
    assert found.status == "failed"
    assert re.search(words, found.why), found.why


def test_examples_are_declared_ones_and_standard_ones_beside():
    for match, count in (
        (None, len(faulty_parts.examples())),
        (lambda request: faulty_parts.Match(1, "all"), 8),
    ):
        catalog = catalog_with(faulty_parts.spec(match=match))
        [component] = [c for c in catalog.components("model") if c.distribution == "acme"]
        found = Part(component, catalog).examples
        assert len(found) == count, found
        assert all(example.config["custom_model"] == "acme/acme_net" for example in found)


def test_the_command_prints_a_line_per_case_and_fails_with_hints(
    faulty, sound, monkeypatch, capsys
):
    monkeypatch.setattr(kit, "default_catalog", lambda: sound)
    command("acme")
    *lines, last = capsys.readouterr().out.splitlines()
    assert f"passed   {WIDE}" in lines
    assert "skipped  trunk-acme_net-state_at_seq_lens-torch (it has no state)" in lines
    assert len(lines) == len(cases("acme", catalog=sound))
    assert last.startswith("acme: ")
    monkeypatch.setattr(kit, "default_catalog", lambda: faulty)
    with pytest.raises(typer.Exit) as found:
        command("acme")
    assert found.value.exit_code == 1
    text = capsys.readouterr().out
    assert f"failed   {WIDE}\n         model 'acme_net' (acme 1.0): Box" in text
    assert "\n         Hint: let forward return [B, num_outputs]" in text


def test_command_prints_a_line_as_soon_as_a_case_ends(sound, monkeypatch, capsys):
    printed = {}

    @check("trunk", hint="", every_framework=False)
    def reads_output(part):
        printed["before"] = capsys.readouterr().out

    monkeypatch.setattr(faulty_parts, "reads_output", reads_output, raising=False)
    spec = CheckSpec("acme_reads_output", {"checks": "faulty_parts:reads_output"}, "reads")
    catalog = catalog_with(faulty_parts.spec(), rlcatalog_checks=[spec])
    monkeypatch.setattr(kit, "default_catalog", lambda: catalog)

    command("acme")

    assert f"passed   {WIDE}\n" in printed["before"]
    assert "reads_output" not in printed["before"]
    assert "passed   trunk-acme_net-reads_output\n" in capsys.readouterr().out


@pytest.mark.parametrize("given", [None, "3"])
def test_command_gives_frameworks_one_thread(given, monkeypatch, capsys):
    seen = []

    @check("trunk", hint="", every_framework=False)
    def reads_threads(part):
        seen.append(
            [os.environ.get(name) for name in ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS")]
        )

    monkeypatch.setattr(faulty_parts, "reads_threads", reads_threads, raising=False)
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    spec = CheckSpec("acme_reads_threads", {"checks": "faulty_parts:reads_threads"}, "reads")
    catalog = catalog_with(faulty_parts.spec(), rlcatalog_checks=[spec])
    monkeypatch.setattr(kit, "default_catalog", lambda: catalog)

    command("acme")

    assert seen == [[given or "1", "1"]]
    assert os.environ.get("OMP_NUM_THREADS") == given
    assert "TF_NUM_INTEROP_THREADS" not in os.environ


def test_cases_are_listed_without_importing_frameworks():
    code = """
import sys
from rlcatalog_testing import cases

assert len(cases("rlcatalog-fcnet")) > 50
heavy = {"torch", "tensorflow", "ray", "stable_baselines3"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_tracing_is_not_asked_of_a_framework_without_it(sound):
    outcome = ended(sound)["trunk-acme_net-traced_equals_eager-torch"]
    assert outcome.status == "skipped"
    assert outcome.why == "framework 'torch' does not trace models"


def test_the_command_prints_json(faulty, monkeypatch, capsys):
    monkeypatch.setattr(kit, "default_catalog", lambda: faulty)
    with pytest.raises(typer.Exit):
        command("acme", as_json=True)
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found[WIDE]["status"] == "failed"
    assert {row["status"] for row in found.values()} <= {"passed", "failed", "skipped"}
