"""Runs of an earlier version go on from their checkpoints.

`saved_runs` beside this file contains a finished run of each framework, as rlcatalog 0.1.0 wrote
them, and in `after.jsonl` the metrics of the next two iterations. TensorFlow's are of a later
version, which samples actions with other random numbers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import warm

FOLDER = Path(__file__).parent / "saved_runs"
RESUME = ["train", "--resume", "run", "--steps", "256", "--quiet"]
#: Metrics that depend on the machine.
TIMES = ("time_total_s", "steps_per_second")


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_times_and_losses(row):
    return {name: value for name, value in row.items() if name not in (*TIMES, "info")}


@pytest.fixture(params=["cartpole-torch", pytest.param("cartpole-tf", marks=pytest.mark.slow)])
def saved_run(request):
    return FOLDER / request.param


@pytest.fixture
def resumed_run(saved_run, tmp_path):
    """A copy of the saved run, resumed from step 128 to step 256."""
    run = tmp_path / "run"
    shutil.copytree(saved_run, run)
    # In its own process, because TensorFlow only takes its number of threads at first.
    done = warm.run(["-m", "rlcatalog_cli", *RESUME], tmp_path)
    assert done.returncode == 0, done.stderr
    # PyTorch's CUDA build warns where there is no GPU.
    lines = [line for line in done.stderr.splitlines() if "CUDA initialization" not in line]
    assert not any("warning" in line for line in lines), done.stderr
    return run


def test_saved_run_goes_on_as_it_would_have(saved_run, resumed_run):
    rows = read_rows(resumed_run / "metrics.jsonl")
    assert [row["timesteps_total"] for row in rows] == [64, 128, 192, 256]
    expected_rows = read_rows(saved_run / "after.jsonl")
    for row, expected in zip(rows[2:], expected_rows, strict=True):
        assert without_times_and_losses(row) == without_times_and_losses(expected)
        losses = row["info"]["learner"]
        expected_losses = expected["info"]["learner"]
        for name in ("vf_loss", "entropy", "grad_norm", "lr"):
            assert losses[name] == pytest.approx(expected_losses[name], rel=1e-4), name
