"""The conformance kit: its cases, their outcomes, and how pytest and the command line show them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import faulty_parts
import gymnasium
import numpy as np
import pytest
import typer
from faulty_functions import function_that_raises, function_that_returns

from rlcatalog import Catalog, Match
from rlcatalog.errors import PartError, UnknownNameError
from rlcatalog.plugins import CheckSpec, EnvWrapperSpec, FrameworkSpec
from rlcatalog_preprocessors.arrays import NoPreprocessor
from rlcatalog_testing import (
    Check,
    ConformanceError,
    PluginEntryPoint,
    Subject,
    cases,
    check,
    check_plugin,
    checks,
    isolated_catalog,
    outcomes,
    parametrize_with_checks,
    plugin_of,
    require,
    runner,
)
from rlcatalog_testing.checks.distributions import _check_shape
from rlcatalog_testing.commands import check as check_command
from rlcatalog_testing.contract import NotApplicable

pytestmark = pytest.mark.usefixtures("one_thread")

BUILT_IN = ("rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian")
#: The case that checks the number of outputs of the model acme_net.
OUTPUT_WIDTH = "trunk-acme_net-output_width-torch"
#: A case that does not apply, because acme_net has no state.
STATE = "trunk-acme_net-state_at_seq_lens-torch"


def make_catalog(spec, **hooks):
    """Return a catalog of some built-in packages and package acme, which declares this model."""
    acme = PluginEntryPoint(plugin_of(rlcatalog_models=[spec], **hooks), "acme")
    return isolated_catalog(*BUILT_IN, acme)


def make_catalog_with_check(monkeypatch, function):
    """Return a catalog of the sound model acme_net and of a check of acme."""
    # The declaration names the check by its place in a module.
    monkeypatch.setattr(faulty_parts, "own_check", function, raising=False)
    spec = CheckSpec("acme_check", {"checks": "faulty_parts:own_check"}, "a check")
    return make_catalog(faulty_parts.spec(), rlcatalog_checks=[spec])


@pytest.fixture
def sound():
    """A catalog with the model acme_net, which keeps its contract."""
    return make_catalog(faulty_parts.spec())


@pytest.fixture
def faulty():
    """A catalog with the model acme_net, which has one output too many."""
    return make_catalog(faulty_parts.spec("faulty_parts:OneOutputMore"))


def run_cases(catalog, **options):
    """Run all cases of acme, and return their outcomes by name."""
    return {
        outcome.name: outcome for outcome in outcomes(cases("acme", catalog=catalog, **options))
    }


# --- outcomes -------------------------------------------------------------------------------------


def test_failure_names_case_part_package_and_spaces(faulty):
    with pytest.raises(ConformanceError) as caught:
        check_plugin("acme", catalog=faulty)

    message = str(caught.value)
    assert message.startswith("acme: ")
    assert f"\n{OUTPUT_WIDTH}: model 'acme_net' (acme 1.0): " in message
    assert ": Box(-1.0, 1.0, (4,), float32) → Discrete(3, start=1)" in message


def test_failure_has_a_hint(faulty):
    with pytest.raises(ConformanceError, match="Hint: let forward return") as caught:
        check_plugin("acme", catalog=faulty)

    # A batch of three rows, and three actions.
    assert ("outputs (3, 4), expected (3, 3). Hint: let forward return [B, num_outputs]") in str(
        caught.value
    )


def test_check_is_skipped_if_the_framework_lacks_a_feature(sound):
    outcome = run_cases(sound)["trunk-acme_net-traced_equals_eager-torch"]

    assert outcome.status == "skipped"
    assert outcome.why == "framework 'torch' does not trace models"


def test_cases_are_listed_without_importing_frameworks():
    program = """
import sys
from rlcatalog_testing import cases

