"""The packages of this repository pass the conformance kit as any stranger's, in every framework."""

from __future__ import annotations

import pytest
from grids import covering

from rlcatalog import Catalog
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import parametrize_with_checks
from rlcatalog_testing.kit import cases

pytestmark = pytest.mark.usefixtures("one_thread")

CATALOG = Catalog(scan(), environ={})
DISTRIBUTIONS = sorted({component.distribution for component in CATALOG.components()})


def left_to_attack():
    """Names of cases that `make attack` runs: in TensorFlow all but each check once and each part once.

    All run in PyTorch, and `frameworks_agree` compares the two. Of the commands' help, each of which takes a process,
    one is asked for; the others are in `test_docs_reference.py`. ONNX files are in `test_export.py`.
    """
    every = [case for name in DISTRIBUTIONS for case in cases(name, catalog=CATALOG)]
    inner = [case for case in every if case.check.every_framework and case.part.framework == "tf"]
    kept = covering([(case.check.name, case.part.component.address) for case in inner])
    left = [case for place, case in enumerate(inner) if place not in kept]
    left += [case for case in every if case.check.name.startswith("help_") and case.part.component.name != "train"]
    left += [case for case in every if case.part.component.kind == "exporter" and case.part.component.name == "onnx"]
    return {str(case) for case in left}


def sparse(parametrize):
    """Mark the cases that `make attack` runs."""
    name, every = parametrize.args
    left = left_to_attack()
    mark = pytest.mark.attack
    return pytest.mark.parametrize(
        name, [one._replace(marks=[*one.marks, mark]) if one.id in left else one for one in every]
    )


@sparse(parametrize_with_checks(*DISTRIBUTIONS, catalog=CATALOG))
def test_contract(check):
    check()


def test_all_packages_are_there():
    assert len(DISTRIBUTIONS) >= 18
