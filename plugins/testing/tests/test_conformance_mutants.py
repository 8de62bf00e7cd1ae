"""Mutants, which are parts with one fault: the conformance kit finds each in every framework."""

from __future__ import annotations

import sys

import pytest
from grids import in_turn
from planted_mutants import ALL, BOTH, MODULE, MUTANTS, cases_of

from rlcatalog_testing import ConformanceError, outcomes

pytestmark = pytest.mark.usefixtures("one_thread")

#: Kind of part → the frameworks in which there is a sound one, which mutants are made of.
FRAMEWORKS = {"model": ALL, "memory": BOTH, "head": BOTH, "action_dist": ALL}


@pytest.fixture(autouse=True)
def forget_module():
    """Forget the module with the classes of a mutant."""
    yield
    sys.modules.pop(MODULE, None)


def list_mutants():
    """Return a parameter for each mutant in each of its frameworks.

    In one of them it is tried by `make test`, in the others by `make attack`.
    """
    parameters = []
    for number, mutant in enumerate(MUTANTS):
        framework_of_make_test = in_turn(number, mutant.frameworks)
        for framework in mutant.frameworks:
            marks = () if framework == framework_of_make_test else pytest.mark.slow
            parameters.append(
                pytest.param(mutant, framework, id=f"{mutant}-{framework}", marks=marks)
            )
    return parameters


def list_sound_parts():
    parameters = []
    for kind, frameworks in FRAMEWORKS.items():
        for framework in frameworks:
            # `make test` checks the parts of this repository in TensorFlow.
            marks = pytest.mark.slow if framework == "tf" else ()
            parameters.append(pytest.param(kind, framework, marks=marks))
    return parameters


@pytest.mark.parametrize(("mutant", "framework"), list_mutants())
def test_mutant_is_found_by_its_check(mutant, framework):
    if framework == "tf":
        pytest.importorskip("tensorflow")
    all_cases = cases_of(mutant.kind, framework, mutant)
    [case] = [case for case in all_cases if case.check.name == mutant.check]

    with pytest.raises(ConformanceError, match=r"acme-mutant 1\.0"):
        case()


@pytest.mark.parametrize(("kind", "framework"), list_sound_parts())
def test_sound_part_passes_the_checks_that_find_mutants(kind, framework):
    checks_that_find_mutants = set()
    for mutant in MUTANTS:
        if mutant.kind == kind and framework in mutant.frameworks:
            checks_that_find_mutants.add(mutant.check)
    all_cases = cases_of(kind, framework)

    for case, outcome in zip(all_cases, outcomes(all_cases), strict=True):
        assert outcome.status != "failed", outcome.why
        if case.check.name in checks_that_find_mutants:
            assert outcome.status == "passed", outcome.why


@pytest.fixture
def failures_of_greedy_distribution():
    """The outcomes of a distribution whose match and size accept every space."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "a size for every space"]
    return list(outcomes(cases_of(mutant.kind, "torch", mutant)))


def test_distribution_for_every_space_is_one_failure(failures_of_greedy_distribution):
    [failure] = [
        outcome.why for outcome in failures_of_greedy_distribution if outcome.status == "failed"
    ]

    assert "its match and size accept" in failure
    assert "MultiDiscrete([2 3])" in failure
    assert "let match return no rank, or size raise UnsupportedSpaceError" in failure


def test_distribution_for_every_space_skips_other_checks(failures_of_greedy_distribution):
    reasons = [outcome.why for outcome in failures_of_greedy_distribution]

    assert sum("works_for_what_it_accepts comes first" in reason for reason in reasons) > 10
