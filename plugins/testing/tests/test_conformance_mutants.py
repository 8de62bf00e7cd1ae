"""The conformance kit finds every mutant, in every framework, and passes the sound parts that they
are made of.
"""

from __future__ import annotations

import sys

import pytest
from grids import in_turn
from planted_mutants import ALL, BOTH, MODULE, MUTANTS, cases_of

from rlcatalog_testing import ConformanceError, outcomes

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = {"model": ALL, "memory": BOTH, "head": BOTH, "action_dist": ALL}
#: The parts of this repository pass each check in TensorFlow as well: `test_conformance.py`.
SOUND = [
    pytest.param(kind, framework, marks=[pytest.mark.attack] * (framework == "tf"))
    for kind, frameworks in KINDS.items()
    for framework in frameworks
]


@pytest.fixture(autouse=True)
def forgotten():
    yield
    sys.modules.pop(MODULE, None)


def grid():
    """Yield each mutant in each of its frameworks; the first time in `make test`, else in
    `make attack`.
    """
    for number, mutant in enumerate(MUTANTS):
        now = in_turn(number, mutant.frameworks)
        for framework in mutant.frameworks:
            marks = [] if framework == now else [pytest.mark.attack]
            yield pytest.param(mutant, framework, id=f"{mutant}-{framework}", marks=marks)


@pytest.mark.parametrize(("mutant", "framework"), [*grid()])
def test_a_mutant_is_found_by_its_check(mutant, framework):
    if framework == "tf":
        pytest.importorskip("tensorflow")
    [case] = [
        case for case in cases_of(mutant.kind, framework, mutant) if case.check.name == mutant.check
    ]
    with pytest.raises(ConformanceError, match=r"acme-mutant 1\.0"):
        case()


@pytest.mark.parametrize(("kind", "framework"), SOUND)
def test_the_sound_part_passes(kind, framework):
    ended = list(outcomes(cases_of(kind, framework)))
    assert [outcome.why for outcome in ended if outcome.status == "failed"] == []
    names = {
        outcome.name.removesuffix(f"-{framework}").rpartition("-")[2]: outcome.status
        for outcome in ended
    }
    asked = {
        mutant.check for mutant in MUTANTS if mutant.kind == kind and framework in mutant.frameworks
    }
    # The others come with a declaration.
    assert {names[check] for check in asked & names.keys()} == {"passed"}


def test_a_size_for_every_space_is_one_failure_that_names_it():
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "a size for every space"]
    ended = list(outcomes(cases_of(mutant.kind, "torch", mutant)))
    [failed] = [outcome.why for outcome in ended if outcome.status == "failed"]
    assert "its match and size accept" in failed
    assert "MultiDiscrete([2 3])" in failed
    assert "let match return no rank, or size raise UnsupportedSpaceError" in failed
    assert sum("works_for_what_it_accepts comes first" in outcome.why for outcome in ended) > 10


def test_the_table_is_long():
    assert len(MUTANTS) >= 60
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)
    for framework in BOTH:
        assert sum(framework in mutant.frameworks for mutant in MUTANTS) >= 45
