"""The zoo: exporting the best policies into it, and playing them as their records say."""

from __future__ import annotations

import json
import os
import re
import shutil
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


def make_row(seed, greedy_return):
    """Return the record of a run of rlcatalog-ppo on Hopper."""
    return {
        "engine": "ours",
        "task": "Hopper-v5",
        "net": "catalog",
        "seed": seed,
        "greedy_return": greedy_return,
        "curve": [],
    }


WORSE_RUN = make_row(seed=0, greedy_return=10.0)
BETTER_RUN = make_row(seed=1, greedy_return=11.0)


def without_curve(row):
    return {name: value for name, value in row.items() if name != "curve"}


@pytest.fixture(scope="module")
def zoo_folder(tmp_path_factory):
    """A zoo with the policy of the better of two runs, which was exported over the worse one.

    The policies are untrained, and play four episodes for their record. Those of the runs are in
    its folder `runs`.
    """
    folder = tmp_path_factory.mktemp("zoo")
    for row in (WORSE_RUN, BETTER_RUN):
        policy = rlcatalog.build(env="Hopper-v5", config={"fcnet_hiddens": [8]}, framework="torch")
        policy.save(folder / "runs" / "Hopper-v5" / f"ours-catalog-{row['seed']}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo, "EPISODES", 4)
        assert list(zoo.write([WORSE_RUN], folder / "runs", folder)) == ["Hopper-v5"]
        assert list(zoo.write([WORSE_RUN, BETTER_RUN], folder / "runs", folder)) == ["Hopper-v5"]
    return folder


@pytest.fixture
def record(zoo_folder, monkeypatch):
    """The record of the zoo's policy, where the command finds it."""
    monkeypatch.setattr(commands, "ZOO", zoo_folder)
    return json.loads((zoo_folder / "Hopper-v5.json").read_text())


# --- exporting ------------------------------------------------------------------------------------


def test_exported_policy_is_the_best_with_its_record(record):
    assert record["run"] == without_curve(BETTER_RUN)


def test_zoo_keeps_its_policy_if_no_run_is_better(zoo_folder):
    rows = [WORSE_RUN, BETTER_RUN]
    assert list(zoo.write(rows, zoo_folder / "runs", zoo_folder)) == []


def test_policy_of_a_run_with_older_settings_is_replaced(zoo_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "EPISODES", 4)
    shutil.copytree(zoo_folder, tmp_path / "zoo")
    rows = [WORSE_RUN]  # the better run is no longer among the records
    assert list(zoo.write(rows, zoo_folder / "runs", tmp_path / "zoo")) == ["Hopper-v5"]
    record = json.loads((tmp_path / "zoo" / "Hopper-v5.json").read_text())
    assert record["run"] == without_curve(WORSE_RUN)


def test_run_without_its_policy_is_not_exported(zoo_folder):
    lost_run = make_row(seed=7, greedy_return=99.0)
    assert list(zoo.write([lost_run], zoo_folder / "runs", zoo_folder)) == []


# --- playing --------------------------------------------------------------------------------------


def run_evaluate(capsys, *arguments):
    """Return the lines that `rlcatalog evaluate` prints for four episodes."""
    with pytest.raises(SystemExit) as end:
        main(["evaluate", *arguments, "--episodes", "4", "--quiet"])
    assert not end.value.code
    return capsys.readouterr().out.splitlines()


def test_evaluate_agrees_with_the_record(record, capsys):
    mean, margin = record["return"]
    first_line, *_, last_line = run_evaluate(capsys, "zoo:Hopper-v5")
    assert first_line.startswith(f"mean return  {mean:.2f} ± ")
    assert last_line == f"on record    {mean:.2f} ± {margin:.2f} in 4 episodes"


def test_evaluate_of_sampled_actions_shows_their_record(record, capsys):
    mean, margin = record["sampled_return"]
    lines = run_evaluate(capsys, "zoo:Hopper-v5", "--explore")
    assert lines[-1] == f"on record    {mean:.2f} ± {margin:.2f} in 4 episodes"


def test_evaluate_of_a_file_shows_no_record(record, zoo_folder, capsys):
    mean, _ = record["return"]
    lines = run_evaluate(capsys, str(zoo_folder / "Hopper-v5.onnx"), "--env", "Hopper-v5")
    assert lines[0].startswith(f"mean return  {mean:.2f} ± ")
    assert not [line for line in lines if line.startswith("on record")]


def test_evaluate_needs_no_package_of_the_policys_parts(record, monkeypatch, capsys):
    mean, _ = record["return"]
    monkeypatch.setenv("RLCATALOG_DISABLE_PLUGINS", "rlcatalog-fcnet, rlcatalog-gaussian")
    rlcatalog.default_catalog.cache_clear()
    try:
        first_line, *_ = run_evaluate(capsys, "zoo:Hopper-v5")
    finally:
        rlcatalog.default_catalog.cache_clear()
    assert first_line.startswith(f"mean return  {mean:.2f} ± ")


def test_evaluate_plays_a_policy_without_a_framework(zoo_folder, tmp_path):
    policy = zoo_folder / "Hopper-v5.onnx"
    program = f"""
import sys
from rlcatalog_cli import main
try:
    main(["evaluate", {str(policy)!r}, "--env", "Hopper-v5", "--episodes", "1"])
finally:
    print({{"torch", "tensorflow"}} & set(sys.modules))
"""

    run = warm.run(["-c", program], tmp_path, frameworks=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "set()"  # neither is imported


def test_unknown_name_error_lists_the_zoo(record):
    message = r"^zoo:Hopper-v4: there is no such policy. The zoo has Hopper-v5\.$"
    with pytest.raises(UnknownNameError, match=message):
        commands.evaluate(Path("zoo:Hopper-v4"))


# --- the zoo in the package -----------------------------------------------------------------------


def test_zoo_is_small():
    sizes = [path.stat().st_size for path in commands.ZOO.glob("*")]
    assert sum(sizes) <= 4_000_000


def test_zoo_has_a_policy_of_each_of_its_tasks():
    tasks = {json.loads(path.read_text())["run"]["task"] for path in RECORDS}
    assert tasks == set(zoo.ZOO_TASKS)


def test_each_policy_of_the_zoo_has_a_record():
    policies = commands.ZOO.glob("*.onnx")
    assert {path.stem for path in RECORDS} == {path.stem for path in policies}


each_record = pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])


@each_record
def test_record_in_the_zoo_is_of_a_stored_run(path):
    run = json.loads(path.read_text())["run"]
    assert run in [without_curve(row) for row in runner.RECORDS.read()]
    # Its settings are the current ones.
    current = runner.key_of(run["engine"], run["task"], run["net"], run["seed"])
    assert runner.key_in(run) == current


@each_record
def test_record_in_the_zoo_is_complete(path):
    run = json.loads(path.read_text())["run"]
    names = {"versions", "commit", "date", "seed", "net", "return", "train_seconds"}
    assert names <= run.keys()


@pytest.mark.learn
@each_record
def test_zoo_policy_reaches_its_recorded_return(path):
    record = json.loads(path.read_text())
    paths = [*filter(None, sys.path), str(runner.BESIDE)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "rlcatalog_cli", "evaluate", f"zoo:{record['env']}", "--quiet"]

    # Each has a process of its own: importing Box2D ended one in which Hopper had been played.
    run = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)

    assert run.returncode == 0, run.stderr
    # It prints a line such as "mean return  3012.50 ± 2.10 (standard deviation)".
    mean_return = re.search(r"^mean return +(\S+)", run.stdout, re.MULTILINE)[1]
    mean, margin = record["return"]
    assert float(mean_return) >= mean - margin