assert len(cases("rlcatalog-fcnet")) > 50  # so that many checks are read
heavy = {"torch", "tensorflow", "ray", "stable_baselines3"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr


# --- expected failures ----------------------------------------------------------------------------


def test_expected_failure_is_not_a_failure(faulty):
    results = run_cases(faulty)
    failing = [name for name, outcome in results.items() if outcome.status == "failed"]
    assert OUTPUT_WIDTH in failing

    results = run_cases(faulty, expected=dict.fromkeys(failing, "known"))

    assert {results[name].status for name in failing} == {"expected"}
    assert {results[name].why for name in failing} == {"known"}


def test_plugin_with_expected_failures_passes(faulty):
    results = run_cases(faulty)
    failing = [name for name, outcome in results.items() if outcome.status == "failed"]

    check_plugin("acme", catalog=faulty, expected=dict.fromkeys(failing, "known"))


def test_expected_failure_that_passes_is_an_error(sound):
    with pytest.raises(ConformanceError, match=r"expected to fail \(known\), but passes"):
        check_plugin("acme", catalog=sound, expected={OUTPUT_WIDTH: "known"})


def test_expected_failure_of_unknown_case_is_an_error(sound):
    misspelt = {"trunk-acme_net-output_with-torch": "known"}

    with pytest.raises(UnknownNameError, match=f"Did you mean '{OUTPUT_WIDTH}'") as caught:
        cases("acme", catalog=sound, expected=misspelt)

    assert "is not a case of acme" in str(caught.value)


# --- packages that cannot be checked --------------------------------------------------------------


def test_misspelt_package_error_suggests_the_nearest(sound):
    with pytest.raises(UnknownNameError, match="Did you mean 'acme'") as caught:
        check_plugin("acne", catalog=sound)

    assert "'acne' is not in this catalog" in str(caught.value)


def test_missing_package_error_says_how_to_install_it():
    with pytest.raises(UnknownNameError, match=r"`pip install -e \.` in") as caught:
        check_plugin("acme-small")

    assert "'acme-small' is not installed." in str(caught.value)
    assert "rlcatalog-fcnet" not in str(caught.value)  # no list of all packages


def test_package_without_parts_is_an_error():
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_models=[]), "acme"))

    with pytest.raises(UnknownNameError, match=r"'acme' has no part in this catalog"):
        check_plugin("acme", catalog=catalog)


def test_package_that_cannot_be_imported_is_an_error():
    with pytest.warns(match="acme"):
        catalog = isolated_catalog(PluginEntryPoint("no_such_module_at_all", "acme"))

    with pytest.raises(ConformanceError, match=r"acme 1.0 has failed: .*no_such_module"):
        check_plugin("acme", catalog=catalog)


def test_package_with_a_star_import_error_names_the_line(tmp_path, monkeypatch):
    source = "from rlcatalog import hookimpl\nfrom rlcatalog import *  # all of it"
    (tmp_path / "acme_stars.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(match="of acme 1.0 has failed"):
        catalog = isolated_catalog(PluginEntryPoint("acme_stars", "acme"))

    with pytest.raises(ConformanceError, match=r"acme 1.0 has failed: ") as caught:
        check_plugin("acme", catalog=catalog)

    line = "`from rlcatalog import *  # all of it` (acme_stars.py:2): import the names you use"
    assert line in str(caught.value)


# --- checks of built-in parts ---------------------------------------------------------------------


@pytest.fixture
def case_of_bounds():
    """The case that checks the bounds of the built-in preprocessor "none"."""
    name = "preprocessor-none-encodes_within_its_bounds"
    catalog = isolated_catalog("rlcatalog-preprocessors")
    all_cases = cases("rlcatalog-preprocessors", catalog=catalog)
    [case] = [case for case in all_cases if str(case) == name]
    return case


def test_built_in_codec_keeps_its_bounds(case_of_bounds):
    case_of_bounds()


def test_built_in_codec_slightly_beyond_its_bounds_is_an_error(case_of_bounds, monkeypatch):
    bounds = NoPreprocessor.bounds

    # Observations at a bound are now a little beyond it.
    def narrower_bounds(self):
        low, high = bounds(self)
        return low + np.float32(5e-6), high - np.float32(5e-6)

    monkeypatch.setattr(NoPreprocessor, "bounds", narrower_bounds)

    with pytest.raises(ConformanceError, match=r"the range that its bounds\(\) returns"):
        case_of_bounds()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        pytest.param("tape", "passed", id="name-of-its-library"),
        pytest.param("acme_arrays", "passed", id="prefix-of-its-package"),
        pytest.param("arrays", "failed", id="neither"),
    ],
)
def test_framework_has_the_name_of_its_library_or_a_prefix(name, status):
    targets = {"backend": "rlcatalog_tape.backend:Backend", "ops": "rlcatalog_tape.ops:OPS"}
    spec = FrameworkSpec(name, targets, "arrays", module="tape")
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_frameworks=[spec]), "acme"))

    outcome = run_cases(catalog)[f"framework-{name}-names_are_its_own"]

    assert outcome.status == status, outcome.why


