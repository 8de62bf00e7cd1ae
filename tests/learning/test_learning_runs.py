"""Runs of the comparison of engines: their records, which are missing, and the command."""

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
#: A task that Stable-Baselines3 has two nets for, and rlcatalog-ppo one.
MASKED = "InvalidActionEnvDiscrete"
#: A task that rlcatalog-ppo has two nets for, "catalog" and "attention".
MEMORY = "RepeatPreviousEasy"


def make_options(**options):
    """Return the options of the command, for two seeds of the task `MASKED`."""
    defaults = {
        "task": [MASKED], "engine": None, "seeds": 2, "unclaimed": False
    }  # fmt: skip
    return Namespace(**{**defaults, **options})


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results.jsonl", tmp_path / "claims")


def key_of_row(row):
    """Return the key that a record's run would have today."""
    return runner.key_of(row["engine"], row["task"], row["net"], row["seed"])


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "torn_line", [b'{"engine": "sb3", "ret', b'{"engine": "sb3", "ret\n', b"\0\0\0\0"]
)
def test_torn_last_line_is_skipped_and_then_overwritten(records, torn_line, capsys):
    records.append({"seed": 0})
    records.path.write_bytes(records.path.read_bytes() + torn_line)

    assert records.read() == [{"seed": 0}]
    assert "torn last line" in capsys.readouterr().err

    records.append({"seed": 1})
    assert records.path.read_bytes() == b'{"seed": 0}\n{"seed": 1}\n'
    assert records.read() == [{"seed": 0}, {"seed": 1}]
    assert capsys.readouterr().err == ""  # no line is torn any more


def test_broken_line_before_the_last_is_an_error(records):
    records.path.write_text('{"seed": 0}\n{"se\n{"seed": 2}\n')
    with pytest.raises(RecordError, match="line 2: expected a record in JSON"):
        records.read()


def test_missing_file_has_no_records(records):
    assert records.read() == []


def test_empty_file_has_no_records(records):
    records.path.write_text("")
    assert records.read() == []


def test_claim_excludes_others_until_it_ends(records):
    run = {"engine": "sb3", "seed": 0}

    with records.claim(run) as is_first, records.claim(run) as is_second:
        assert is_first
        assert not is_second
    with records.claim(run) as is_free_again:
        assert is_free_again


def test_claim_of_one_run_does_not_exclude_another(records):
    with records.claim({"seed": 0}), records.claim({"seed": 1}) as is_claimed:
        assert is_claimed


CLAIM_AND_SLEEP = """
import sys, time
from pathlib import Path
from benchmarks.learning.records import Records

with Records(Path(), Path(sys.argv[1])).claim({"seed": 0}) as is_claimed:
    print(is_claimed, flush=True)
    time.sleep(60)
"""


def test_claim_of_a_killed_process_is_free(records):
    command = [sys.executable, "-c", CLAIM_AND_SLEEP, records.claims]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout.readline() == "True\n"
        with records.claim({"seed": 0}) as is_claimed:
            assert not is_claimed
        child.kill()

    with records.claim({"seed": 0}) as is_claimed:
        assert is_claimed


# --- the stored records ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored_rows():
    """The records in the repository. The later ones have the versions of packages."""
    return Records(runner.RECORDS.path, runner.RUNS).read()


def test_all_stored_records_but_one_have_current_settings(stored_rows):
    rows = [row for row in stored_rows if "versions" not in row]
    current = [row for row in rows if runner.key_in(row) == key_of_row(row)]
    assert len(rows) == 206
    assert len(current) == 205


def test_stored_records_with_versions_have_current_settings(stored_rows):
    rows = [row for row in stored_rows if "versions" in row]
    assert all(runner.key_in(row) == key_of_row(row) for row in rows)


def test_stored_records_are_of_different_runs(stored_rows):
    keys = {json.dumps(runner.key_in(row)) for row in stored_rows}
    assert len(keys) == len(stored_rows)


# --- which runs are missing -----------------------------------------------------------------------


