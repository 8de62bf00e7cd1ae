"""Every example runs, each in its own process.

`make docs-run` runs each in one framework. `make attack` runs them in the other, and the
hand-written scripts that some replace. `make engines` runs those of tianshou.
"""

import importlib.util
from pathlib import Path

import pytest
import warm
from gallery import BESIDE, HAND_WRITTEN, command, replaced

ONCE = [["--iterations", "1"]]
BOTH = [["--iterations", "1"], ["--iterations", "1", "--framework", "tf"]]
SHORT_CLONING = ["--steps", "300", "--updates", "50", "--episodes", "2"]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUNS = {
    "action_masking.py": BOTH,
    "attention_net.py": BOTH,
    "autoregressive_action_dist.py": BOTH,
    "batch_norm_model.py": BOTH,
    "behaviour_cloning.py": [
        [*SHORT_CLONING, "--env", "CartPole-v1", "--framework", "torch"],
        [*SHORT_CLONING, "--env", "Pendulum-v1", "--framework", "tf"],
    ],
    "cleanrl_ppo.py": ONCE,
    "complex_struct_space.py": [
        ["--framework", "torch"],
        ["--framework", "tf"],
        ["--iterations", "1"],
    ],
    "custom_action_dist.py": ONCE,
    "custom_loss.py": BOTH,
    "custom_model.py": ONCE,
    "custom_model_api.py": [["--framework", "torch"], ["--framework", "tf"]],
    "dqn.py": [
        ["--steps", "1100", "--episodes", "2"],
        ["--steps", "1100", "--episodes", "2", "--framework", "tf"],
    ],
    "env_wrappers.py": ONCE,
    "keras_model.py": ONCE,
    "lookup.py": [["--framework", "torch"], ["--env", "Pendulum-v1", "--framework", "tf"]],
    "lstm_auto_wrapping.py": BOTH,
    "parametric_actions_cartpole.py": BOTH,
    "pretrained_backbone.py": [
        ["--iterations", "1", "--fine-tune"],
        ["--iterations", "1"],
        ["--iterations", "1", "--framework", "tf", "--name", "MobileNetV3Small"],
        ["--iterations", "1", "--framework", "tf", "--name", "MobileNetV3Small", "--fine-tune"],
    ],
    "ppo_single_file.py": [["--steps", "1024", "--episodes", "2"]],
    "ppo_single_file_tf.py": [["--steps", "1024", "--episodes", "2"]],
    "rnn_model.py": BOTH,
    "sac.py": [
        ["--steps", "1050", "--episodes", "2"],
        ["--steps", "1050", "--episodes", "2", "--framework", "tf"],
    ],
    "self_supervised_loss.py": BOTH,
    "skrl_ppo.py": ONCE,
    "tianshou_ppo.py": ONCE,
    "torchrl_ppo.py": ONCE,
    "trajectory_views.py": BOTH,
}
#: A library that an example needs beside those that the packages install.
NEEDS = {
    "torchrl_ppo.py": "torchrl", "tianshou_ppo.py": "tianshou", "skrl_ppo.py": "skrl",
    "pretrained_backbone.py": "timm",
}  # fmt: skip
#: What an example prints at the end, unless it is one of the two usual lines.
LAST_LINES = {
    "behaviour_cloning.py": "mean return over 2 episodes: ",
    "custom_model_api.py": "Q-values of three actions (3, 1)",
    "dqn.py": "mean return over 2 episodes: ",
    "ppo_single_file.py": "mean return over 2 episodes: ",
    "ppo_single_file_tf.py": "mean return over 2 episodes: ",
    "pretrained_backbone.py": " of the backbone's ",
    "sac.py": "mean return over 2 episodes: ",
}


HAND_WRITTEN_NAMES = sorted(path.name for path in HAND_WRITTEN.glob("*.py"))
#: The scripts without the catalog run too, so that they do not break unnoticed.
HAND_WRITTEN_RUNS = {
    f"hand_written/{path.name}": ONCE for path in sorted(HAND_WRITTEN.glob("*.py"))
}
#: Of examples with runs in both frameworks, `make docs-run` runs these in TensorFlow; the others in
#: PyTorch, which starts faster.
IN_TENSORFLOW = ("custom_model_api.py", "lookup.py")
#: These import or download large libraries, or take long.
SLOW = ("pretrained_backbone.py", "torchrl_ppo.py", "ppo_single_file_tf.py")


def is_for_attack(name, run):
    """Return whether the n-th run of an example belongs to `make attack`."""
    if name in SLOW or name in HAND_WRITTEN_RUNS:
        return True
    is_in_both = len({"tf" in arguments for arguments in RUNS[name]}) == 2
    is_in_tensorflow = "tf" in RUNS[name][run]
    return is_in_both and is_in_tensorflow != (name in IN_TENSORFLOW)


def make_cases():
    cases = []
    for name, runs in (RUNS | HAND_WRITTEN_RUNS).items():
        for number, arguments in enumerate(runs):
            marks = [pytest.mark.slow] if is_for_attack(name, number) else []
            label = " ".join([name, *arguments])
            cases.append(pytest.param(name, arguments, id=label, marks=marks))
    return cases


def is_installed(library, script):
    """Return whether a script finds a library, in the environment or in a folder beside it."""
    folder = BESIDE.get(script.stem)
    return importlib.util.find_spec(library) is not None or (
        folder is not None and (folder / library).exists()
    )


def find_last_line(name, arguments):
    """Return how the last line begins that an example prints."""
    if name == "pretrained_backbone.py" and "--fine-tune" not in arguments:
        return "\n0 of the backbone's "  # it trains none of its weights
    if name in LAST_LINES:
        return LAST_LINES[name]
    if "--iterations" in arguments:
        return "1024 steps, mean return"
    return "values after ten steps: ["


def test_examples_all_have_a_run():
    assert sorted(RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize(("name", "arguments"), make_cases())
def test_example_runs_to_its_last_line(name, arguments, tmp_path):
    script = EXAMPLES / name
    library = NEEDS.get(script.name)
    if library and not is_installed(library, script):
        pytest.skip(f"{library} is not installed")

    run = warm.run([*command(script), *arguments], tmp_path)

    assert run.returncode == 0, run.stderr
    assert find_last_line(name, arguments) in run.stdout
    if "--fine-tune" in arguments:  # then weights of the backbone are trained too
        assert "\n0 of the backbone's " not in run.stdout


@pytest.mark.parametrize("name", HAND_WRITTEN_NAMES)
def test_loop_takes_the_catalogs_net_in_20_lines(name):
    _, _, *diff = replaced(EXAMPLES / name)  # after the names of the two files
    changes = [line for line in diff if len(line.strip()) > 1]
    removed = [line for line in changes if line.startswith("-")]
    added = [line for line in changes if line.startswith("+")]
    assert removed
    assert 0 < len(added) <= 20
