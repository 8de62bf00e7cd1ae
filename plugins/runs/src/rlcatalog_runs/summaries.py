"""Summaries of running and finished runs with any engine, read from their folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from rlcatalog.errors import SavedPolicyError, one_line
from rlcatalog_policy import read_file, read_json
from rlcatalog_runs.folders import CONFIG, METRICS
from rlcatalog_runs.records import MAX_BYTES_OF_ROWS, RECORD, read_record

#: Depth of subfolders that are searched for runs.
DEPTH = 6
_Value = TypeVar("_Value", str, int, float)

#: Larger numbers are not plausible returns and cannot be drawn.
_LARGEST = 1e300


class Row(msgspec.Struct):
    """Fields that are read from a line of metrics.

    Attributes:
        timesteps_total: Number of environment steps so far.
        episode_return_mean: Mean return of the most recent episodes, or None.
        time_total_s: Elapsed time in seconds, if recorded.
        evaluation: An evaluation's metrics, if any.
    """

    timesteps_total: Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
    episode_return_mean: Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)] | None = None
    time_total_s: float | None = None
    evaluation: dict[str, Any] | None = None


class Run(NamedTuple):
    """Summary of one run.

    Attributes:
        folder: The run's folder.
        env: The environment's id, or None.
        algorithm: The algorithm's name, or None.
        engine: The engine, such as `"sb3"`; None for rlcatalog's own algorithms.
        framework: The framework, or None.
        seed: The seed, or None.
        steps: Number of environment steps so far.
        wanted: Requested number of environment steps, or None.
        last_return: Mean return of the most recent episodes, or None.
        best_evaluation: The best mean return in an evaluation, or None.
        seconds: Duration in seconds, or None.
        status: `"running"`, `"finished"`, `"interrupted"`, `"failed"` or `"died"`; None without a
            record.
        error: The first line of the run's error, or None.
        started: Start time in seconds since 1970; 0 without a record.
        config: The run's resolved config.
    """

    folder: Path
    env: str | None
    algorithm: str | None
    engine: str | None
    framework: str | None
    seed: int | None
    steps: int
    wanted: int | None
    last_return: float | None
    best_evaluation: float | None
    seconds: float | None
    status: str | None
    error: str | None
    started: float
    config: Mapping[str, Any]


def find_runs(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the run folders at and below a folder, ignoring links and hidden folders."""
    if any(os.path.lexists(folder / name) for name in (CONFIG, RECORD, METRICS)):
        yield folder
    elif depth > 0:
        try:
            entries = os.scandir(folder)
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in names:
            if not name.startswith("."):
                yield from find_runs(folder / name, depth - 1)


def read_run(folder: Path) -> Run:
    """Return a summary of the run in a folder.

    Raises:
        SavedPolicyError: The folder is damaged.
    """
    config = _config(folder)
    record = read_record(folder) or {}
    rows = read_rows(folder)
    algorithm = table_in(config, "algorithm")
    last_row = rows[-1] if rows else Row(timesteps_total=0)
    seconds = record.get("seconds")
    if seconds is None:
        seconds = last_row.time_total_s
    return Run(
        folder=folder,
        env=_value_of_type(str, config.get("env")),
        algorithm=_value_of_type(str, algorithm.get("name")),
        engine=record.get("engine"),
        framework=_value_of_type(str, config.get("framework")),
        seed=_value_of_type(int, algorithm.get("seed", config.get("seed"))),
        steps=int(last_row.timesteps_total),
        wanted=_value_of_type(int, config.get("steps")),
        last_return=last_row.episode_return_mean,
        best_evaluation=best_evaluation(rows),
        seconds=seconds,
        status=record.get("status"),
        error=record.get("error"),
        started=_started(record),
        config=config,
    )


def read_rows(folder: Path) -> list[Row]:
    """Return a run's metrics, oldest first; empty if there are no rows yet.

    Raises:
        SavedPolicyError: The metrics are damaged; an incomplete last line is allowed.
    """
    path = folder / METRICS
    try:
        lines = read_file(path, MAX_BYTES_OF_ROWS).decode().split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise SavedPolicyError(f"{path}: is not text: {one_line(str(error))}") from error
    decoder = msgspec.json.Decoder(Row)
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            rows.append(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            if number == len(lines):  # no newline: the writer has stopped or is still writing
                break
            raise SavedPolicyError(
                f"{path}: line {number} is damaged: {one_line(str(error))}"
            ) from error
    return rows


def best_evaluation(rows: Iterable[Row]) -> float | None:
    """Return the best mean return among the evaluations so far, or None."""
    means = []
    for row in rows:
        if row.evaluation is not None:
            mean = _value_of_type(float, row.evaluation.get("return_mean"))
            if mean is not None:
                means.append(mean)
    return max(means, default=None)


def _config(folder: Path) -> dict[str, Any]:
    """Return a run's config; empty if it does not exist yet."""
    try:
        config = read_json(folder / CONFIG)
    except FileNotFoundError:
        return {}
    if not isinstance(config, dict):
        raise SavedPolicyError(f"{folder / CONFIG}: is damaged: not a table.")
    return config


def _started(record: Mapping[str, Any]) -> float:
    """Return when a run was started, in seconds since 1970; 0 if the record does not say it."""
    try:
        seconds = datetime.fromisoformat(record.get("started")).timestamp()  # type: ignore[arg-type]
        datetime.fromtimestamp(seconds, UTC)  # raises if it cannot be shown as a date
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return seconds


def table_in(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the table with the given name from a config, or an empty table."""
    table = values.get(name)
    return table if isinstance(table, dict) else {}


def _value_of_type(kind: type[_Value], value: Any) -> _Value | None:
    """Return a value from a file if it has the given type, otherwise None."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, kind)
    return None