# --- checks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", checks.MODULES)
def test_checks_have_a_hint_and_a_docstring(name):
    module = importlib.import_module(f"rlcatalog_testing.checks.{name}")

    for value in vars(module).values():
        if isinstance(value, Check):
            assert value.hint, value.name
            assert value.__doc__, value.name


def test_plugin_brings_its_own_checks(monkeypatch):
    @check("trunk", hint="be better")
    def pleases(subject):
        require(False, "it does not please")

    catalog = make_catalog_with_check(monkeypatch, pleases)

    outcome = run_cases(catalog)["trunk-acme_net-pleases-torch"]

    assert outcome.status == "failed"
    assert outcome.why.endswith("it does not please. Hint: be better.")


# --- examples -------------------------------------------------------------------------------------


def make_subject(catalog):
    """Return the model of acme as a part to be checked."""
    [part] = [part for part in catalog.parts("model") if part.distribution == "acme"]
    return Subject(part, catalog)


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (list, r"must return at least one rlcatalog_testing.Example, found \[\]"),
        (function_that_returns(["CartPole-v1"]), "found .'CartPole-v1'."),
        (function_that_raises(ZeroDivisionError("no")), "raised ZeroDivisionError: no"),
    ],
    ids=["no-example", "text", "error"],
)
def test_wrong_examples_are_a_fault_of_the_part(function, cause, monkeypatch):
    # acme_net declares this function.
    monkeypatch.setattr(faulty_parts, "examples", function)
    subject = make_subject(make_catalog(faulty_parts.spec()))

    with pytest.raises(PartError, match=rf"its examples function .*{cause}") as caught:
        len(subject.examples)

    assert "'acme_net' (acme 1.0)" in str(caught.value)


def match_all(request):
    return Match(1, "all")


@pytest.mark.parametrize(
    ("match", "count"),
    [
        pytest.param(None, 2, id="declared"),
        pytest.param(match_all, 8, id="declared-and-standard"),
    ],
)
def test_part_that_matches_has_standard_examples_too(match, count):
    # It declares two examples.
    subject = make_subject(make_catalog(faulty_parts.spec(match=match)))

    examples = subject.examples

    assert len(examples) == count
    assert {example.config["custom_model"] for example in examples} == {"acme/acme_net"}


# --- wrappers that are never applied --------------------------------------------------------------


def check_wrapper(**fields):
    """Return the outcome of a check of the wrapper "sails", which has these fields."""
    spec = EnvWrapperSpec("sails", {"numpy": "faulty_parts:sails"}, "sails", **fields)
    catalog = isolated_catalog(PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[spec]), "acme"))
    return run_cases(catalog)["env_wrapper-sails-applied_twice_is_once"]


def match_no_environment(request):
    return Match(None, "sails only")


def match_by_missing_attribute(request):
    return request.nope


