"""A command that cannot write its output says so in one line, with the path."""

import command_line
import pytest

SMALL = ("--steps", "32", "--set=num_envs=2", "--set=rollout_length=16", "--set=minibatch_size=32")

COMMANDS = {
    "train": ("train", "CartPole-v1", *SMALL, "--out"),
    "train --record": ("train", "CartPole-v1", *SMALL, "--out", "run", "--record"),
    "new": ("new", "model", "acme-net", "--out"),
    "explain": ("explain", "CartPole-v1", "--svg"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_unwritable_output_is_named(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file, so that it cannot contain anything")
    run = command_line.rlcatalog(*COMMANDS[command], "taken/inside/out.svg")
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "taken/inside" in run.stderr
    assert "cannot be written: Not a directory. There is a file" in run.stderr.replace("\n", " ")


def test_train_names_its_folder_of_runs_that_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file")
    run = command_line.rlcatalog("train", "CartPole-v1", *SMALL)
    assert run.returncode == 1
    assert "runs/CartPole-v1: cannot be written: Not a directory" in run.stderr


@pytest.mark.parametrize(
    ("command", "output"), [("export", "taken/policy.onnx"), ("compare", "taken/curve.png")]
)
def test_unwritable_output_of_a_run_is_named(command, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file, so that it cannot contain anything")
    trained = command_line.rlcatalog("train", "CartPole-v1", *SMALL, "--out", "run")
    assert trained.returncode == 0, trained.stderr

    run = command_line.rlcatalog(command, "run", "--out", output)

    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert output in run.stderr
    assert "cannot be written" in run.stderr
