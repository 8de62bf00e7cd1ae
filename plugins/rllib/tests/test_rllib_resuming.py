"""A run of `rlcatalog train --engine rllib` is kept while it trains, ends politely, and goes on."""

import json
import os
import signal

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

from ray.rllib.algorithms.algorithm import Algorithm
from typer.testing import CliRunner

import rlcatalog
import rlcatalog_rllib
from rlcatalog.errors import ConfigError, SavedPolicyError
from rlcatalog_cli.app import make_app
from rlcatalog_runs.checkpoints import checkpoint_steps, checkpoints_of
from rlcatalog_runs.records import read_record

pytestmark = pytest.mark.usefixtures("blank_curves")
TINY = [
    "--env-runners",
    "0",
    "--envs",
    "2",
    "--model",
    "fcnet_hiddens=[8]",
    "--set",
    "train_batch_size_per_learner=64",
    "--set",
    "minibatch_size=32",
    "--set",
    "num_epochs=1",
]


def run(*arguments):
    return CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)


def rows(folder):
    return [
        json.loads(line)["timesteps_total"]
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.attack), signal.SIGTERM]
)
def test_a_run_that_is_asked_to_end_is_kept_and_goes_on(number, local_ray, tmp_path, monkeypatch):
    train, trained = Algorithm.train, []

    def asked(self):
        trained.append(self)
        if len(trained) == 3:
            os.kill(os.getpid(), number)  # in the middle of an iteration
        return train(self)

    with monkeypatch.context() as patched:
        patched.setattr(Algorithm, "train", asked)
        ended = run(
            "train",
            "CartPole-v1",
            "-e",
            "rllib",
            "--steps",
            "100000",
            "--checkpoint-every",
            "64",
            "--out",
            str(tmp_path),
            *TINY,
        )
    assert ended.exit_code == 128 + number
    assert len(trained) == 3
    assert f"rlcatalog train --resume {tmp_path} --engine rllib" in ended.output
    assert read_record(tmp_path)["status"] == "interrupted"
    before = rows(tmp_path)
    assert [checkpoint_steps(path) for path in checkpoints_of(tmp_path)] == before[1:]
    policy = rlcatalog.load(tmp_path / "policy")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        # After the checkpoint, and killed while it wrote.
        file.write('{"timesteps_total": 99999}\n{"timest')

    obs, begun = np.full((1, 4), 0.1, np.float32), []

    def seen(self):
        begun.append(rlcatalog_rllib.to_policy(self).values(obs))
        return train(self)

    monkeypatch.setattr(Algorithm, "train", seen)
    went_on = run(
        "train", "-e", "rllib", "--resume", str(tmp_path), "--steps", str(before[-1] + 100)
    )
    np.testing.assert_array_equal(begun[0], policy.values(obs))
    assert went_on.exit_code == 0
    assert (
        f"resuming after {before[-1]:,} steps; RLlib restores neither environments"
        in went_on.output
    )
    after = rows(tmp_path)
    assert after[: len(before)] == before
    assert after == sorted(set(after))
    assert before[-1] + 100 <= after[-1] < before[-1] + 100 + 2 * 64
    found = rlcatalog.load(tmp_path / "policy")
    assert np.abs(found.values(obs) - policy.values(obs)).max() > 0
    assert "mean return" in run("evaluate", str(tmp_path), "--episodes", "2").output
    assert read_record(tmp_path)["status"] == "finished"


def test_what_cannot_go_on_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"keeps its ENV_ID\. Remove ENV_ID"):
        run("train", "CartPole-v1", "--resume", str(tmp_path))
    with pytest.raises(
        ConfigError, match="pass an environment, such as CartPole-v1, or resume a run"
    ):
        run("train", "-e", "rllib")
    with pytest.raises(SavedPolicyError, match="not a folder that"):
        run("train", "-e", "rllib", "--resume", str(tmp_path))
    told = {
        "env": "CartPole-v1",
        "algorithm": {"name": "PPO"},
        "run": {"engine": "rllib", "steps": 64},
    }
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(SavedPolicyError, match="contains no checkpoint to resume from"):
        run("train", "-e", "rllib", "--resume", str(tmp_path))


def test_evaluations_logs_and_targets_are_those_of_every_engine(local_ray, tmp_path):
    ended = run(
        "train",
        "CartPole-v1",
        "-e",
        "rllib",
        "--steps",
        "5000",
        "--out",
        str(tmp_path),
        *TINY,
        "--eval-every",
        "100",
        "--eval-episodes",
        "2",
        "--stop-at",
        "1",
        "--log",
        "csv",
        "--device",
        "cpu",
    )
    assert ended.exit_code == 0
    table = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["timesteps_total"] >= 100 for row in table] == [
        "evaluation" in row for row in table
    ]
    assert (
        f"ended after {table[-1]['timesteps_total']:,} steps: the mean return of an evaluation is"
        in ended.output
    )
    assert checkpoint_steps(checkpoints_of(tmp_path)[-1]) == table[-1]["timesteps_total"] < 300
    assert len((tmp_path / "progress.csv").read_text().splitlines()) == len(table) + 1
    assert {"best", "learning_curve.png", "checkpoints"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert read_record(tmp_path)["status"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--device", "cuda:1"],
            "--device cuda:1: Ray chooses the GPU itself. Expected cpu, cuda or auto.",
        ),
        (["--frozen", "always"], "--frozen: engine rllib has no such option. Engines with it: ppo"),
        (["--threads", "2"], "--threads: engine rllib has no such option."),
        (
            ["--set", "num_gpus_per_learner=1"],
            "'num_gpus_per_learner'. Use its option instead: --device cuda.",
        ),
    ],
)
def test_what_it_does_not_take_is_said(arguments, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        run("train", "CartPole-v1", "-e", "rllib", "--out", str(tmp_path / "out"), *arguments)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()
