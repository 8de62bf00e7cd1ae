"""`make gpu` without an accelerator: the tables, where batches are placed, and the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import gpu
from benchmarks.cases_models import some_columns, some_obs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def two_models(monkeypatch):
    """Measure a dense net, an LSTM and one short run."""
    models = {name: gpu.MODELS[name] for name in ("fcnet, 2 × 256", "LSTM")}
    short_run = ("CartPole-v1", {"rollout_length": 8, "minibatch_size": 64})
    monkeypatch.setattr(gpu, "MODELS", models)
    monkeypatch.setattr(gpu, "RUNS", {"CartPole-v1": short_run})


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.slow)])
def test_rows_have_two_figures_and_their_ratio(framework, two_models):
    # Each call is made once, for one row while acting and 32 while training.
    text = "\n".join(gpu.tables(framework, seconds=0.0, batches=((1,), (32,))))

    rows = [line for line in text.splitlines() if line.startswith(("| act", "| train", "| Cart"))]
    assert len(rows) == 5  # acting and training of two models, and a run of CartPole
    for row in rows:
        figures = re.findall(r"\| ([\d,.]+)", row)
        cpu, device, ratio = [float(figure.replace(",", "")) for figure in figures]
        if row.startswith("| Cart"):  # steps per second, not times
            cpu, device = device, cpu
        assert ratio == pytest.approx(cpu / device, rel=0.1, abs=0.01)


@pytest.mark.parametrize("model", gpu.MODELS)
def test_batch_and_losses_are_on_the_policys_device(model):
    # A tensor on "meta" has no numbers, so nothing can return to the CPU unnoticed.
    policy = gpu.built("torch", model, device="meta")
    obs_space, *_ = gpu.MODELS[model]
    columns = {"obs": some_obs(obs_space, 32), **some_columns(32)}
    memory = policy.memory.start(2)
    if memory:
        columns["seq_lens"] = np.array([16, 16], np.int32)  # two sequences of 16 steps
        columns["state"] = tuple(map(np.array, memory))

    batch = gpu.placed(columns, policy.device)
    evaluation = policy.evaluate(batch)

    tensors = [batch["obs"], batch["raw_action"], batch["advantage"]]
    tensors += [evaluation.logp, evaluation.value]
    for tensor in tensors:
        assert tensor.device.type == "meta"


class FakeRun:
    """Stands in for `subprocess.run`: prints a text, and keeps the command lines."""

    def __init__(self, output, *, failing=""):
        self.output = output
        self.failing = failing
        self.commands = []

    def __call__(self, command, **options):
        self.commands.append(command)
        status = int(bool(self.failing) and self.failing in command)
        return subprocess.CompletedProcess(command, status, self.output)


def test_command_fails_with_the_tests_of_devices(monkeypatch, tmp_path):
    fake_run = FakeRun("a table\n", failing="pytest")
    monkeypatch.setattr(subprocess, "run", fake_run)
    file = tmp_path / "new/gpu.md"

    assert gpu.main(["--markdown", str(file)]) == 1

    # It still measures both frameworks.
    assert [command[-1] for command in fake_run.commands[1:]] == ["torch", "tf"]
    assert file.read_text(encoding="utf-8").count("a table") == 2


def test_tests_of_devices_exist():
    for name in gpu.TESTS:
        assert (ROOT / name).is_file()
