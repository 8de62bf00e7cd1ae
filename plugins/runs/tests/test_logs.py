"""What a run writes of itself: lines, tables, TensorBoard's files, Weights & Biases; and what a
resume takes back.
"""

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


def row(steps, **more):
    return {
        "timesteps_total": steps,
        "episode_return_mean": None if steps < 200 else steps / 7,
        "info": {
            "learner": {
                "kl": 1e-3 * steps,
                "model": {},
                "note": "two\nlines",
                "odd": math.nan,
                "on": True,
            }
        },
        **more,
    }


def write(writer, rows):
    for one in rows:
        writer.write(one)
    writer.close()


# --- names ----------------------------------------------------------------------------------------


def test_logs_are_named_with_commas():
    assert logs.log_names(None) == ()
    assert logs.log_names("csv") == ("csv",)
    assert logs.log_names("tensorboard, csv") == ("tensorboard", "csv")


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
def test_other_names_are_refused(text, message):
    with pytest.raises(ConfigError) as error:
        logs.log_names(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "spec", [None, importlib.util.spec_from_loader("wandb", None, is_package=True)]
)
def test_without_its_extra_wandb_is_refused_before_anything_is_written(spec, monkeypatch, tmp_path):
    """Nor is a folder `wandb`, which an earlier run may have left where the command is typed, the
    package.
    """
    monkeypatch.setattr(logs, "find_spec", lambda name: spec)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-runs[wandb]"))):
        logs.log_names("csv,wandb")
    with pytest.raises(MissingExtraError):
        logs.writers(["csv", "wandb"], tmp_path)
    assert not (tmp_path / "wandb-id").exists()


# --- lines and tables -----------------------------------------------------------------------------


def test_metrics_are_lines_of_json_as_they_came(tmp_path):
    write(logs.MetricsFile(tmp_path), [row(100), row(200)])
    first, second = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(second)["info"]["learner"]["kl"] == 0.2
    assert json.loads(first) == {
        "timesteps_total": 100,
        "episode_return_mean": None,
        "info": {
            "learner": {"kl": 0.1, "model": {}, "note": "two\nlines", "odd": None, "on": True}
        },
    }


def table(folder):
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_both(folder, rows, after=None):
    """Write the rows, and the table of them."""
    metrics, csv_file = logs.writers(["csv"], folder, after=after)
    for one in rows:
        metrics.write(one)
        csv_file.write(one)
    metrics.close()
    csv_file.close()


def test_a_table_has_a_column_for_each_name(tmp_path):
    write_both(tmp_path, [row(100), row(200)])
    first, second = table(tmp_path)
    names = [
        "timesteps_total",
        "episode_return_mean",
        *(f"info/learner/{n}" for n in ("kl", "note", "odd", "on")),
    ]
    assert list(first) == names
    assert list(first.values()) == ["100", "", "0.1", "two lines", "", "true"]
    assert float(second["episode_return_mean"]) == 200 / 7


def test_a_column_that_comes_later_is_added_and_rows_without_it_are_empty_there(tmp_path):
    rows = [row(100), row(200), row(300, evaluation={"mean": 9.5}), row(400)]
    write_both(tmp_path, rows)
    found = table(tmp_path)
    assert [one["evaluation/mean"] for one in found] == ["", "", "9.5", ""]
    assert [one["timesteps_total"] for one in found] == ["100", "200", "300", "400"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "progress.csv"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "progress.csv"])
@pytest.mark.parametrize("half_a_line", [True, False])
def test_a_run_that_goes_on_leaves_the_file_of_one_that_was_never_killed(
    name, half_a_line, tmp_path
):
    """Killed at 420 steps, in the midst of a line, with its last checkpoint at 200."""
    rows = [
        row(100 * k, **({"evaluation": {"mean": k}} if k % 2 == 0 else {})) for k in range(1, 6)
    ]
    (tmp_path / "whole").mkdir()
    write_both(tmp_path / "whole", rows)
    write_both(tmp_path, rows[:4])
    path = tmp_path / name
    if half_a_line:
        path.write_bytes(path.read_bytes()[:-9])
    write_both(tmp_path, rows[2:], after=200)
    for each in ("metrics.jsonl", "progress.csv"):
        assert (tmp_path / each).read_bytes() == (tmp_path / "whole" / each).read_bytes()
    # Without `after`, a run begins anew.
    write_both(tmp_path, rows[:1])
    assert len(path.read_text().splitlines()) == (2 if name == "progress.csv" else 1)


