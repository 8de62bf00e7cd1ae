"""Every example runs, in a process of its own; the list is what lies in the folder.

`make test` runs each in one framework, `make attack` in the other, and the hand-written scripts
that some replace. `make engines` runs those of tianshou.
"""

import importlib.util
from pathlib import Path

import pytest
import warm
from gallery import BESIDE, HAND_WRITTEN, command, replaced

BOTH = [["--iterations", "1"], ["--iterations", "1", "--framework", "tf"]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUNS = {
    "action_masking.py": BOTH,
    "attention_net.py": BOTH,
    "autoregressive_action_dist.py": BOTH,
    "batch_norm_model.py": BOTH,
    "behaviour_cloning.py": [
        [
            "--steps",
            "300",
            "--updates",
            "50",
            "--episodes",
            "2",
            "--env",
            env,
            "--framework",
            framework,
        ]
        for env, framework in (("CartPole-v1", "torch"), ("Pendulum-v1", "tf"))
    ],
    "cleanrl_ppo.py": [["--iterations", "1"]],
    "complex_struct_space.py": [
        ["--framework", "torch"],
        ["--framework", "tf"],
        ["--iterations", "1"],
    ],
    "custom_action_dist.py": [["--iterations", "1"]],
    "custom_loss.py": BOTH,
    "custom_model.py": [["--iterations", "1"]],
    "custom_model_api.py": [["--framework", "torch"], ["--framework", "tf"]],
    "dqn.py": [
        ["--steps", "1100", "--episodes", "2"],
        ["--steps", "1100", "--episodes", "2", "--framework", "tf"],
    ],
    "env_wrappers.py": [["--iterations", "1"]],
    "keras_model.py": [["--iterations", "1"]],
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
    "skrl_ppo.py": [["--iterations", "1"]],
    "tianshou_ppo.py": [["--iterations", "1"]],
    "torchrl_ppo.py": [["--iterations", "1"]],
    "trajectory_views.py": BOTH,
}
#: What an example needs beside what the packages bring.
NEEDS = {
    "torchrl_ppo.py": "torchrl", "tianshou_ppo.py": "tianshou", "skrl_ppo.py": "skrl",
    "pretrained_backbone.py": "timm",
}  # fmt: skip
#: What an example prints in the end, where it is not one of the two usual lines.
SAYS = {
    "behaviour_cloning.py": "mean return over 2 episodes: ",
    "custom_model_api.py": "Q-values of three actions (3, 1)",
    "dqn.py": "mean return over 2 episodes: ",
    "ppo_single_file.py": "mean return over 2 episodes: ",
    "ppo_single_file_tf.py": "mean return over 2 episodes: ",
    "pretrained_backbone.py": " of the backbone's ",
    "sac.py": "mean return over 2 episodes: ",
}


def test_every_example_is_run():
    assert sorted(RUNS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


CASES = {
    f"{name} {' '.join(run)}".strip(): (name, run) for name, runs in RUNS.items() for run in runs
}
#: The scripts without the catalog, which would rot unseen.
BESIDES = {
    f"hand_written/{path.name}": (f"hand_written/{path.name}", ["--iterations", "1"])
    for path in sorted(HAND_WRITTEN.glob("*.py"))
}
#: Of the examples with a run in each framework, these run in TensorFlow in `make test`; PyTorch is
#: quicker.
IN_TENSORFLOW = ("custom_model_api.py", "lookup.py")
#: These import or download large libraries, or take long; what the last one does is in
#: tests/engines, too.
SLOW = ("pretrained_backbone.py", "torchrl_ppo.py", "ppo_single_file_tf.py")
LEFT = {
    f"{name} {' '.join(runs[0 if name in IN_TENSORFLOW else 1])}"
    for name, runs in RUNS.items()
    if len(runs) == 2
} | {f"{name} {' '.join(run)}" for name in SLOW for run in RUNS[name]}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.attack) if case in LEFT or case in BESIDES else case
        for case in CASES | BESIDES
    ],
)
def test_example(case, tmp_path):
    name, arguments = (CASES | BESIDES)[case]
    script, needed = EXAMPLES / name, NEEDS.get(Path(name).name)
    folder = BESIDE.get(script.stem)
    if (
        needed
        and importlib.util.find_spec(needed) is None
        and not (folder and (folder / needed).exists())
    ):
        pytest.skip(f"{needed} is not installed")
    run = warm.run([*command(script), *arguments], tmp_path)
    assert run.returncode == 0, run.stderr
    usual = (
        "1024 steps, mean return" if "--iterations" in arguments else "values after ten steps: ["
    )
    assert SAYS.get(name, usual) in run.stdout
    if name == "pretrained_backbone.py":
        assert ("\n0 of the backbone's " in run.stdout) == ("--fine-tune" not in arguments)


@pytest.mark.parametrize("name", sorted(path.name for path in HAND_WRITTEN.glob("*.py")))
def test_loop_takes_the_catalogs_net_in_20_lines(name):
    lines = replaced(EXAMPLES / name)[2:]
    for sign in "-+":
        assert 0 < sum(line.startswith(sign) and len(line.strip()) > 1 for line in lines) <= 20