def test_wrapper_without_match_and_switch_is_never_applied():
    outcome = check_wrapper()

    assert outcome.status == "failed"
    assert "it has no switch, so it is never applied" in outcome.why


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrapper_that_matches_no_environment_is_never_applied():
    outcome = check_wrapper(match=match_no_environment)

    assert outcome.status == "failed"
    _, after = outcome.why.split("no standard environment: ")
    assert "CartPole" in after
    assert ": sails only" in after


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrapper_whose_match_function_fails_is_a_failure():
    outcome = check_wrapper(match=match_by_missing_attribute)

    assert outcome.status == "failed"
    assert "its match function raised AttributeError" in outcome.why


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrapper_that_matches_none_of_its_examples_is_a_failure(monkeypatch):
    def examples():
        # Each example is a function that makes an environment, and a config.
        return [(lambda: gymnasium.make("CartPole-v1"), {"max_seq_len": 7})]

    monkeypatch.setattr(faulty_parts, "environments", examples, raising=False)

    outcome = check_wrapper(match=match_no_environment, examples="faulty_parts:environments")

    assert outcome.status == "failed"
    assert "none of its examples: " in outcome.why
    assert "CartPole" in outcome.why
    # The match function gives the reason "sails only" for every environment.
    assert "with {'max_seq_len': 7}: sails only" in outcome.why


# --- pytest ---------------------------------------------------------------------------------------


def test_pytest_collects_a_test_per_case(sound):
    mark = parametrize_with_checks("acme", catalog=sound).mark

    name, parameters = mark.args
    ids = [parameter.id for parameter in parameters]
    assert name == "check"
    assert ids == [str(case) for case in cases("acme", catalog=sound)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("method", ["build_from_lookup", "resolve"])
def test_pytest_collects_without_building(sound, monkeypatch, method):
    def fail(*arguments, **options):
        pytest.fail("something is built while tests are collected")

    monkeypatch.setattr(Catalog, method, fail)

    parametrize_with_checks("acme", catalog=sound)


def find_parameter(mark, name):
    _, parameters = mark.args
    [parameter] = [parameter for parameter in parameters if parameter.id == name]
    return parameter


def test_pytest_expects_known_failures_strictly(sound):
    mark = parametrize_with_checks("acme", catalog=sound, expected={OUTPUT_WIDTH: "known"}).mark

    [xfail] = find_parameter(mark, OUTPUT_WIDTH).marks
    assert xfail.name == "xfail"
    assert xfail.kwargs == {"reason": "known", "strict": True}


def test_pytest_skips_a_case_that_does_not_apply(sound):
    mark = parametrize_with_checks("acme", catalog=sound).mark
    [case] = find_parameter(mark, STATE).values

    with pytest.raises(pytest.skip.Exception, match="it has no state"):
        case()


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def run_command(monkeypatch):
    """Run `rlcatalog check acme` with this catalog."""

    def run(catalog, **options):
        monkeypatch.setattr(runner, "default_catalog", lambda: catalog)
        check_command("acme", **options)

    return run


def test_command_prints_a_line_per_case(run_command, sound, capsys):
    run_command(sound)

    *lines, summary = capsys.readouterr().out.splitlines()
    assert f"passed   {OUTPUT_WIDTH}" in lines
    assert f"skipped  {STATE} (it has no state)" in lines
    # A reason that does not fit is below its case, and indented.
    lines_of_cases = [line for line in lines if not line.startswith(" ")]
    assert len(lines_of_cases) == len(cases("acme", catalog=sound))
    assert summary.startswith("acme: ")


def wrapper_without_a_switch():
    """Return a catalog with a wrapper that several checks refuse, for one and the same reason."""
    clock = {"numpy": "gymnasium.wrappers:TimeAwareObservation"}
    spec = EnvWrapperSpec("acme_clock", clock, "a clock")
    acme = PluginEntryPoint(plugin_of(rlcatalog_env_wrappers=[spec]), "acme")
    return isolated_catalog(*BUILT_IN, acme)


def test_reason_of_several_failures_is_printed_once():
    with pytest.raises(ConformanceError, match="4 of 8 checks failed") as caught:
        check_plugin("acme", catalog=wrapper_without_a_switch())

    message = str(caught.value)
    assert message.count("it has no switch") == 1
    # The four cases that fail are named nevertheless.
    assert message.count("env_wrapper-acme_clock-") == 4


def test_command_prints_a_reason_once(run_command, capsys):
    with pytest.raises(typer.Exit):
        run_command(wrapper_without_a_switch())

    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("failed ") for line in lines) == 4
    assert sum("it has no switch" in line for line in lines) == 1
    assert sum("For the same reason as" in line for line in lines) == 3


