"""Runs of the comparison: which are missing, records that outlive a kill, and two commands side by
side.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.learning import __main__ as runner
from benchmarks.learning.records import RecordError, Records
from benchmarks.learning.tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
MASKED = "InvalidActionEnvDiscrete"
MEMORY = "RepeatPreviousEasy"
GIVEN = {"task": [MASKED], "engine": None, "seeds": 2, "unclaimed": False, "required": True}


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results.jsonl", tmp_path / "claims")


def record(*run):
    return {**runner.key_of(*run), "return": 1.0, "seconds": 1.0, "curve": []}


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "torn", [b'{"engine": "sb3", "ret', b'{"engine": "sb3", "ret\n', b"\0\0\0\0"]
)
def test_torn_last_line_is_skipped_and_then_overwritten(records, torn, capsys):
    records.append({"seed": 0})
    records.path.write_bytes(records.path.read_bytes() + torn)
    assert records.read() == [{"seed": 0}]
    assert "torn last line" in capsys.readouterr().err
    records.append({"seed": 1})
    assert records.read() == [{"seed": 0}, {"seed": 1}]
    assert capsys.readouterr().err == ""
    assert records.path.read_bytes() == b'{"seed": 0}\n{"seed": 1}\n'


def test_broken_line_before_the_last_is_an_error(records):
    records.path.write_text('{"seed": 0}\n{"se\n{"seed": 2}\n')
    with pytest.raises(RecordError, match="line 2: expected a record in JSON"):
        records.read()


def test_missing_or_empty_file_has_no_records(records):
    assert records.read() == []
    records.path.write_text("")
    assert records.read() == []


def test_claim_excludes_others_until_it_ends(records):
    key = runner.key_of("sb3", MASKED, "own", 0)
    with (
        records.claim(key) as first,
        records.claim(key) as second,
        records.claim({**key, "seed": 1}) as other,
    ):
        assert (first, second, other) == (True, False, True)
    with records.claim(key) as again:
        assert again


def test_claim_of_a_killed_process_is_free(records):
    code = (
        "import sys, time; from pathlib import Path; from benchmarks.learning.records import"
        " Records\nwith Records(Path(), Path(sys.argv[1])).claim({'seed': 0}) as mine: print(mine,"
        " flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, records.claims]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout.readline() == "True\n"
        with records.claim({"seed": 0}) as mine:
            assert not mine
        child.kill()
    with records.claim({"seed": 0}) as mine:
        assert mine


# --- what is missing ------------------------------------------------------------------------------


def test_all_stored_records_but_one_have_current_settings():
    """The page shows them; the one had other settings."""
    rows = Records(runner.RECORDS.path, runner.RUNS).read()
    easy = [row for row in rows if "versions" not in row]
    assert len(easy) == 406
    assert (
        sum(
            runner.key_in(row) == runner.key_of(*(row[name] for name in runner.NAMED))
            for row in easy
        )
        == 405
    )
    later = [row for row in rows if "versions" in row]
    assert all(
        runner.key_in(row) == runner.key_of(*(row[name] for name in runner.NAMED)) for row in later
    )
    assert len({json.dumps(runner.key_in(row)) for row in rows}) == len(rows)


def test_missing_runs_exclude_those_with_a_record(records, monkeypatch):
    monkeypatch.setattr(runner, "RECORDS", records)
    given = Namespace(**GIVEN)
    assert [run[0] for run in runner.missing(given)] == ["sb3", "sb3", "ours"] * 2
    records.append(record("sb3", MASKED, "catalog", 0))
    left = runner.missing(given)
    assert len(left) == 5
    assert ("sb3", MASKED, "catalog", 0) not in left
    monkeypatch.setitem(TASKS, MASKED, replace(TASKS[MASKED], steps={"sb3": 1}))  # another run
    assert len(runner.missing(given)) == 6


def test_run_key_depends_on_settings_of_its_own_net_only(monkeypatch):
    sides = [("sb3", MEMORY, "own", 0), ("ours", MEMORY, "attention", 0)]
    before = [runner.key_of(*side) for side in sides]
    task = TASKS[MEMORY]
    monkeypatch.setitem(TASKS, MEMORY, replace(task, settings={**task.settings, "attention": {}}))
    assert [runner.key_of(*side) == key for side, key in zip(sides, before, strict=True)] == [
        True,
        False,
    ]
    monkeypatch.setitem(TASKS, MEMORY, replace(task, settings={**task.settings, "lr": 1.0}))
    assert [runner.key_of(*side) == key for side, key in zip(sides, before, strict=True)] == [
        False,
        False,
    ]


def test_runs_are_ordered_by_seed_and_cost_optional_ones_last():
    runs = list(
        runner.wanted(Namespace(**{**GIVEN, "task": None, "seeds": None, "required": False}))
    )
    waits = [run[0] in TASKS[run[1]].later for run in runs]
    assert waits == sorted(waits)
    assert sum(waits) > 0
    first = [run for run, wait in zip(runs, waits, strict=True) if not wait]
    assert [run[3] for run in first] == sorted(run[3] for run in first)
    costs = [TASKS[run[1]].cost for run in first if run[3] == 0]
    assert costs == sorted(costs)
    required = list(runner.wanted(Namespace(**{**GIVEN, "task": None, "seeds": None})))
    assert required == first
    assert len(runs) == len(set(runs))


def test_task_without_its_environment_is_skipped_with_a_hint(records, monkeypatch, capsys):
    monkeypatch.setattr(runner, "RECORDS", records)
    monkeypatch.setitem(TASKS, MASKED, replace(TASKS[MASKED], needs=("no_such_module",)))
    assert runner.missing(Namespace(**GIVEN)) == []
    assert "Not installed: no_such_module." in (said := capsys.readouterr().err)
    assert "-r requirements/compare.txt" in said


def test_requirements_name_all_that_tasks_need():
    named = (ROOT / "requirements/compare.txt").read_text().lower()
    assert all(f"\n{name.lower()}==" in named for task in TASKS.values() for name in task.needs)


# --- training them --------------------------------------------------------------------------------

STUB = """
import signal, sys, time
# Tests in the background of a shell ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
import benchmarks.learning.__main__ as runner
from benchmarks.learning import engines
from benchmarks.learning.records import Records
from pathlib import Path

