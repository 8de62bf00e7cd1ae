"""Every example runs, in a process of its own; the list is what lies in the folder.

`make test` runs each in one framework, `make attack` in the other.
"""

import importlib.util
from pathlib import Path

import pytest
import warm

BOTH = [["--iterations", "1"], ["--iterations", "1", "--framework", "tf"]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUNS = {
    "action_masking.py": BOTH,
    "attention_net.py": BOTH,
    "autoregressive_action_dist.py": BOTH,
    "batch_norm_model.py": BOTH,
    "behaviour_cloning.py": [
        ["--steps", "300", "--updates", "50", "--episodes", "2", "--env", env, "--framework", framework]
        for env, framework in (("CartPole-v1", "torch"), ("Pendulum-v1", "tf"))
    ],
    "complex_struct_space.py": [["--framework", "torch"], ["--framework", "tf"], ["--iterations", "1"]],
    "custom_action_dist.py": [["--iterations", "1"]],
    "custom_loss.py": BOTH,
    "custom_model.py": [["--iterations", "1"]],
    "custom_model_api.py": [["--framework", "torch"], ["--framework", "tf"]],
    "dqn.py": [["--steps", "1100", "--episodes", "2"], ["--steps", "1100", "--episodes", "2", "--framework", "tf"]],
    "env_wrappers.py": [["--iterations", "1"]],
    "keras_model.py": [["--iterations", "1"]],
    "lookup.py": [["--framework", "torch"], ["--env", "Pendulum-v1", "--framework", "tf"]],
    "lstm_auto_wrapping.py": BOTH,
    "parametric_actions_cartpole.py": BOTH,
    "ppo_single_file.py": [["--steps", "1024", "--episodes", "2"]],
    "ppo_single_file_tf.py": [["--steps", "1024", "--episodes", "2"]],
    "rnn_model.py": BOTH,
    "sac.py": [["--steps", "1050", "--episodes", "2"], ["--steps", "1050", "--episodes", "2", "--framework", "tf"]],
    "self_supervised_loss.py": BOTH,
    "torchrl_ppo.py": [["--iterations", "1"]],
    "trajectory_views.py": BOTH,
}
#: What an example needs beside what the packages bring.
NEEDS = {"torchrl_ppo.py": "torchrl"}
#: What an example prints in the end, where it is not one of the two usual lines.
SAYS = {
    "behaviour_cloning.py": "mean return over 2 episodes: ",
    "custom_model_api.py": "Q-values of three actions (3, 1)",
    "dqn.py": "mean return over 2 episodes: ",
    "ppo_single_file.py": "mean return over 2 episodes: ",
    "ppo_single_file_tf.py": "mean return over 2 episodes: ",
    "sac.py": "mean return over 2 episodes: ",
}


def test_every_example_is_run():
    assert sorted(RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


CASES = {f"{name} {' '.join(run)}".strip(): (name, run) for name, runs in RUNS.items() for run in runs}
#: These have no code of one framework; PyTorch is quicker.
ALIKE = ("action_masking.py", "attention_net.py", "autoregressive_action_dist.py", "parametric_actions_cartpole.py")
#: Of the other examples with a run in each framework, every other one runs in TensorFlow in `make test`.
LEFT = {
    f"{name} {' '.join(runs[1 if name in ALIKE else i % 2])}"
    for i, (name, runs) in enumerate(RUNS.items())
    if len(runs) == 2
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.attack) if case in LEFT else case for case in CASES]
)
def test_example(case, tmp_path):
    name, arguments = CASES[case]
    if NEEDS.get(name) and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    run = warm.run([str(EXAMPLES / name), *arguments], tmp_path)
    assert run.returncode == 0, run.stderr
    usual = "1024 steps, mean return" if "--iterations" in arguments else "values after ten steps: ["
    assert SAYS.get(name, usual) in run.stdout
