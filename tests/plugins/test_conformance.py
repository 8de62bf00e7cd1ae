"""The packages of this repository pass the conformance kit in every framework.

Crosses: all packages.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from grids import covering

from rlcatalog import Catalog, FrameworkSpec
from rlcatalog.plugins.discovery import scan
from rlcatalog_testing import parametrize_with_checks
from rlcatalog_testing.passes import kit_of
from rlcatalog_testing.runner import cases

pytestmark = pytest.mark.usefixtures("one_thread")

CATALOG = Catalog(scan(), environ={})
DISTRIBUTIONS = sorted({part.distribution for part in CATALOG.parts()})


def cases_of_make_test(every):
    """Return cases in which each check and each part occurs, in TensorFlow and outside it."""
    chosen = []
    for in_tensorflow in (True, False):
        cases_here = [case for case in every if runs_in_tensorflow(case) == in_tensorflow]
        kept = covering([(case.check.name, case.subject.part.address) for case in cases_here])
        chosen += [cases_here[place] for place in kept]
    return [case for case in chosen if not is_tested_elsewhere(case)]


def runs_in_tensorflow(case):
    return case.check.every_framework and case.subject.framework == "tf"


def is_tested_elsewhere(case):
    """Return whether other tests make the same check.

    A check of a command's help takes a process: `test_docs_reference.py` has all but one. ONNX
    files are in `test_export.py`.
    """
    part = case.subject.part
    if case.check.name.startswith("help_") and part.name != "train":
        return True
    return part.kind == "exporter" and part.name == "onnx"


def leave_others_to_attack(parametrize):
    """Mark the cases that only `make attack` runs."""
    name, params = parametrize.args
    every = [case for package in DISTRIBUTIONS for case in cases(package, catalog=CATALOG)]
    ids = {str(case) for case in cases_of_make_test(every)}
    marked = []
    for param in params:
        if param.id not in ids:
            param = param._replace(marks=[*param.marks, pytest.mark.slow])
        marked.append(param)
    return pytest.mark.parametrize(name, marked)


@leave_others_to_attack(parametrize_with_checks(*DISTRIBUTIONS, catalog=CATALOG))
def test_contract(check):
    check()


def test_conformance_covers_all_packages():
    assert len(DISTRIBUTIONS) >= 18


@pytest.fixture
def prepared_frameworks(monkeypatch):
    """Names of the frameworks that were prepared: only then TensorFlow is in eager mode.

    RLlib, which another package may import, turns it off.
    """
    names = []
    monkeypatch.setattr(FrameworkSpec, "prepare", lambda self: names.append(self.name))
    return names


def test_framework_is_prepared_before_the_kit_is_loaded(prepared_frameworks):
    kit_of("torch")
    assert prepared_frameworks == ["torch"]


def test_framework_is_prepared_before_its_operations_run(prepared_frameworks):
    checks = {str(case): case for case in cases("rlcatalog-torch", catalog=CATALOG)}
    checks["framework-torch-operations_are_those_of_numpy"]()
    assert prepared_frameworks == ["torch"]


CHECK_IN_TENSORFLOW = """
from rlcatalog_testing.runner import cases

(case,) = [
    case
    for case in cases("rlcatalog-fcnet")
    if str(case) == "trunk-fcnet-every_weight_is_trained-tf"
]
case()
"""


@pytest.mark.slow
def test_tensorflow_check_runs_alone_beside_rllib(tmp_path):
    # RLlib, if it is the first to import TensorFlow, turns eager execution off.
    command = [sys.executable, "-c", CHECK_IN_TENSORFLOW]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