@pytest.fixture
def records_of_command(records, monkeypatch):
    """The records that the command reads and writes, empty at first."""
    monkeypatch.setattr(runner, "RECORDS", records)
    return records


def change_task(monkeypatch, name, **changes):
    monkeypatch.setitem(TASKS, name, replace(TASKS[name], **changes))


def append_run(records, engine, task, net, seed):
    key = runner.key_of(engine, task, net, seed)
    records.append({**key, "return": 1.0, "seconds": 1.0, "curve": []})


def test_runs_without_records_are_missing(records_of_command):
    missing = runner.missing(make_options(seeds=2))
    assert missing == [
        ("sb3", MASKED, "own", 0),
        ("sb3", MASKED, "catalog", 0),
        ("ours", MASKED, "catalog", 0),
        ("sb3", MASKED, "own", 1),
        ("sb3", MASKED, "catalog", 1),
        ("ours", MASKED, "catalog", 1),
    ]


def test_missing_runs_exclude_those_with_a_record(records_of_command):
    append_run(records_of_command, "sb3", MASKED, "catalog", 0)

    missing = runner.missing(make_options(seeds=2))

    assert len(missing) == 5
    assert ("sb3", MASKED, "catalog", 0) not in missing


def test_missing_runs_include_those_with_other_settings(records_of_command, monkeypatch):
    append_run(records_of_command, "sb3", MASKED, "catalog", 0)
    change_task(monkeypatch, MASKED, steps={"sb3": 1})
    assert len(runner.missing(make_options(seeds=2))) == 6


def test_run_key_depends_on_settings_of_its_own_net_only(monkeypatch):
    own_before = runner.key_of("sb3", MEMORY, "own", 0)
    attention_before = runner.key_of("ours", MEMORY, "attention", 0)

    change_task(monkeypatch, MEMORY, settings={**TASKS[MEMORY].settings, "attention": {}})

    assert runner.key_of("sb3", MEMORY, "own", 0) == own_before
    assert runner.key_of("ours", MEMORY, "attention", 0) != attention_before


@pytest.mark.parametrize(("engine", "net"), [("sb3", "own"), ("ours", "attention")])
def test_run_key_depends_on_common_settings(engine, net, monkeypatch):
    before = runner.key_of(engine, MEMORY, net, 0)
    change_task(monkeypatch, MEMORY, settings={**TASKS[MEMORY].settings, "lr": 1.0})
    assert runner.key_of(engine, MEMORY, net, 0) != before


def test_runs_are_ordered_by_seed_and_cost():
    runs = list(runner.wanted(make_options(task=None, seeds=None)))

    assert len(set(runs)) == len(runs)
    # All tasks of seed 0 come first, the cheapest before the others.
    seeds = [seed for _, _, _, seed in runs]
    assert seeds == sorted(seeds)
    costs_of_seed_0 = [TASKS[task].cost for _, task, _, seed in runs if seed == 0]
    assert costs_of_seed_0 == sorted(costs_of_seed_0)


@pytest.mark.parametrize("engine", ["sb3", "ours"])
def test_runs_with_other_defaults_of_the_catalog_are_other_runs(engine, monkeypatch):
    def key_with(*, kept_defaults, net):
        change_task(monkeypatch, MASKED, kept_defaults=kept_defaults)
        return runner.key_of(engine, MASKED, net, 0)

    kept = key_with(kept_defaults=True, net="catalog")
    assert key_with(kept_defaults=False, net="catalog") != kept
    # Stable-Baselines3's own net does not depend on our defaults.
    kept = key_with(kept_defaults=True, net="own")
    assert key_with(kept_defaults=False, net="own") == kept


def test_task_without_its_environment_is_skipped_with_a_hint(
    records_of_command, monkeypatch, capsys
):
    change_task(monkeypatch, MASKED, needs=("no_such_module",))

    assert runner.missing(make_options()) == []

    error = capsys.readouterr().err
    assert "Not installed: no_such_module." in error
    assert "-r requirements/compare.txt" in error


def test_requirements_list_packages_of_all_tasks():
    requirements = (ROOT / "requirements/compare.txt").read_text().lower()
    for task in TASKS.values():
        for name in task.needs:
            assert f"\n{name.lower()}==" in requirements