def test_a_table_that_a_run_begins_later_has_the_rows_before_it_and_nothing_that_it_held(tmp_path):
    write(logs.MetricsFile(tmp_path), [row(100), row(200)])
    (tmp_path / "progress.csv").write_bytes(b"\xff=cmd,x\n1")
    write_both(tmp_path, [row(200)], after=100)
    assert [one["timesteps_total"] for one in table(tmp_path)] == ["100", "200"]


def test_nothing_to_take_back(tmp_path):
    """Killed before its first row, or begun without this log."""
    for after in (None, 0):
        for writer in logs.writers(["csv", "tensorboard"], tmp_path, after=after):
            writer.close()
    write_both(tmp_path, [row(100)], after=0)
    assert [one["timesteps_total"] for one in table(tmp_path)] == ["100"]


@pytest.mark.parametrize(
    "damage", [b"\xff\xfe\n", b"1,2\n", b"{}\n", b'[1]\n"x\n', b"[" * 9_000 + b"\n"], ids=range(5)
)
def test_a_damaged_line_is_an_error_and_the_files_are_left_as_they_are(damage, tmp_path):
    write_both(tmp_path, [row(100)])
    path, held = tmp_path / "metrics.jsonl", (tmp_path / "progress.csv").read_bytes()
    path.write_bytes(path.read_bytes() + damage + path.read_bytes())
    before = path.read_bytes()
    for names in ([], ["csv"]):
        with pytest.raises(SavedPolicyError, match="damaged"):
            logs.writers(names, tmp_path, after=100)
    assert path.read_bytes() == before
    assert (tmp_path / "progress.csv").read_bytes() == held


