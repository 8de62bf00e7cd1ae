"""Runs killed at any moment: each goes on, and ends as the run that nobody killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

#: How often each run is killed.
KILLS = int(os.environ.get("KILLS", "3"))
COMMAND = Path(sys.executable).with_name("rlcatalog")
RUN = [
    "--steps", "6000", "--seed", "7", "--checkpoint-every", "200", "--eval-every", "1500",
    "--eval-episodes", "2", "--set", "num_envs=4", "--set", "rollout_length=50", "--set",
    "minibatch_size=100", "--set", "num_epochs=3", "--quiet",
]  # fmt: skip
CASES = {
    "fcnet with filter": [
        "CartPole-v1",
        "--model",
        "fcnet_hiddens=[16]",
        "--model",
        "observation_filter=MeanStdFilter",
    ],
    "lstm": [
        "CartPole-v1",
        "--model",
        "fcnet_hiddens=[16]",
        "--model",
        "use_lstm=true",
        "--model",
        "lstm_cell_size=8",
        "--model",
        "lstm_use_prev_reward=true",
        "--model",
        "max_seq_len=10",
    ],
    "autoregressive": [
        "Drift-v0",
        "--import",
        "drift_env",
        "--model",
        "fcnet_hiddens=[16]",
        "--model",
        "use_autoregressive=true",
    ],
}
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
}


def run(*arguments):
    return subprocess.Popen(
        [COMMAND, "train", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err


def steps(checkpoints):
    return {path.name for path in checkpoints.glob("step-*")}


def result(folder):
    """Return the weights of a run, and its metrics but for times."""
    manifest = json.loads((folder / "policy" / "policy.json").read_text())
    weights = {
        name: array
        for file in manifest["files"]
        for name, array in load_file(folder / "policy" / file).items()
    }
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [
        {k: v for k, v in row.items() if k not in ("time_total_s", "steps_per_second")}
        for row in rows
    ]
    return weights, timeless


@pytest.mark.attack
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_killed_runs_end_as_if_nobody_had(case, framework, tmp_path):
    rng = random.Random(f"{case} {framework}")
    begin = [*CASES[case], "--framework", framework, *RUN]
    finished(run(*begin, "--out", str(tmp_path / "whole")))
    weights, rows = result(tmp_path / "whole")
    killed, kills = tmp_path / "killed", 0
    process = run(*begin, "--out", str(killed))
    checkpoints = killed / "checkpoints"
    while kills < KILLS:
        before = steps(checkpoints)
        while process.poll() is None and steps(checkpoints) <= before:
            time.sleep(0.005)  # it has not gone on yet
        time.sleep(rng.uniform(0, 0.3))
        if process.poll() is not None:
            break  # it was faster
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        modules = CASES[case][1:3] if "--import" in CASES[case] else []
        process = run("--resume", str(killed), *modules, "--quiet")
    finished(process)
    assert kills
    again, metrics = result(killed)
    assert metrics == rows
    assert weights.keys() == again.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
