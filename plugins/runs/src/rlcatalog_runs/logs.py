"""Logs for a training run: metrics.jsonl, progress.csv, TensorBoard, Weights & Biases.

A row reports on one iteration: numbers by name, some in nested tables (`info`), and the number of
environment steps so far under `timesteps_total`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rlcatalog.errors import (
    ConfigError,
    MissingExtraError,
    SavedPolicyError,
    nearest,
    reason,
    shown,
)
from rlcatalog.plugins import install_hint
from rlcatalog_policy import read_file, write_file
from rlcatalog_runs.event_file import EventFile
from rlcatalog_runs.folders import METRICS
from rlcatalog_runs.records import MAX_BYTES_OF_ROWS, json_line

#: File of `CsvFile`, and folder of `TensorBoard`.
TABLE = "progress.csv"
TENSORBOARD = "tensorboard"

#: File with a run's id in Weights & Biases.
WANDB_ID = "wandb-id"

_STEPS = "timesteps_total"
#: Decoder of a row that leaves its values undecoded.
_RAW_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Writer(Protocol):
    """Protocol for a log that writes a run's rows one after another.

    For a resumed run, the log is opened with `after`, the number of steps to continue from. It then
    removes rows for later steps, which the run wrote before it was killed.
    """

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row.

        Raises:
            OSError: The row cannot be written.
        """

    def close(self) -> None:
        """Close the log."""


def log_names(text: str | None) -> tuple[str, ...]:
    """Return the names in `--log`, after checking that each is known, unique and installed.

    Args:
        text: Comma-separated names, such as "csv,tensorboard", or None for no names.

    Raises:
        ConfigError: A name is unknown or repeated.
        MissingExtraError: A package that a log requires is not installed.
    """
    names = [] if text is None else [name.strip() for name in text.split(",")]
    for index, name in enumerate(names):
        if name not in LOGS:
            raise ConfigError(
                f"--log: unknown log {shown(name)}.{nearest(name.lower(), LOGS)} Known:"
                f" {', '.join(LOGS)}; separate several with commas."
            )
        if name in names[:index]:
            raise ConfigError(f"--log: {shown(name)} is named twice.")
        if name == "wandb":
            _need_wandb()
    return tuple(names)


def writers(
    names: Iterable[str],
    folder: Path,
    about: Mapping[str, Any] | None = None,
    *,
    after: int | None = None,
) -> list[Writer]:
    """Open a run's logs: metrics.jsonl, which every run has, and any others.

    Args:
        names: Names of other logs, as returned by `log_names`.
        folder: The run's folder.
        about: The run's resolved config, for logs that include it.
        after: For a resumed run, the number of steps to continue from.

    Raises:
        SavedPolicyError: A resumed run's log cannot be read, so later rows cannot be removed.
        ConfigError: Weights & Biases cannot start a run.
    """
    logs: list[Writer] = []
    with ExitStack() as close_on_error:
        log_classes = [MetricsFile, *(LOGS[name] for name in names)]
        for log_class in log_classes:
            log = log_class(folder, about or {}, after)
            logs.append(log)
            close_on_error.callback(log.close)
        close_on_error.pop_all()  # all are open; now the caller closes them
    return logs


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a row's nested tables: the value under `b` in a table `a` gets the name `a/b`."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{name}/")
        else:
            values[f"{prefix}{name}"] = value
    return values


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in a row under their flat names."""
    finite_numbers = {}
    for name, value in flat(row).items():
        if isinstance(value, int | float) and math.isfinite(value):
            finite_numbers[name] = float(value)
    return finite_numbers


class MetricsFile:
    """`metrics.jsonl`: one line of JSON per row; NaN and infinity become null.

    Args:
        folder: The run's folder.
        about: Not used.
        after: For a resumed run, the number of steps to continue from.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any] | None = None, after: int | None = None
    ) -> None:
        path = folder / METRICS
        if after is None:
            self._file = path.open("w", encoding="utf-8")
        else:
            cut_rows(path, _STEPS, after)
            self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json_line(row))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class CsvFile:
    """`progress.csv`: one column per flat name, in order of appearance; cells with NaN or infinity
    are empty.

    It contains the rows of `metrics.jsonl`, and is rewritten from that file when a column is added
    or a run is resumed.

    Args:
        folder: The run's folder; its `metrics.jsonl` must already contain each row.
        about: Not used.
        after: Not used.

    Raises:
        SavedPolicyError: A resumed run's rows cannot be read.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any] | None = None, after: int | None = None
    ) -> None:
        self._folder = folder
        self._columns: list[str] = self._write_all_rows()

    def write(self, row: Mapping[str, Any]) -> None:
        cells = _cells(row)
        has_new_column = not cells.keys() <= set(self._columns)
        if has_new_column:
            self._columns = self._write_all_rows()  # `metrics.jsonl` has this row already
            return
        with (self._folder / TABLE).open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(cells)

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""

    def _write_all_rows(self) -> list[str]:
        """Write the table with all rows so far, and return its columns."""
        path = self._folder / METRICS
        try:
            lines = read_file(path, MAX_BYTES_OF_ROWS).decode().splitlines()
            rows = [_cells(json.loads(line)) for line in lines]
        except (ValueError, RecursionError) as error:
            raise SavedPolicyError(f"{path}: a line is damaged ({reason(error)}).") from error
        # Each name once, in order of appearance; a dict's keys are unique and keep their order.
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        if columns:
            writer.writeheader()
        writer.writerows(rows)
        write_file(self._folder, TABLE, text.getvalue().encode())
        return columns


class TensorBoard:
    """A folder `tensorboard` with an event file, which contains the rows' numbers under their flat
    names.

    Args:
        folder: The run's folder.
        about: Not used.
        after: For a resumed run, the number of steps to continue from. The run gets a new file,
            which overrides later steps in earlier files.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any] | None = None, after: int | None = None
    ) -> None:
        first_void_step = None if after is None else after + 1
        self._file = EventFile(folder / TENSORBOARD, first_void_step)

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(numbers(row), row[_STEPS])

    def close(self) -> None:
        self._file.close()


