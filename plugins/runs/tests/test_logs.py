"""Logs of runs: metrics.jsonl, CSV, TensorBoard, Weights & Biases, and what a resume removes."""

import contextlib
import csv
import importlib.util
import json
import math
import os
import re
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rlcatalog.errors import ConfigError, MissingExtraError, SavedPolicyError
from rlcatalog.plugins import install_hint
from rlcatalog_runs import logs


def make_row(steps, **more):
    """Return a row of metrics with a mean return of a seventh of the steps."""
    return {
        "timesteps_total": steps,
        "episode_return_mean": steps / 7,
        "info": {"learner": {"kl": 1e-3 * steps}},
        **more,
    }


def write(log, rows):
    for row in rows:
        log.write(row)
    log.close()


def write_metrics_and_csv(folder, rows, after=None):
    """Write `metrics.jsonl` and `progress.csv`; `after` is the step at which a run resumes."""
    opened = logs.writers(["csv"], folder, after=after)
    for row in rows:
        for log in opened:
            log.write(row)
    for log in opened:
        log.close()


def read_csv(folder):
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, ()), ("csv", ("csv",)), ("tensorboard, csv", ("tensorboard", "csv"))],
)
def test_logs_are_named_with_commas(text, names):
    assert logs.log_names(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tensorbord",
            "--log: unknown log 'tensorbord'. Did you mean 'tensorboard'? Known: csv, tensorboard,"
            " wandb",
        ),
        ("CSV", "unknown log 'CSV'. Did you mean 'csv'?"),
        ("csv,", "unknown log ''"),
        ("", "unknown log ''"),
        ("csv,tensorboard,csv", "'csv' is named twice"),
    ],
)
def test_wrong_name_of_a_log_is_an_error(text, message):
    with pytest.raises(ConfigError) as error:
        logs.log_names(text)

    assert message in str(error.value)


@pytest.fixture(
    params=[None, importlib.util.spec_from_loader("wandb", None, is_package=True)],
    ids=["no-module", "folder"],
)
def without_wandb(request, monkeypatch):
    """Weights & Biases is not installed. An earlier run may have left a folder `wandb` where the
    command is typed, which looks like a package without a file.
    """
    monkeypatch.setattr(logs, "find_spec", lambda name: request.param)


def test_wandb_without_its_extra_is_an_error(without_wandb):
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-runs[wandb]"))):
        logs.log_names("csv,wandb")


def test_wandb_without_its_extra_writes_no_file(without_wandb, tmp_path):
    with pytest.raises(MissingExtraError):
        logs.writers(["csv", "wandb"], tmp_path)

    assert not (tmp_path / "wandb-id").exists()


# --- several logs ---------------------------------------------------------------------------------


def test_writers_write_the_metrics_and_the_named_logs(tmp_path):
    for log in logs.writers(["csv", "tensorboard"], tmp_path, {"lr": 0.5}):
        write(log, [make_row(100), make_row(200), make_row(300)])

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"metrics.jsonl", "progress.csv", "tensorboard"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.stat().st_size > 100 for path in files)


def test_log_that_does_not_open_closes_the_others(tmp_path, monkeypatch):
    closed_logs = []

    class RecordsClose(logs.CsvFile):
        def close(self):
            closed_logs.append("csv")
            super().close()

    class DoesNotOpen:
        def __init__(self, *arguments):
            raise OSError("cannot be opened")

    monkeypatch.setattr(logs, "LOGS", {"csv": RecordsClose, "broken": DoesNotOpen})

    with pytest.raises(OSError, match="cannot be opened"):
        logs.writers(["csv", "broken"], tmp_path)

    assert closed_logs == ["csv"]


# --- metrics.jsonl and progress.csv ---------------------------------------------------------------


def test_metrics_are_lines_of_json(tmp_path):
    first_row = {"timesteps_total": 100, "info": {"kl": 0.1, "model": {}}}
    second_row = {"timesteps_total": 200, "info": {"kl": 0.2, "note": "two\nlines", "on": True}}

    write(logs.MetricsFile(tmp_path), [first_row, second_row])

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [first_row, second_row]