# --- the command ----------------------------------------------------------------------------------

#: A program that runs the command with a stub instead of training. It appends each run to the file
#: `begun`, and sleeps for as many seconds as the file `seconds` has for it, or for the last number.
STUB = """
import signal, sys, time
# Tests in the background of a shell ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
import benchmarks.learning.__main__ as runner
from benchmarks.learning import engines
from benchmarks.learning.records import Records
from pathlib import Path

folder = Path(sys.argv.pop(1))
runner.RECORDS = Records(folder / "results.jsonl", folder / "claims")
runner.RUNS = folder
runner.RECORDS.path.touch()
runner.os.nice = lambda increment: 0  # two busy workers would leave it no time
if "--one" in sys.argv:
    def train(engine, name, net, seed, keep=None):
        with open(folder / "begun", "a") as file:
            file.write(f"{engine} {net} {seed}\\n")
        seconds = (folder / "seconds").read_text().split()
        done = len(runner.RECORDS.read())
        time.sleep(float(seconds[min(done, len(seconds) - 1)]))
        figures = {"return": 1.0, "greedy_return": 1.0, "train_seconds": 0.0}
        return {**figures, "curve": [], "parameters": 1}
    engines.train = train
else:
    run_command = runner.subprocess.run
    def run(command, **options):
        if "-m" in command:
            command = [sys.executable, __file__, str(folder), *command[3:]]
        return run_command(command, **options)
    runner.subprocess.run = run
    import benchmarks.learning.report as report
    report.write = lambda rows: None
sys.exit(runner.main())
"""


@pytest.fixture
def start_command(tmp_path):
    """Function that starts the command for one seed of three runs, with the seconds of each."""
    (tmp_path / "stub.py").write_text(STUB)

    def start(*seconds):
        (tmp_path / "seconds").write_text(" ".join(map(str, seconds)))
        stub = [sys.executable, tmp_path / "stub.py", tmp_path]
        return subprocess.Popen(
            [*stub, "--task", MASKED, "--seeds", "1", "--jobs", "1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return start


def wait_for_lines(path, count):
    for _ in range(600):
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.05)
    pytest.fail(f"{path} has not {count} lines")


def stop_in_the_second_run(start_command, folder, signal_number):
    """Return the ended process and its output."""
    process = start_command(0, 60)
    wait_for_lines(folder / "begun", 2)
    os.killpg(process.pid, signal_number)
    output, _ = process.communicate()
    return process, output


@pytest.mark.parametrize(
    "signal_number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_stopped_command_keeps_finished_runs_and_continues(signal_number, start_command, tmp_path):
    results = tmp_path / "results.jsonl"

    # The command has three runs.
    stop_in_the_second_run(start_command, tmp_path, signal_number)
    text_of_first = results.read_text()
    assert len(text_of_first.splitlines()) == 1
    assert text_of_first.endswith("\n")

    output, _ = start_command(0.0).communicate()
    assert "2 runs, about" in output
    assert "return 1.0" in output
    text_of_all = results.read_text()
    assert text_of_all.startswith(text_of_first)
    runs = {json.dumps(runner.key_in(json.loads(line))) for line in text_of_all.splitlines()}
    assert len(runs) == 3


@pytest.mark.slow
def test_interrupted_command_says_how_to_continue(start_command, tmp_path):
    process, output = stop_in_the_second_run(start_command, tmp_path, signal.SIGINT)
    assert process.returncode == runner.INTERRUPTED
    assert "Interrupted. Finished runs are kept; the same command goes on." in output
    assert "failed" not in output


@pytest.mark.slow
def test_two_commands_train_each_run_once(start_command, tmp_path):
    processes = [start_command(0.5), start_command(0.5)]
    outputs = [process.communicate()[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0], outputs
    begun = (tmp_path / "begun").read_text().splitlines()
    assert sorted(begun) == ["ours catalog 0", "sb3 catalog 0", "sb3 own 0"]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    assert "is trained by another process" in "".join(outputs)
