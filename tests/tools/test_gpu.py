"""`make gpu` without an accelerator: what it measures runs on the CPU, and batches lie where their
policy does.
"""

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


@pytest.fixture
def two_models(monkeypatch):
    monkeypatch.setattr(
        gpu, "MODELS", {name: gpu.MODELS[name] for name in ("fcnet, 2 × 256", "LSTM")}
    )
    monkeypatch.setattr(
        gpu, "RUNS", {"CartPole-v1": ("CartPole-v1", {"rollout_length": 8, "minibatch_size": 64})}
    )


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=pytest.mark.attack)])
def test_every_line_has_two_times_and_their_ratio(framework, two_models):
    lines = "\n".join(gpu.tables(framework, 0.0, ((1,), (32,)))).splitlines()
    rows = [line for line in lines if line.startswith(("| act", "| training", "| Cart"))]
    assert len(rows) == 2 * 2 + 1
    for row in rows:
        first, second, ratio = (
            float(text.replace(",", "")) for text in re.findall(r"\| ([\d.,]+)", row)
        )
        found = second / first if row.startswith("| Cart") else first / second
        assert ratio == pytest.approx(found, rel=0.1, abs=0.01)


@pytest.mark.parametrize("model", gpu.MODELS)
def test_a_batch_and_its_losses_are_on_the_policy_s_device(model):
    policy = gpu.built("torch", model, "meta")  # nothing there can be brought back unnoticed
    columns = {"obs": some_obs(gpu.MODELS[model][0], 32), **some_columns(32)}
    if memory := policy.memory.start(2):
        columns |= {"seq_lens": np.full(2, 16, np.int32), "state": tuple(map(np.array, memory))}
    batch = gpu.placed(columns, policy.device)
    assert {batch[name].device.type for name in ("obs", "raw_action", "advantage")} == {"meta"}
    found = policy.evaluate(batch)
    assert {found.logp.device.type, found.value.device.type} == {"meta"}


def test_it_writes_the_page_and_says_what_is_not_installed(monkeypatch, tmp_path):
    (tmp_path / "speed.md").write_text(
        f"before\n{gpu.BEGIN}\nold\n{gpu.page.END}\nafter", encoding="utf-8"
    )
    monkeypatch.setattr(gpu.page, "PAGE", tmp_path / "speed.md")
    monkeypatch.setitem(gpu.FRAMEWORKS, "tf", "no_such_module")
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "a table\n")
    )
    assert gpu.main(["--markdown", str(tmp_path / "gpu.md"), "--save"]) == 0
    shown = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "old" not in shown
    assert (tmp_path / "gpu.md").read_text(encoding="utf-8").strip() in shown
    assert "a table\n\nno_such_module is not installed.\n" in shown


def test_without_an_accelerator_the_page_stays_as_it_is(monkeypatch, tmp_path, capsys):
    (tmp_path / "speed.md").write_text(f"{gpu.BEGIN}\nold\n{gpu.page.END}\n", encoding="utf-8")
    monkeypatch.setattr(gpu.page, "PAGE", tmp_path / "speed.md")
    heading = f"### torch: {gpu._name_of('torch', 'cpu')}\n"
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, heading)
    )
    assert gpu.main(["--markdown", str(tmp_path / "gpu.md"), "--save"]) == 1
    assert "old" in (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "no framework found an accelerator" in capsys.readouterr().err


def test_a_failure_in_the_tests_of_devices_is_the_command_s(monkeypatch, tmp_path, capsys):
    asked = []

    def run(command, **options):
        asked.append(command)
        return subprocess.CompletedProcess(command, int("pytest" in command), "a table\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert gpu.main(["--markdown", str(tmp_path / "new/gpu.md")]) == 1
    assert [line[-1] for line in asked[1:]] == ["torch", "tf"]
    assert (tmp_path / "new/gpu.md").read_text(encoding="utf-8").count("a table") == 2
    assert all((Path(__file__).resolve().parents[2] / name).is_file() for name in gpu.TESTS)
