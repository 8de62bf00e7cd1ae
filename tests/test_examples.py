"""Every example runs, in a process of its own; the list is what lies in the folder."""

import subprocess
import sys
from pathlib import Path

import pytest

BOTH = [["--iterations", "2"], ["--iterations", "2", "--framework", "tf"]]
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUNS = {
    "attention_net.py": BOTH,
    "batch_norm_model.py": BOTH,
    "complex_struct_space.py": [["--framework", "torch"], ["--framework", "tf"], ["--iterations", "2"]],
    "custom_action_dist.py": [["--iterations", "2"]],
    "custom_loss.py": BOTH,
    "custom_model.py": [["--iterations", "2"]],
    "custom_model_api.py": [["--framework", "torch"], ["--framework", "tf"]],
    "dqn.py": [["--steps", "1400", "--episodes", "2"], ["--steps", "1400", "--episodes", "2", "--framework", "tf"]],
    "env_wrappers.py": [["--iterations", "2"]],
    "keras_model.py": [["--iterations", "2"]],
    "lookup.py": [["--framework", "torch"], ["--env", "Pendulum-v1", "--framework", "tf"]],
    "lstm_auto_wrapping.py": BOTH,
    "rnn_model.py": BOTH,
    "sac.py": [["--steps", "1150", "--episodes", "2"], ["--steps", "1150", "--episodes", "2", "--framework", "tf"]],
    "self_supervised_loss.py": BOTH,
    "trajectory_views.py": BOTH,
}
#: What an example prints in the end, where it is not one of the two usual lines.
SAYS = {
    "custom_model_api.py": "Q-values of three actions (3, 1)",
    "dqn.py": "mean return over 2 episodes: ",
    "sac.py": "mean return over 2 episodes: ",
}


def test_every_example_is_run():
    assert sorted(RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize(("name", "arguments"), [(name, run) for name, runs in RUNS.items() for run in runs])
def test_example(name, arguments, tmp_path):
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr
    usual = "2048 steps, mean return" if "--iterations" in arguments else "values after ten steps: ["
    assert SAYS.get(name, usual) in run.stdout