def test_metrics_have_null_for_nan_and_none(tmp_path):
    row = {"timesteps_total": 100, "episode_return_mean": None, "info": {"odd": math.nan}}

    write(logs.MetricsFile(tmp_path), [row])

    text = (tmp_path / "metrics.jsonl").read_text()
    expected = {"timesteps_total": 100, "episode_return_mean": None, "info": {"odd": None}}
    assert json.loads(text) == expected


def test_csv_has_a_column_for_each_name(tmp_path):
    learner = {"kl": 0.1, "model": {}, "note": "two\nlines", "odd": math.nan, "on": True}
    row = {"timesteps_total": 100, "episode_return_mean": None, "info": {"learner": learner}}

    write_metrics_and_csv(tmp_path, [row])

    [row_of_csv] = read_csv(tmp_path)
    # Names of nested dicts are joined. The empty dict `model` has no column.
    assert list(row_of_csv.items()) == [
        ("timesteps_total", "100"),
        ("episode_return_mean", ""),
        ("info/learner/kl", "0.1"),
        ("info/learner/note", "two lines"),
        ("info/learner/odd", ""),
        ("info/learner/on", "true"),
    ]


def test_csv_has_all_digits_of_a_number(tmp_path):
    write_metrics_and_csv(tmp_path, [{"timesteps_total": 200, "episode_return_mean": 200 / 7}])

    [row] = read_csv(tmp_path)
    assert float(row["episode_return_mean"]) == 200 / 7


def test_csv_column_that_begins_later_is_empty_before(tmp_path):
    with_evaluation = make_row(300, evaluation={"mean": 9.5})
    rows = [make_row(100), make_row(200), with_evaluation, make_row(400)]

    write_metrics_and_csv(tmp_path, rows)

    table = read_csv(tmp_path)
    assert [row["evaluation/mean"] for row in table] == ["", "", "9.5", ""]
    assert [row["timesteps_total"] for row in table] == ["100", "200", "300", "400"]
    # The table was written again, and its temporary file is gone.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "progress.csv"]


# --- metrics.jsonl and progress.csv of resumed runs -----------------------------------------------


@pytest.fixture
def five_rows():
    """Rows of 100 to 500 steps; the second and the fourth have an evaluation."""
    return [
        make_row(100),
        make_row(200, evaluation={"mean": 2}),
        make_row(300),
        make_row(400, evaluation={"mean": 4}),
        make_row(500),
    ]


@pytest.mark.parametrize("name", ["metrics.jsonl", "progress.csv"])
@pytest.mark.parametrize("is_cut", [True, False], ids=["in-a-line", "after-a-line"])
def test_files_of_a_killed_and_resumed_run_are_the_same(name, is_cut, five_rows, tmp_path):
    uninterrupted = tmp_path / "uninterrupted"
    uninterrupted.mkdir()
    write_metrics_and_csv(uninterrupted, five_rows)

    # The run is killed after its fourth row, at 400 steps, and its checkpoint is at 200 steps.
    write_metrics_and_csv(tmp_path, five_rows[:4])
    if is_cut:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-9])  # half of the last line is missing
    write_metrics_and_csv(tmp_path, five_rows[2:], after=200)

    for file_name in ("metrics.jsonl", "progress.csv"):
        expected = (uninterrupted / file_name).read_bytes()
        assert (tmp_path / file_name).read_bytes() == expected


def test_run_that_is_not_resumed_writes_new_files(five_rows, tmp_path):
    write_metrics_and_csv(tmp_path, five_rows)

    write_metrics_and_csv(tmp_path, five_rows[:1])

    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "progress.csv").read_text().splitlines()) == 2  # with the names


def test_csv_of_a_resumed_run_has_the_rows_before(tmp_path):
    """The run began without `--log csv`, in a folder with another file of that name."""
    write(logs.MetricsFile(tmp_path), [make_row(100), make_row(200)])
    (tmp_path / "progress.csv").write_bytes(b"\xff=cmd,x\n1")

    write_metrics_and_csv(tmp_path, [make_row(200)], after=100)

    assert [row["timesteps_total"] for row in read_csv(tmp_path)] == ["100", "200"]


def test_run_killed_before_its_first_row_is_resumed(tmp_path):
    for log in logs.writers(["csv", "tensorboard"], tmp_path):
        log.close()
    for log in logs.writers(["csv", "tensorboard"], tmp_path, after=0):
        log.close()

    write_metrics_and_csv(tmp_path, [make_row(100)], after=0)

    assert [row["timesteps_total"] for row in read_csv(tmp_path)] == ["100"]


