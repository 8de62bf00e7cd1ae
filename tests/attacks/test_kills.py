"""Runs that are killed at random moments: each resumes, and ends like a run that was not killed."""

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


def start_train(*arguments):
    """Start `rlcatalog train` with these arguments."""
    return subprocess.Popen(
        [COMMAND, "train", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_success(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err


def list_checkpoints(folder):
    return {path.name for path in folder.glob("checkpoints/step-*")}


def read_weights(folder):
    """Return the weights of a run's policy: name → array."""
    manifest = json.loads((folder / "policy" / "policy.json").read_text())
    weights = {}
    for file in manifest["files"]:
        weights |= load_file(folder / "policy" / file)
    return weights


def read_metrics(folder):
    """Return a run's metrics without those that depend on time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("time_total_s", None)
        row.pop("steps_per_second", None)
    return rows


def train_with_kills(folder, start_arguments, resume_arguments, rng):
    """Train, kill the process a moment after some of its checkpoints, resume it, and return how
    often it was killed.
    """
    kills = 0
    process = start_train(*start_arguments, "--out", str(folder))
    while kills < KILLS:
        checkpoints = list_checkpoints(folder)
        while process.poll() is None and list_checkpoints(folder) <= checkpoints:
            time.sleep(0.005)  # until it has written another checkpoint
        time.sleep(rng.uniform(0, 0.3))
        if process.poll() is not None:
            break  # it ended before it could be killed
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
        process = start_train("--resume", str(folder), *resume_arguments)
    wait_for_success(process)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("case", CASES)
def test_killed_run_ends_like_an_undisturbed_run(case, framework, tmp_path):
    arguments = [*CASES[case], "--framework", framework, *RUN]
    undisturbed = tmp_path / "undisturbed"
    wait_for_success(start_train(*arguments, "--out", str(undisturbed)))

    resume_arguments = ["--quiet"]
    if case == "autoregressive":
        resume_arguments += ["--import", "drift_env"]  # the module of its environment
    killed = tmp_path / "killed"
    rng = random.Random(f"{case} {framework}")  # draws the moments of the kills
    kills = train_with_kills(killed, arguments, resume_arguments, rng)

    assert kills > 0
    assert read_metrics(killed) == read_metrics(undisturbed)
    np.testing.assert_equal(read_weights(killed), read_weights(undisturbed))
