"""Runs that were written once go on as they would have then.

`saved_runs` beside this file holds a finished run of each framework, as rlcatalog 0.1.0 writes
them, and in `after.jsonl` the metrics of the steps that it took when it went on then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import warm

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("saved_runs/*/after.jsonl"))
TIMES = ("time_total_s", "steps_per_second")


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_there_is_a_run_of_each_framework():
    assert [folder.name for folder in FOLDERS] == ["cartpole-tf", "cartpole-torch"]


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(
            folder, id=folder.name, marks=pytest.mark.attack if folder.name.endswith("tf") else ()
        )
        for folder in FOLDERS
    ],
)
def test_a_kept_run_goes_on_as_it_would_have(folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    # In a process of its own: TensorFlow takes its number of threads before its first operation
    # alone.
    done = warm.run(
        ["-m", "rlcatalog_cli", "train", "--resume", "run", "--steps", "256", "--quiet"], tmp_path
    )
    # PyTorch's CUDA build warns where there is no GPU.
    warned = [
        line
        for line in done.stderr.splitlines()
        if "warning" in line and "CUDA initialization" not in line
    ]
    assert (done.returncode, warned) == (0, []), done.stderr
    taken, after = rows(run / "metrics.jsonl"), rows(folder / "after.jsonl")
    assert [row["timesteps_total"] for row in taken] == [64, 128, 192, 256]
    for row, former in zip(taken[2:], after, strict=True):
        learned, once = row.pop("info")["learner"], former.pop("info")["learner"]
        assert {name: row[name] for name in row if name not in TIMES} == {
            name: former[name] for name in former if name not in TIMES
        }
        for name in ("vf_loss", "entropy", "grad_norm", "lr"):
            assert learned[name] == pytest.approx(once[name], rel=1e-4), name
