"""The packages of this repository pass the conformance kit as any stranger's, in
every framework.

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
from rlcatalog_testing.kit import cases
from rlcatalog_testing.passes import kit_of

pytestmark = pytest.mark.usefixtures("one_thread")

CATALOG = Catalog(scan(), environ={})
DISTRIBUTIONS = sorted({component.distribution for component in CATALOG.components()})


def left_to_attack():
    """Names of cases that `make attack` runs: all but each check once and each part once, in each
    framework.

    Of the commands' help, each of which takes a process, one is asked for; the others are in
    `test_docs_reference.py`. ONNX files are in `test_export.py`.
    """
    every = [case for name in DISTRIBUTIONS for case in cases(name, catalog=CATALOG)]
    left = []
    for in_tensorflow in (True, False):
        some = [
            c
            for c in every
            if (c.check.every_framework and c.part.framework == "tf") == in_tensorflow
        ]
        kept = covering([(case.check.name, case.part.component.address) for case in some])
        left += [case for place, case in enumerate(some) if place not in kept]
    left += [
        case
        for case in every
        if case.check.name.startswith("help_") and case.part.component.name != "train"
    ]
    left += [
        case
        for case in every
        if case.part.component.kind == "exporter" and case.part.component.name == "onnx"
    ]
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


def test_conformance_covers_all_packages():
    assert len(DISTRIBUTIONS) >= 18


def test_framework_is_prepared_before_the_kit_is_loaded(monkeypatch):
    prepared = []
    monkeypatch.setattr(FrameworkSpec, "prepare", lambda self: prepared.append(self.name))
    kit_of("torch")
    assert prepared == ["torch"]


def test_framework_is_prepared_before_its_operations_run(monkeypatch):
    """Another package may have imported RLlib, which turns TensorFlow's eager execution off."""
    prepared = []
    monkeypatch.setattr(FrameworkSpec, "prepare", lambda self: prepared.append(self.name))
    name = "framework-torch-operations_are_those_of_numpy"
    [case] = [case for case in cases("rlcatalog-torch", catalog=CATALOG) if str(case) == name]
    case()
    assert prepared == ["torch"]


ALONE = """
from rlcatalog_testing.kit import cases

(case,) = [
    case
    for case in cases("rlcatalog-fcnet")
    if str(case) == "trunk-fcnet-every_weight_is_trained-tf"
]
case()
"""


@pytest.mark.attack
def test_tensorflow_check_runs_alone_beside_rllib(tmp_path):
    """RLlib, which its bridge's check imports, turns eager execution off if it is the first to
    import TensorFlow.
    """
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