def test_damaged_metrics_are_an_error_and_stay(tmp_path):
    write_metrics_and_csv(tmp_path, [make_row(100)])
    table = (tmp_path / "progress.csv").read_bytes()
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b"not JSON\n")
    metrics = (tmp_path / "metrics.jsonl").read_bytes()

    with pytest.raises(SavedPolicyError, match="damaged"):
        logs.writers(["csv"], tmp_path, after=100)

    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
    assert (tmp_path / "progress.csv").read_bytes() == table


def test_metrics_that_are_nested_too_deeply_raise_no_other_error(tmp_path):
    nested = '{"b": ' * 600 + "1" + "}" * 600
    (tmp_path / "metrics.jsonl").write_text(f'{{"timesteps_total": 1, "a": {nested}}}\n')

    # Whether Python can read 600 levels depends on its version, so both outcomes are right.
    with contextlib.suppress(SavedPolicyError):
        for log in logs.writers(["csv"], tmp_path, after=1):
            log.close()


# --- TensorBoard ----------------------------------------------------------------------------------


def read_events(path):
    """Return the events in a file of TensorBoard; TensorFlow also checks their checksums."""
    from tensorflow.compat.v1.train import summary_iterator

    return list(summary_iterator(str(path)))


def read_values(event):
    """Return the values in an event: tag → number."""
    return {value.tag: value.simple_value for value in event.summary.value}


@pytest.fixture
def tensorboard_events(tmp_path):
    """The events in the file of two rows, at 100 and at 2**40 steps."""
    write(logs.TensorBoard(tmp_path), [make_row(100), make_row(2**40, huge=-1e300)])
    [path] = (tmp_path / "tensorboard").iterdir()
    return read_events(path)


def test_tensorboard_file_has_a_version_and_steps(tensorboard_events):
    version, first, second = tensorboard_events

    assert version.file_version == "brain.Event:2"
    assert first.step == 100
    assert second.step == 2**40


def test_tensorboard_file_has_numbers_by_their_names(tmp_path):
    learner = {"kl": 0.5, "model": {}, "note": "two\nlines", "odd": math.nan, "on": True}
    row = {"timesteps_total": 100, "episode_return_mean": None, "info": {"learner": learner}}

    write(logs.TensorBoard(tmp_path), [row])

    [path] = (tmp_path / "tensorboard").iterdir()
    _, event = read_events(path)  # the first event is the version of the file
    # None, NaN, texts and empty dicts are left out.
    assert read_values(event) == {
        "timesteps_total": 100.0,
        "info/learner/kl": 0.5,
        "info/learner/on": 1.0,
    }


def test_tensorboard_file_has_large_numbers(tensorboard_events):
    _, _, second = tensorboard_events

    values = read_values(second)
    assert values["episode_return_mean"] == pytest.approx(2**40 / 7)
    assert values["huge"] == -math.inf  # too large for float32


def test_tensorboard_file_of_a_new_run_has_no_start(tmp_path):
    write(logs.TensorBoard(tmp_path), [make_row(300)])

    [path] = (tmp_path / "tensorboard").iterdir()
    assert not any(event.HasField("session_log") for event in read_events(path))


def test_resumed_run_has_its_own_tensorboard_file(tmp_path):
    write(logs.TensorBoard(tmp_path), [make_row(300)])
    # The run resumes twice from its checkpoint at 200 steps.
    write(logs.TensorBoard(tmp_path, after=200), [make_row(300)])
    write(logs.TensorBoard(tmp_path, after=200), [make_row(300)])

    _, first_resumed, second_resumed = sorted((tmp_path / "tensorboard").iterdir())
    for path in (first_resumed, second_resumed):
        _, start, _ = read_events(path)  # a version, the start, and the row
        # TensorBoard drops what earlier files have from this step on.
        assert start.step == 201
        assert start.session_log.status == start.session_log.START