folder = Path(sys.argv.pop(1))
runner.RECORDS, runner.RUNS = Records(folder / "results.jsonl", folder / "claims"), folder
runner.RECORDS.path.touch()
runner.os.nice = lambda increment: 0  # two busy workers would leave it no time
if "--one" in sys.argv:
    def train(engine, name, net, seed, keep=None):
        with open(folder / "begun", "a") as file:
            file.write(f"{engine} {net} {seed}\\n")
        seconds, done = (folder / "seconds").read_text().split(), len(runner.RECORDS.read())
        time.sleep(float(seconds[min(done, len(seconds) - 1)]))
        figures = {"return": 1.0, "greedy_return": 1.0, "train_seconds": 0.0}
        return {**figures, "curve": [], "parameters": 1}
    engines.train = train
else:
    own = runner.subprocess.run
    def run(command, **options):
        if "-m" in command:
            command = [sys.executable, __file__, str(folder), *command[3:]]
        return own(command, **options)
    runner.subprocess.run = run
    import benchmarks.learning.report as report
    report.write = lambda rows: None
sys.exit(runner.main())
"""


@pytest.fixture
def command(tmp_path):
    """Start the command with runs that learn nothing; the n-th takes the n-th number of seconds, or
    the last.
    """
    (tmp_path / "stub.py").write_text(STUB)

    def start(seconds):
        (tmp_path / "seconds").write_text(str(seconds))
        return subprocess.Popen(
            [
                sys.executable,
                tmp_path / "stub.py",
                tmp_path,
                "--task",
                MASKED,
                "--seeds",
                "1",
                "--jobs",
                "1",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return start


def wait_for(path, lines):
    for _ in range(600):
        if path.exists() and len(path.read_text().splitlines()) >= lines:
            return
        time.sleep(0.05)
    pytest.fail(f"{path} has not {lines} lines")


@pytest.mark.parametrize(
    "ending", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.attack)]
)
def test_stopped_command_keeps_finished_runs_and_continues(ending, command, tmp_path):
    process = command("0 60")
    wait_for(tmp_path / "begun", 2)
    os.killpg(process.pid, ending)
    said = process.communicate()[0]
    kept = (tmp_path / "results.jsonl").read_text()
    assert kept.endswith("\n")
    assert len(kept.splitlines()) == 1
    if ending == signal.SIGINT:
        assert process.returncode == runner.INTERRUPTED
        assert "Interrupted. Finished runs are kept; the same command goes on." in said
        assert "failed" not in said
    said = command(0.0).communicate()[0]
    assert "2 runs, about" in said
    assert "return 1.0" in said
    rows = (tmp_path / "results.jsonl").read_text()
    assert rows.startswith(kept)
    assert len({json.dumps(runner.key_in(json.loads(row))) for row in rows.splitlines()}) == 3


@pytest.mark.attack
def test_two_commands_train_each_run_once(command, tmp_path):
    both = [command(0.5), command(0.5)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    begun = (tmp_path / "begun").read_text().splitlines()
    assert sorted(begun) == ["ours catalog 0", "sb3 catalog 0", "sb3 own 0"]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    assert "is trained by another process" in "".join(said)