@pytest.mark.parametrize(
    "line", ['{"timesteps_total": 1, "a": ' + '{"b": ' * 600 + "1" + "}" * 601], ids=["deep"]
)
def test_a_table_of_rows_that_are_too_deep_is_refused_or_written_and_nothing_else(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with contextlib.suppress(SavedPolicyError):
        for writer in logs.writers(["csv"], tmp_path, after=1):
            writer.close()


def test_a_run_writes_its_lines_and_the_logs_that_are_named(tmp_path):
    opened = logs.writers(logs.log_names("csv,tensorboard"), tmp_path, {"lr": 0.5})
    for writer in opened:
        writer.write(row(100))
    for writer in opened:
        writer.close()
    assert {path.name for path in tmp_path.iterdir()} == {
        "metrics.jsonl",
        "progress.csv",
        "tensorboard",
    }
    assert all(path.stat().st_size > 100 for path in tmp_path.rglob("*") if path.is_file())


def test_a_log_that_does_not_open_closes_the_others(tmp_path, monkeypatch):
    opened = []

    class Broken:
        def __init__(self, *args):
            raise OSError("no")

    class Noted(logs.CsvFile):
        def close(self):
            opened.append(self)
            super().close()

    monkeypatch.setattr(logs, "LOGS", {"csv": Noted, "broken": Broken})
    with pytest.raises(OSError, match="no"):
        logs.writers(["csv", "broken"], tmp_path)
    assert len(opened) == 1


# --- TensorBoard ----------------------------------------------------------------------------------


def varint(data, at):
    found = shift = 0
    while True:
        found |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return found, at


def message(data):
    """Return the fields of a message of protocol buffers, number → what stands there, in order."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            code, size = {1: ("<d", 8), 5: ("<f", 4)}[key & 7]
            value, at = struct.unpack(code, data[at : at + size])[0], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def checksum(data):
    """CRC-32C bit by bit, masked as TensorFlow's records are."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def events(path):
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == checksum(data[:8])
        event = data[12 : 12 + size]
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == checksum(event)
        found.append(message(event))
        data = data[16 + size :]
    return found


def test_the_readers_checksum_is_the_standards():
    """The check value that catalogues of CRCs give for CRC-32C: 0xE3069283, of the
    digits 1 to 9.
    """
    crc = (checksum(b"123456789") - 0xA282EAD8) % 2**32
    assert (crc << 15 | crc >> 17) % 2**32 == 0xE3069283


def test_tensorboard_reads_the_numbers_under_their_names(tmp_path):
    write(logs.TensorBoard(tmp_path), [row(100), row(2**40, huge=-1e300)])
    (path,) = (tmp_path / "tensorboard").iterdir()
    version, first, second = events(path)
    assert version[3] == [b"brain.Event:2"]
    assert (first[2], second[2]) == ([100], [2**40])
    values = [
        {m[1][0].decode(): m[2][0] for m in map(message, message(e[5][0])[1])}
        for e in (first, second)
    ]
    kl = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert values[0] == {"timesteps_total": 100.0, "info/learner/kl": kl, "info/learner/on": 1.0}
    assert values[1]["episode_return_mean"] == pytest.approx(2**40 / 7)
    assert values[1]["huge"] == -math.inf


def test_tensorflow_reads_the_same(tmp_path):
    from tensorflow.compat.v1.train import summary_iterator

    write(logs.TensorBoard(tmp_path), [row(100), row(200)])
    write(logs.TensorBoard(tmp_path, None, 100), [row(200)])
    before, after = sorted((tmp_path / "tensorboard").iterdir())
    found = {
        e.step: {v.tag: v.simple_value for v in e.summary.value}
        for e in summary_iterator(str(before))
    }
    assert found[200]["info/learner/kl"] == pytest.approx(0.2)
    start = list(summary_iterator(str(after)))[1]
    assert (start.step, start.session_log.status) == (101, start.session_log.START)


def test_a_run_that_goes_on_voids_later_steps_in_a_file_of_its_own(tmp_path):
    for after in (None, 200, 200):
        write(logs.TensorBoard(tmp_path, None, after), [row(300)])
    first, *later = sorted((tmp_path / "tensorboard").iterdir())
    assert [7 in event for event in events(first)] == [False, False]
    for path in later:
        _, start, _ = events(path)
        assert (start[2], message(start[7][0])) == ([201], {1: [1]})  # 1: START
    assert len(later) == 2


def test_tensorboards_files_need_no_framework():
    code = (
        "import sys, tempfile, pathlib\nfrom rlcatalog_runs import logs\n"
        "logs.TensorBoard(pathlib.Path(tempfile.mkdtemp())).close()\n"
        "assert not {'torch', 'tensorflow', 'google', 'wandb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Weights & Biases -----------------------------------------------------------------------------

RUN = """
import pathlib, sys, time
from rlcatalog_runs import logs
folder = pathlib.Path(sys.argv[1])
for after, steps in ((None, (100, 200, 300)), (200, (300, 400))):
    writer = logs.Wandb(folder, {"algorithm": {"lr": 0.5}}, after)
    for step in steps:
        writer.write({"timesteps_total": step, "info": {"kl": step / 8, "text": "x"}})
    writer.close()
    if not after:
        time.sleep(1 - time.time() % 1)  # wandb names a folder by the second
"""


def records(path):
    """Return the records of a file of Weights & Biases: LevelDB's log format behind 7 bytes of its
    own.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, found, whole = path.read_bytes(), 7, [], b""
    while at < len(data):
        if 32768 - at % 32768 < 7:  # what remains of a block is filled up
            at += 32768 - at % 32768
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the whole of a record, or its last part
            found.append(Record.FromString(whole))
            whole = b""
    return found


@pytest.mark.attack
def test_wandb_logs_without_a_network_and_goes_on_under_its_id(tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    home = {"HOME": str(tmp_path), "WANDB_MODE": "offline"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env={**os.environ, **home},
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    name = (tmp_path / "wandb-id").read_text().strip()
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))
    found = []
    for path in files:
        history = [
            record.history
            for record in records(path)
            if record.WhichOneof("record_type") == "history"
        ]
        rows = [
            {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in one.item}
            for one in history
        ]
        found.append([(one["_step"], one["info/kl"], "info/text" in one) for one in rows])
    assert found == [
        [(s, s / 8, False) for s in (100, 200, 300)],
        [(s, s / 8, False) for s in (300, 400)],
    ]
    (run,) = [
        record.run for record in records(files[0]) if record.WhichOneof("record_type") == "run"
    ][:1]
    assert (run.run_id, run.project) == (name, "rlcatalog")
    assert {u.key: json.loads(u.value_json) for u in run.config.update}["algorithm"] == {"lr": 0.5}
    (tmp_path / "wandb-id").write_text("../elsewhere")
    with pytest.raises(SavedPolicyError, match=r"'\.\./elsewhere' is not a run id"):
        logs.Wandb(tmp_path, None, 200)


def test_where_wandb_begins_no_run_it_says_what_helps_and_leaves_nothing(monkeypatch, tmp_path):
    """A stand-in for the package: what the real one raises without an account, in every
    environment.
    """

    class Error(Exception):
        pass

    def init(**given):
        raise Error("No API key configured.")

    stand_in = SimpleNamespace(Error=Error, Settings=SimpleNamespace, init=init)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    monkeypatch.setattr(logs, "_need_wandb", lambda: None)
    with pytest.raises(
        ConfigError,
        match=r"Error: No API key configured\. `wandb login`.* WANDB_MODE=offline works without",
    ):
        logs.writers(["wandb"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
