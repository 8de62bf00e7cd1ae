"""Tests where TensorFlow is missing: its tests are skipped and say why, and those of PyTorch run
(`tests/support/frameworks.py`).

Crosses: torch, tf.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]

#: Lets the finder of installed modules not find TensorFlow.
HIDE = """
from importlib.machinery import PathFinder

real = PathFinder.find_spec

def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in ("tensorflow", "keras") else real(name, path, target)

PathFinder.find_spec = classmethod(find_spec)
"""
RUN_PYTEST = "import hide, pytest, sys; pytest.main(sys.argv[1:])"


@pytest.fixture
def run_without_tensorflow(tmp_path):
    """Return a function that runs pytest where TensorFlow is hidden, and returns the report."""
    (tmp_path / "hide.py").write_text(HIDE, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*arguments):
        process = subprocess.run(
            [sys.executable, "-c", RUN_PYTEST, "-p", "no:cacheprovider", "-v", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return process.stdout

    return run


def find_tests(report, outcome):
    """Return the names of the tests with an outcome in pytest's report."""
    return set(re.findall(rf"::(test_\S+) {outcome}", report))


@pytest.mark.slow
def test_only_tensorflow_tests_are_skipped_without_tensorflow(run_without_tensorflow):
    # A file with 16 tests, which meet TensorFlow in different ways.
    report = run_without_tensorflow("tests/support/one_framework.py")

    assert find_tests(report, "PASSED") == {
        "test_classes[Categorical0]",
        "test_builds[torch]",
        "test_what_is_no_tensor",
        "test_of_the_refusal",
        "test_an_exception_among_others",
    }, report
    # This test imports another module that does not exist.
    assert find_tests(report, "FAILED") == {"test_another_module_is_missed"}
    assert len(find_tests(report, "SKIPPED")) == 10  # the others of the 16
    assert "TensorFlow is not installed" in report


#: RLlib calls `disable_v2_behavior()` if it is the first to import TensorFlow.
ACT_AFTER_EAGER_EXECUTION_WAS_OFF = """
import tensorflow as tf
tf.compat.v1.disable_v2_behavior()
import gymnasium, rlcatalog
env = gymnasium.make("CartPole-v1")
policy = rlcatalog.build(env=env, framework="tf")
print(policy.act(env.reset(seed=0)[0][None]).action.shape)
"""


def test_eager_execution_is_turned_on_again(tmp_path):
    process = warm.run(["-c", ACT_AFTER_EAGER_EXECUTION_WAS_OFF], tmp_path)
    assert process.stdout == "(1,)\n", process.stderr
