"""Without TensorFlow its tests are skipped and say why, and those of PyTorch run
(`tests/support/frameworks.py`).

Crosses: torch, tf.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from frameworks import is_of_absence, stand_in

from rlcatalog.errors import MissingFrameworkError

ROOT = Path(__file__).resolve().parents[2]

#: An environment without TensorFlow, wherever this runs: the finder of installed modules does not
#: find it.
HIDE = """
from importlib.machinery import PathFinder

real = PathFinder.find_spec

def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in ("tensorflow", "keras") else real(name, path, target)

PathFinder.find_spec = classmethod(find_spec)
"""


@pytest.fixture
def hidden(tmp_path):
    """Run pytest on files, TensorFlow hidden; its report."""

    def run(*arguments):
        (tmp_path / "hide.py").write_text(HIDE, encoding="utf-8")
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import hide, pytest;"
            " pytest.main(sys.argv[1:])"
        )
        return subprocess.run(
            [sys.executable, "-c", code, "-p", "no:cacheprovider", "-v", *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        ).stdout

    return run


@pytest.mark.attack
def test_only_tensorflow_tests_are_skipped_without_tensorflow(hidden):
    report = hidden("tests/support/one_framework.py")
    found = dict(re.findall(r"::(test_\S+) (PASSED|FAILED|SKIPPED)", report))
    passed = {
        "test_classes[Categorical0]",
        "test_builds[torch]",
        "test_what_is_no_tensor",
        "test_of_the_refusal",
        "test_an_exception_among_others",
    }
    assert {name for name, outcome in found.items() if outcome == "PASSED"} == passed, report
    assert {name for name, outcome in found.items() if outcome == "FAILED"} == {
        "test_another_module_is_missed"
    }
    assert len(found) == 16
    assert "TensorFlow is not installed" in report


def test_only_what_says_that_tensorflow_is_missing_counts():
    assert is_of_absence(ModuleNotFoundError("x", name="tensorflow.keras"))
    assert is_of_absence(
        MissingFrameworkError(
            "framework='tf' needs the package 'tensorflow', which is not installed"
        )
    )
    assert not is_of_absence(MissingFrameworkError("framework='torch' needs the package 'torch'"))
    assert not is_of_absence(ModuleNotFoundError("x", name="torch"))
    assert not is_of_absence(ImportError("cannot import name 'x' from 'tensorflow'"))
    assert is_of_absence(AttributeError("x", name="tf", obj=sys))
    assert not is_of_absence(AttributeError("x", name="tf", obj=object()))
    assert not is_of_absence(AttributeError("x", name="torch", obj=sys))
    assert not isinstance(1, stand_in("Tensor"))


def test_eager_execution_is_turned_on_again(tmp_path):
    """As RLlib does where it is the first to import TensorFlow."""
    code = (
        "import sys; import tensorflow as tf; tf.compat.v1.disable_v2_behavior(); import"
        " gymnasium, rlcatalog;env = gymnasium.make('CartPole-v1'); policy ="
        " rlcatalog.build(env=env, framework='tf');"
        "print(policy.act(env.reset(seed=0)[0][None]).action.shape)"
    )
    done = warm.run(["-c", code], tmp_path)
    assert done.stdout == "(1,)\n", done.stderr
