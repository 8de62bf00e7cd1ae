"""Plain modules of a plugin: the conformance kit checks them as it checks model classes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rlcatalog import ModelSpec
from rlcatalog_testing import (
    ConformanceError,
    PluginEntryPoint,
    cases,
    isolated_catalog,
    outcomes,
    plugin_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")

INSTALLED = (
    "rlcatalog-preprocessors", "rlcatalog-categorical", "rlcatalog-gaussian", "rlcatalog-fcnet",
    "rlcatalog-lstm", "rlcatalog-visionnet", "rlcatalog-parametric", "rlcatalog-complex-input",
)  # fmt: skip


def make_cases(name, *, slot="trunk", frameworks=("torch",), examples="plain_nets:examples"):
    """Return the cases of a plain module, a class of `plain_nets` and `plain_nets_tf`."""
    modules = {"torch": f"plain_nets:{name}", "tf": f"plain_nets_tf:{name}"}
    targets = {framework: modules[framework] for framework in frameworks}
    spec = ModelSpec("acme_plain", targets, "a toy", plain=True, slot=slot, examples=examples)
    plugin = plugin_of(rlcatalog_models=[spec])
    entry_point = PluginEntryPoint(plugin, "acme", requires=("rlcatalog>=0.1,<0.2",))
    return cases("acme", catalog=isolated_catalog(*INSTALLED, entry_point))


def run_cases(all_cases):
    """Return the names of the checks that were passed; none may fail."""
    passed = set()
    for case, outcome in zip(all_cases, outcomes(all_cases), strict=True):
        assert outcome.status in ("passed", "skipped"), outcome.why
        if outcome.status == "passed":
            passed.add(case.check.name)
    return passed


IMPORTANT_CHECKS = {
    "output_width",
    "every_weight_is_trained",
    "saved_and_restored",
    "rows_are_independent",
}
each_module = pytest.mark.parametrize(
    ("name", "examples"),
    [
        pytest.param("PlainNet", "plain_nets:examples", id="one-input"),
        pytest.param("PlainPair", "plain_nets:pair_examples", id="two-inputs"),
    ],
)


@each_module
def test_plain_module_passes_every_check(name, examples):
    passed = run_cases(make_cases(name, examples=examples))

    assert passed >= IMPORTANT_CHECKS
    assert "frameworks_agree" not in passed


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@each_module
def test_plain_module_passes_every_check_in_both_frameworks(name, examples):
    passed = run_cases(make_cases(name, frameworks=("torch", "tf"), examples=examples))

    assert passed >= IMPORTANT_CHECKS
    assert "frameworks_agree" in passed


@pytest.mark.parametrize(
    ("name", "check", "cause"),
    [
        ("Centred", "rows_are_independent", "rows with only one other"),
        ("IdleLayer", "every_weight_is_trained", "does not change module.idle.weight"),
        ("KeepsAState", "output_width", "only floating-point .*has no state"),
    ],
)
def test_faulty_plain_module_is_found(name, check, cause):
    [case] = [case for case in make_cases(name) if case.check.name == check]

    with pytest.raises(ConformanceError, match=cause):
        case()


# --- memories -------------------------------------------------------------------------------------

CHECKS_OF_MEMORIES = {
    "has_a_state",
    "has_a_way_in",
    "steps_equal_a_sequence",
    "state_carries_everything",
    "state_at_seq_lens",
    "padding_never_reaches_it",
    "every_weight_is_trained",
    "saved_and_restored",
}


def test_plain_memory_passes_every_check():
    passed = run_cases(make_cases("PlainMemory", slot="memory"))

    assert passed >= CHECKS_OF_MEMORIES


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_plain_memory_passes_every_check_in_both_frameworks():
    passed = run_cases(make_cases("PlainMemory", slot="memory", frameworks=("torch", "tf")))

    assert passed >= CHECKS_OF_MEMORIES
    assert "frameworks_agree" in passed


@pytest.mark.parametrize(
    ("name", "check", "cause"),
    [
        ("LeaksBetweenRows", "rows_are_independent", "rows with only one other"),
        ("ForgetsItsState", "state_carries_everything", "do not depend on its state"),
    ],
)
def test_faulty_plain_memory_is_found(name, check, cause):
    all_cases = make_cases(name, slot="memory")
    [case] = [case for case in all_cases if case.check.name == check]

    with pytest.raises(ConformanceError, match=cause):
        case()
