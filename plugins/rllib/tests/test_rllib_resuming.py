"""Runs of `rlcatalog train --engine rllib`: interruptions, resuming, evaluations and options."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from command_line import run_command
from ray.rllib.algorithms.algorithm import Algorithm

import rlcatalog
import rlcatalog_rllib
from rlcatalog.errors import CatalogError
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.records import read_record

pytestmark = pytest.mark.usefixtures("blank_curves")

OBS = np.full((1, 4), 0.1, np.float32)


def train_cartpole(*, steps, out, options=""):
    """Train PPO with the command line, in iterations of 64 steps."""
    return run_command(
        f"train CartPole-v1 --engine rllib --steps {steps} --out {out} --env-runners 0 --envs 2"
        " --model fcnet_hiddens=[8] --set train_batch_size_per_learner=64 --set minibatch_size=32"
        f" --set num_epochs=1 {options}"
    )


def read_metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_steps(folder):
    """Return the number of environment steps in each row of the metrics."""
    return [row["timesteps_total"] for row in read_metrics(folder)]


def steps_of_checkpoints(folder):
    return [checkpoint_steps(path) for path in checkpoints_of(folder)]


# --- interrupted runs -----------------------------------------------------------------------------


class InterruptedRun(NamedTuple):
    folder: Path
    signal: signal.Signals
    result: Any  # exit code and output of the command
    num_iterations: int


@pytest.fixture(
    scope="module",
    params=[pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=["SIGINT", "SIGTERM"],
)
def interrupted(request, local_ray, tmp_path_factory):
    """A run that got a signal in its third iteration; not to be written to."""
    train = Algorithm.train
    num_iterations = 0

    def interrupt_and_train(self):
        nonlocal num_iterations
        num_iterations += 1
        if num_iterations == 3:
            os.kill(os.getpid(), request.param)
        return train(self)

    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Algorithm, "train", interrupt_and_train)
        result = train_cartpole(steps=100_000, out=folder, options="--checkpoint-every 64")
    return InterruptedRun(folder, request.param, result, num_iterations)


class ResumedRun(NamedTuple):
    folder: Path
    before: InterruptedRun
    result: Any  # exit code and output of the command
    #: Value of OBS when training went on.
    first_value: np.ndarray


@pytest.fixture(scope="module")
def resumed(interrupted, tmp_path_factory):
    """A copy of the interrupted run, resumed for 100 more steps; not to be written to."""
    folder = tmp_path_factory.mktemp("resumed") / "run"
    shutil.copytree(interrupted.folder, folder)
    with (folder / "metrics.jsonl").open("a") as file:
        # A row after the last checkpoint, and a row that a killed process did not finish.
        file.write('{"timesteps_total": 99999}\n{"timest')
    train = Algorithm.train
    values = []

    def compute_value_and_train(self):
        values.append(rlcatalog_rllib.to_policy(self).values(OBS))
        return train(self)

    steps = read_steps(interrupted.folder)[-1] + 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Algorithm, "train", compute_value_and_train)
        result = run_command(f"train --engine rllib --resume {folder} --steps {steps}")
    return ResumedRun(folder, interrupted, result, values[0])


def test_interrupted_run_finishes_its_iteration(interrupted):
    assert interrupted.num_iterations == 3
    assert interrupted.result.exit_code == 128 + interrupted.signal
    assert read_record(interrupted.folder)["status"] == "interrupted"


def test_interrupted_run_says_how_to_resume_it(interrupted):
    command = f"rlcatalog train --resume {interrupted.folder} --engine rllib"

    assert command in interrupted.result.output


def test_interrupted_run_keeps_its_last_two_checkpoints(interrupted):
    first, *last_two = read_steps(interrupted.folder)

    assert first < min(last_two)
    assert steps_of_checkpoints(interrupted.folder) == last_two


def test_resumed_run_says_what_is_not_restored(resumed):
    steps = read_steps(resumed.before.folder)[-1]

    assert resumed.result.exit_code == 0
    expected = f"resuming after {steps:,} steps; RLlib restores neither environments"
    assert expected in resumed.result.output


def test_resumed_run_begins_with_the_saved_policy(resumed):
    saved_policy = rlcatalog.load(resumed.before.folder / "policy")

    np.testing.assert_array_equal(resumed.first_value, saved_policy.values(OBS))


def test_resumed_run_replaces_rows_after_its_checkpoint(resumed):
    steps_before = read_steps(resumed.before.folder)

    steps = read_steps(resumed.folder)

    assert steps[: len(steps_before)] == steps_before
    assert steps == sorted(set(steps))


def test_resumed_run_ends_once_it_reaches_its_steps(resumed):
    target = read_steps(resumed.before.folder)[-1] + 100

    assert target <= read_steps(resumed.folder)[-1] < target + 2 * 64
    assert read_record(resumed.folder)["status"] == "finished"


def test_resumed_run_trains_its_policy(resumed):
    values_before = rlcatalog.load(resumed.before.folder / "policy").values(OBS)

    values = rlcatalog.load(resumed.folder / "policy").values(OBS)

    assert np.abs(values - values_before).max() > 0


# --- options --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evaluated(local_ray, tmp_path_factory):
    """Folder and output of a run that an evaluation after 100 steps ended."""
    folder = tmp_path_factory.mktemp("evaluated")
    # Every episode of CartPole returns at least 1.
    options = "--eval-every 100 --eval-episodes 2 --stop-at 1 --device cpu"
    result = train_cartpole(steps=5000, out=folder, options=options)
    assert result.exit_code == 0
    return folder, result.output


def test_run_is_evaluated_after_the_given_steps(evaluated):
    folder, _ = evaluated

    for row in read_metrics(folder):
        assert ("evaluation" in row) == (row["timesteps_total"] >= 100)


def test_evaluation_ends_a_run_that_reached_its_return(evaluated):
    folder, output = evaluated

    last_steps = read_steps(folder)[-1]

    assert f"ended after {last_steps:,} steps: the mean return of an evaluation is" in output
    assert steps_of_checkpoints(folder)[-1] == last_steps
    assert last_steps < 300
    assert read_record(folder)["status"] == "finished"


def test_run_contains_best_policy_curve_and_checkpoints(evaluated):
    folder, _ = evaluated

    names = {path.name for path in folder.iterdir()}

    assert names >= {"best", "learning_curve.png", "checkpoints"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--device cuda:1",
            "--device cuda:1: Ray chooses the GPU itself. Expected cpu, cuda or auto.",
        ),
        ("--frozen always", "--frozen: engine rllib has no such option. Engines with it: ppo"),
        ("--threads 2", "--threads: engine rllib has no such option."),
        ("--algo PPOO", "unknown algorithm 'PPOO'. Did you mean 'PPO'?"),
        (
            "--set num_gpus_per_learner=1",
            "'num_gpus_per_learner'. Use its option instead: --device cuda.",
        ),
        ("--set num_env_runners=0", "Use its option instead: --env-runners."),
    ],
)
def test_wrong_options_are_rejected(option, message, tmp_path):
    out = tmp_path / "out"

    with pytest.raises(CatalogError) as caught:
        run_command(f"train CartPole-v1 --engine rllib --out {out} {option}")

    assert message in str(caught.value)
    assert not out.exists()
