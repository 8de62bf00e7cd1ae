"""The zoo: what is exported into it, and whether its policies reach what their records say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm

import rlcatalog
from rlcatalog.errors import UnknownNameError
from rlcatalog_cli import main
from rlcatalog_ppo import commands

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import __main__ as runner, zoo

RECORDS = sorted(commands.ZOO.glob("*.json"))
ROWS = [
    {
        "engine": "ours",
        "task": "Hopper-v5",
        "net": "catalog",
        "seed": seed,
        "greedy_return": 10.0 + seed,
        "curve": [],
    }
    for seed in range(2)
]


def evaluate(capsys, *arguments):
    """Return the lines that `rlcatalog evaluate` prints."""
    with pytest.raises(SystemExit) as end:
        main(["evaluate", *arguments, "--quiet"])
    assert not end.value.code
    return capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A zoo into which two untrained policies of Hopper were exported, the second because its
    record is better.
    """
    folder = tmp_path_factory.mktemp("zoo")
    for row in ROWS:
        policy = rlcatalog.build(env="Hopper-v5", config={"fcnet_hiddens": [8]}, framework="torch")
        policy.save(folder / "runs" / "Hopper-v5" / f"ours-catalog-{row['seed']}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zoo, "EPISODES", 4)
        for rows, written in ((ROWS[:1], ["Hopper-v5"]), (ROWS, ["Hopper-v5"]), (ROWS, [])):
            assert list(zoo.write(rows, folder / "runs", folder)) == written
    return folder


@pytest.fixture
def record(folder, monkeypatch):
    monkeypatch.setattr(commands, "ZOO", folder)
    return json.loads((folder / "Hopper-v5.json").read_text())


def test_exported_policy_is_the_best_with_its_record(record, folder):
    assert record["run"] == {key: part for key, part in ROWS[1].items() if key != "curve"}
    lost = {**ROWS[1], "seed": 7, "greedy_return": 99.0}
    assert list(zoo.write([lost], folder / "runs", folder)) == []


def test_evaluate_agrees_with_the_record(record, folder, capsys):
    (mean, margin), four = record["return"], ("--episodes", "4")
    played, recorded = (
        f"mean return {mean:.2f}",
        f"on record: {mean:.2f} ± {margin:.2f} in 4 episodes",
    )
    assert evaluate(capsys, "zoo:Hopper-v5", *four) == [played, recorded]
    assert evaluate(capsys, str(folder / "Hopper-v5.onnx"), "--env", "Hopper-v5", *four) == [played]
    recorded = "on record: {:.2f} ± {:.2f} in 4 episodes".format(*record["sampled_return"])
    assert evaluate(capsys, "zoo:Hopper-v5", "--explore", *four)[1] == recorded


def test_evaluate_plays_a_policy_without_a_framework(folder, tmp_path):
    arguments = [
        "evaluate",
        str(folder / "Hopper-v5.onnx"),
        "--env",
        "Hopper-v5",
        "--episodes",
        "1",
    ]
    code = f"""
import sys
from rlcatalog_cli import main
try:
    main({arguments})
finally:
    print({{"torch", "tensorflow"}} & set(sys.modules))
"""
    played = warm.run(["-c", code], tmp_path, frameworks=False)
    assert played.returncode == 0, played.stderr
    assert played.stdout.splitlines()[-1] == "set()"


def test_unknown_name_error_lists_the_zoo(record):
    with pytest.raises(
        UnknownNameError, match=r"^zoo:Hopper-v4: there is no such policy. The zoo has Hopper-v5\.$"
    ):
        commands.evaluate(Path("zoo:Hopper-v4"))


def test_zoo_is_small_and_complete():
    assert {path.stem for path in RECORDS} == {path.stem for path in commands.ZOO.glob("*.onnx")}
    assert sum(path.stat().st_size for path in commands.ZOO.glob("*")) <= 2_000_000
    kept = [
        {name: part for name, part in row.items() if name != "curve"}
        for row in runner.RECORDS.read()
    ]
    for path in RECORDS:
        run = json.loads(path.read_text())["run"]
        assert run in kept
        assert runner.key_in(run) == runner.key_of(*(run[name] for name in runner.NAMED))
        assert {
            "versions",
            "commit",
            "date",
            "seed",
            "net",
            "return",
            "train_seconds",
        } <= run.keys()


@pytest.mark.learn
@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_zoo_policy_reaches_its_recorded_return(path):
    """Each in a process of its own: importing Box2D ended the process in which Hopper had been
    played.
    """
    record = json.loads(path.read_text())
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(runner.BESIDE)]),
    }
    command = [sys.executable, "-m", "rlcatalog_cli", "evaluate", f"zoo:{record['env']}", "--quiet"]
    played = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert played.returncode == 0, played.stderr
    mean, margin = record["return"]
    assert float(re.search(r"^mean return (\S+)$", played.stdout, re.MULTILINE)[1]) >= mean - margin
