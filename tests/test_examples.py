"""Every example runs, in a process of its own; the list is what lies in the folder."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUNS = {
    "complex_struct_space.py": [["--framework", "torch"], ["--framework", "tf"], ["--iterations", "2"]],
    "custom_action_dist.py": [["--iterations", "2"]],
    "custom_model.py": [["--iterations", "2"]],
    "env_wrappers.py": [["--iterations", "2"]],
    "lookup.py": [["--framework", "torch"], ["--env", "Pendulum-v1", "--framework", "tf"]],
}


def test_every_example_is_run():
    assert sorted(RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize(("name", "arguments"), [(name, run) for name, runs in RUNS.items() for run in runs])
def test_example(name, arguments, tmp_path):
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr
    assert ("2048 steps, mean return" if "--iterations" in arguments else "values after ten steps: [") in run.stdout