class Wandb:
    """A run in Weights & Biases, whose local files are in a folder `wandb`.

    `WANDB_MODE=offline` requires neither a network connection nor an account. `WANDB_PROJECT` names
    the project; the default is `rlcatalog`. A resumed run keeps its id. Later steps that were
    already logged are kept, because the run repeats them unchanged.

    Args:
        folder: The run's folder, whose name becomes the run's name.
        about: The run's config.
        after: For a resumed run, the number of steps to continue from.

    Raises:
        MissingExtraError: wandb is not installed.
        ConfigError: wandb cannot start a run, for example without an account.
        SavedPolicyError: The id stored in the folder is invalid.
    """

    def __init__(
        self, folder: Path, about: Mapping[str, Any] | None = None, after: int | None = None
    ) -> None:
        _need_wandb()
        wandb = import_module("wandb")
        try:
            self._run = wandb.init(
                id=_wandb_id(folder, after),
                resume="allow",
                dir=str(folder),
                name=folder.resolve().name,
                project=os.environ.get("WANDB_PROJECT", "rlcatalog"),
                config=dict(about or {}),
                settings=wandb.Settings(console="off"),  # standard output is not captured
            )
        except wandb.Error as error:
            raise ConfigError(
                f"--log wandb: the run could not start: {reason(error).rstrip('.')}. `wandb login`"
                " sets up an account; WANDB_MODE=offline works without an account."
            ) from error
        write_file(folder, WANDB_ID, f"{self._run.id}\n".encode())

    def write(self, row: Mapping[str, Any]) -> None:
        self._run.log(numbers(row), step=row[_STEPS])

    def close(self) -> None:
        self._run.finish()


#: Logs by name, for `--log`.
LOGS: dict[str, Callable[[Path, Mapping[str, Any], int | None], Writer]] = {
    "csv": CsvFile,
    "tensorboard": TensorBoard,
    "wandb": Wandb,
}


def _need_wandb() -> None:
    spec = find_spec("wandb")
    # A folder `wandb` in the current directory, which has no origin, is not the package.
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            f"--log wandb: wandb is not installed. {install_hint('rlcatalog-runs[wandb]')}"
        )


def _wandb_id(folder: Path, after: int | None) -> str:
    """Return a run's id: a new id, or the existing one if the run is resumed."""
    new_id = secrets.token_hex(8)
    if after is None:
        return new_id
    path = folder / WANDB_ID
    try:
        content = read_file(path, most=1000)
        existing_id = content.decode(errors="replace").strip()
    except FileNotFoundError:
        return new_id
    if not re.fullmatch(r"[a-z0-9]{1,64}", existing_id):
        raise SavedPolicyError(
            f"{path}: {shown(existing_id)} is not a run id. Remove the file to continue with a new"
            " id."
        )
    return existing_id


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row's values under their flat names, each as the text of a cell."""
    return {_cell(name): _cell(value) for name, value in flat(row).items()}


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return " ".join(value.split())  # a cell has one line
    line = json_line({"": value})  # {"": VALUE}, where NaN and infinity are null
    text = line.removeprefix('{"": ').removesuffix("}\n")
    return "" if text == "null" else text


def cut_rows(path: Path, column: str, after: int) -> None:
    """Remove rows for later steps and an incomplete last line from a file.

    Args:
        path: The file, with one JSON row per line; it may be missing.
        column: Column that contains the number of environment steps.
        after: Largest number of steps to keep.

    Raises:
        SavedPolicyError: A line is damaged.
    """
    try:
        data = read_file(path, MAX_BYTES_OF_ROWS)
    except FileNotFoundError:
        return
    try:
        # A killed run may have ended in the middle of a line.
        complete_lines = data[: data.rfind(b"\n") + 1].decode().splitlines(keepends=True)
        lines_to_keep = []
        for line in complete_lines:
            raw_row = _RAW_ROW.decode(line)
            steps = msgspec.json.decode(raw_row[column], type=float)
            if steps <= after:
                lines_to_keep.append(line)
    except (ValueError, KeyError, RecursionError) as error:
        raise SavedPolicyError(
            f"{path}: a line is damaged ({reason(error)}), so the run cannot append to it. Move"
            " the file away to continue with a new one."
        ) from error
    # Write a new file even if all rows stay, because the old one may have hard links elsewhere.
    write_file(path.parent, path.name, "".join(lines_to_keep).encode())