def test_tensorboard_files_need_no_framework():
    code = (
        "import sys, tempfile, pathlib\n"
        "from rlcatalog_runs import logs\n"
        "logs.TensorBoard(pathlib.Path(tempfile.mkdtemp())).close()\n"
        "assert not {'torch', 'tensorflow', 'google', 'wandb'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


# --- Weights & Biases -----------------------------------------------------------------------------

#: Writes a run of 300 steps, and resumes it after 200 steps to 400.
WANDB_RUN = """
import pathlib, sys, time
from rlcatalog_runs import logs
folder = pathlib.Path(sys.argv[1])
for after, steps in ((None, (100, 200, 300)), (200, (300, 400))):
    log = logs.Wandb(folder, {"algorithm": {"lr": 0.5}}, after)
    for step in steps:
        log.write({"timesteps_total": step, "info": {"kl": step / 8, "text": "x"}})
    log.close()
    if not after:
        time.sleep(1 - time.time() % 1)  # wandb names a folder by the second
"""


def read_records(path, record_type):
    """Return the records of a type in a file of Weights & Biases.

    It has LevelDB's log format, after 7 bytes of its own.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data = path.read_bytes()
    position = 7
    records = []
    content = b""
    while position < len(data):
        rest_of_block = 32768 - position % 32768
        if rest_of_block < 7:  # too short for another header, so it is filled up
            position += rest_of_block
        size, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        content += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            record = Record.FromString(content)
            content = b""
            if record.WhichOneof("record_type") == record_type:
                records.append(getattr(record, record_type))
    return records


def read_history(path):
    """Return the rows in a file of Weights & Biases."""
    rows = []
    for history in read_records(path, "history"):
        row = {}
        for item in history.item:
            name = "/".join(item.nested_key) or item.key
            row[name] = json.loads(item.value_json)
        rows.append(row)
    return rows


@pytest.fixture
def wandb_folder(tmp_path):
    """The folder of `WANDB_RUN`, without a network."""
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    environ = {**os.environ, "HOME": str(tmp_path), "WANDB_MODE": "offline"}
    process = subprocess.run(
        [sys.executable, "-c", WANDB_RUN, str(tmp_path)],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout == ""
    return tmp_path


@pytest.mark.slow
def test_wandb_writes_a_resumed_run_under_the_same_id(wandb_folder):
    run_id = (wandb_folder / "wandb-id").read_text().strip()
    pattern = f"offline-run-*-{run_id}/run-{run_id}.wandb"
    first_path, resumed_path = sorted((wandb_folder / "wandb").glob(pattern))

    first = read_history(first_path)
    resumed = read_history(resumed_path)

    # The run was written up to step 300, and resumed after step 200. `info/kl` is an eighth of the
    # steps.
    assert [row["_step"] for row in first] == [100, 200, 300]
    assert [row["info/kl"] for row in first] == [12.5, 25.0, 37.5]
    assert [row["_step"] for row in resumed] == [300, 400]
    assert [row["info/kl"] for row in resumed] == [37.5, 50.0]
    assert "info/text" not in first[0]  # only numbers are written


@pytest.mark.slow
def test_wandb_has_the_project_and_the_config(wandb_folder):
    run_id = (wandb_folder / "wandb-id").read_text().strip()

    first_path, _ = sorted((wandb_folder / "wandb").glob(f"offline-run-*-{run_id}/*.wandb"))
    run = read_records(first_path, "run")[0]
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert run.run_id == run_id
    assert run.project == "rlcatalog"
    assert config["algorithm"] == {"lr": 0.5}


@pytest.mark.slow
def test_wandb_refuses_a_crafted_id(tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    (tmp_path / "wandb-id").write_text("../elsewhere")

    with pytest.raises(SavedPolicyError, match=r"'\.\./elsewhere' is not a run id"):
        logs.Wandb(tmp_path, None, 200)


def test_error_of_wandb_says_what_helps(monkeypatch, tmp_path):
    class Error(Exception):
        pass

    def init(**options):
        raise Error("No API key configured.")

    # The real package raises its error only on a machine without an account.
    fake_wandb = SimpleNamespace(Error=Error, Settings=SimpleNamespace, init=init)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb)
    monkeypatch.setattr(logs, "_need_wandb", lambda: None)  # finds it installed

    with pytest.raises(ConfigError, match=r"Error: No API key configured\.") as caught:
        logs.writers(["wandb"], tmp_path)

    assert "`wandb login`" in str(caught.value)
    assert " WANDB_MODE=offline works without" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