def test_command_wraps_reasons_at_100_columns(run_command, faulty, capsys):
    with pytest.raises(typer.Exit):
        run_command(faulty)

    lines = capsys.readouterr().out.splitlines()
    assert any("Hint:" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_command_cuts_long_reasons_of_skipped_cases(run_command, monkeypatch, capsys):
    @check("trunk", hint="", every_framework=False)
    def skips(subject):
        raise NotApplicable(" ".join(f"word{number}" for number in range(60)))

    run_command(make_catalog_with_check(monkeypatch, skips))

    lines = capsys.readouterr().out.splitlines()
    first = lines.index("skipped  trunk-acme_net-skips")
    assert lines[first + 1].startswith("         (word0 word1 ")
    assert lines[first + 3] == "         … (all of it: --json)"
    assert not lines[first + 4].startswith(" ")


def test_command_fails_with_a_hint(run_command, faulty, capsys):
    with pytest.raises(typer.Exit) as caught:
        run_command(faulty)

    assert caught.value.exit_code == 1
    text = capsys.readouterr().out
    assert f"failed   {OUTPUT_WIDTH}\n         model 'acme_net' (acme 1.0): Box" in text
    assert "\n         Hint: let forward return [B, num_outputs]" in text


def test_command_prints_json(run_command, faulty, capsys):
    with pytest.raises(typer.Exit):
        run_command(faulty, as_json=True)

    statuses = {row["name"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert statuses[OUTPUT_WIDTH] == "failed"
    assert set(statuses.values()) <= {"passed", "failed", "skipped"}


def test_command_prints_a_line_as_soon_as_a_case_ends(run_command, monkeypatch, capsys):
    outputs_before = []

    # A plugin's own checks are the last ones that the command runs.
    @check("trunk", hint="", every_framework=False)
    def reads_output(subject):
        outputs_before.append(capsys.readouterr().out)

    run_command(make_catalog_with_check(monkeypatch, reads_output))

    [output_before] = outputs_before
    assert "passed   trunk-acme_net-output_width-torch\n" in output_before
    assert "reads_output" not in output_before
    assert "passed   trunk-acme_net-reads_output\n" in capsys.readouterr().out


@pytest.fixture
def run_command_and_read_threads(run_command, monkeypatch):
    """Run the command, and return `OMP_NUM_THREADS` as a check sees it."""

    def run():
        seen_by_checks = []

        @check("trunk", hint="", every_framework=False)
        def reads_threads(subject):
            seen_by_checks.append(os.environ.get("OMP_NUM_THREADS"))

        run_command(make_catalog_with_check(monkeypatch, reads_threads))
        [threads] = seen_by_checks
        return threads

    return run


def test_command_gives_frameworks_one_thread(run_command_and_read_threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert run_command_and_read_threads() == "1"

    # Afterwards the environment is as before.
    assert "OMP_NUM_THREADS" not in os.environ


def test_command_keeps_the_threads_that_the_user_sets(run_command_and_read_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    assert run_command_and_read_threads() == "3"


# --- shapes of samples ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "count", "width", "is_right"),
    [
        pytest.param((5, 5), 5, 5, True, id="rows"),
        # As many values as rows, but each row should have five.
        pytest.param((5,), 5, 5, False, id="one-value-for-each-row"),
        pytest.param((5,), 5, 1, False, id="without-an-axis-for-the-width"),
        pytest.param((), 1, 1, True, id="single-value-without-axes"),
        pytest.param((1, 1, 1), 1, 1, True, id="single-value-with-more-axes"),
    ],
)
def test_samples_need_a_value_for_each_place(shape, count, width, is_right):
    codec = SimpleNamespace(scalar=False, width=width)
    expectation = nullcontext() if is_right else pytest.raises(AssertionError, match="shape")

    with expectation:
        _check_shape(np.zeros(shape), codec, count, "sample() returned")
