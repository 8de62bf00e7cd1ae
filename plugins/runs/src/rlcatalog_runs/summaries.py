"""What the folder of a run says about it: whoever trained, now or with an earlier version, running or ended."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from rlcatalog.errors import SavedPolicyError, one_line
from rlcatalog_policy import MOST_JSON, check_levels, read_file
from rlcatalog_runs.folders import CONFIG, METRICS, POLICY
from rlcatalog_runs.records import RECORD, is_held, read_record
from rlcatalog_runs.rows import MOST_ROWS

#: Rows of earlier versions under Stable-Baselines3.
PROGRESS = "progress.csv"
#: A folder with one of these holds a run.
_RUN = (CONFIG, RECORD, METRICS, PROGRESS)
#: Columns of Stable-Baselines3's progress.csv.
_STEPS, _RETURN, _SECONDS = "time/total_timesteps", "rollout/ep_rew_mean", "time/time_elapsed"
#: Folders inside of folders in which runs are looked for.
DEPTH = 6


#: Larger numbers are no returns, and cannot be drawn.
_LARGEST = 1e300


class Row(msgspec.Struct):
    """What is read of a line of metrics; the rest is skipped.

    Attributes:
        timesteps_total: Environment steps so far.
        episode_return_mean: Mean return of the last episodes, or None.
        time_total_s: Seconds so far, where they are noted.
        evaluation: Figures of an evaluation, where there was one.
    """

    timesteps_total: Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
    episode_return_mean: Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)] | None = None
    time_total_s: float | None = None
    evaluation: dict[str, Any] | None = None


class Run(NamedTuple):
    """One run.

    Attributes:
        folder: Its folder.
        env: The environment's id, or None.
        algorithm: The algorithm's name, or None.
        engine: Who trained it, such as `"sb3"`; None for this project's own algorithms.
        framework: The framework, or None.
        seed: The seed, or None.
        steps: Environment steps done.
        wanted: Environment steps asked for, or None.
        last_return: Mean return of the last episodes, or None.
        best_evaluation: The best mean return of an evaluation, or None.
        seconds: Seconds taken, or None.
        status: `"running"`, `"finished"`, `"interrupted"`, `"failed"`, `"died"`, or `"unfinished"` in a folder of an
            earlier version without a policy.
        error: The first line of its error, or None.
        started: When it began, in seconds since 1970.
        config: Its resolved config.
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
    status: str
    error: str | None
    started: float
    config: Mapping[str, Any]


def find_runs(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield the folders of runs at and below a folder; links are not followed, hidden folders are passed over."""
    if any(os.path.lexists(folder / name) for name in _RUN):
        yield folder
    elif depth:
        try:
            inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in inside:
            if not name.startswith("."):
                yield from find_runs(folder / name, depth - 1)


def read_run(folder: Path) -> Run:
    """Return what a run's folder says.

    Raises:
        SavedPolicyError: It is damaged.
    """
    config, record, rows = _config(folder), read_record(folder) or {}, read_rows(folder)
    algorithm = table_in(config, "algorithm")
    engine = _engine(config, record, folder)
    last = rows[-1] if rows else Row(0)
    evaluations = [_number(row.evaluation.get("return_mean")) for row in rows if row.evaluation is not None]
    name = _text(algorithm.get("name"))
    framework = _text(config.get("framework"))
    status = record.get("status") or _status(folder)
    seconds = _number(record.get("seconds"))
    return Run(
        folder=folder,
        env=_text(config.get("env")),
        algorithm=name or ("PPO" if algorithm and engine is None else None),
        engine=engine,
        framework=framework or ("torch" if engine in ("sb3", "rllib") else None),
        seed=_whole(algorithm.get("seed", config.get("seed"))),
        steps=int(last.timesteps_total),
        wanted=_whole(config.get("steps")),
        last_return=last.episode_return_mean,
        best_evaluation=max((value for value in evaluations if value is not None), default=None),
        seconds=last.time_total_s if seconds is None else seconds,
        status=status,
        error=_text(record.get("error")),
        started=_started(record, folder),
        config=config,
    )


def read_rows(folder: Path) -> list[Row]:
    """Return the metrics of a run, oldest first; none where none were written yet.

    Raises:
        SavedPolicyError: They are damaged, but for a last line that is half written.
    """
    text = _read(folder / METRICS)
    if text is not None:
        return _lines(folder / METRICS, text)
    text = _read(folder / PROGRESS)
    return [] if text is None else _columns(folder / PROGRESS, text)


def _lines(path: Path, text: str) -> list[Row]:
    decoder, found = msgspec.json.Decoder(Row), []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            if number == len(lines) - 1:  # no line end: its writer was stopped, or is writing it
                break
            raise SavedPolicyError(f"{path}: line {number + 1} is damaged: {one_line(str(error))}") from error
    return found


def _columns(path: Path, text: str) -> list[Row]:
    whole = text[: text.rfind("\n") + 1]  # a last line without an end is half written
    try:
        reader = csv.DictReader(io.StringIO(whole), strict=True)
        if reader.fieldnames is not None and _STEPS not in reader.fieldnames:
            return []  # before the first rollout, or of another logger
        found = []
        for row in reader:
            if row[_STEPS]:
                mean, seconds = (float(row[name]) if row.get(name) else None for name in (_RETURN, _SECONDS))
                numbers = {"timesteps_total": float(row[_STEPS]), "episode_return_mean": mean, "time_total_s": seconds}
                found.append(msgspec.convert(numbers, Row))
    except (ValueError, TypeError, csv.Error) as error:
        raise SavedPolicyError(f"{path}: line {reader.line_num} is damaged: {one_line(str(error))}") from error
    return found


def _read(path: Path, most: int = MOST_ROWS) -> str | None:
    """Return the text of a file, or None where there is none."""
    try:
        return read_file(path, most).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise SavedPolicyError(f"{path}: is no text: {one_line(str(error))}") from error


def _config(folder: Path) -> dict[str, Any]:
    text = _read(folder / CONFIG, MOST_JSON)
    if text is None:
        return {}
    try:
        config = json.loads(text)
        check_levels(config)
    except (ValueError, RecursionError) as error:
        raise SavedPolicyError(f"{folder / CONFIG}: is damaged: {one_line(str(error))}") from error
    if not isinstance(config, dict):
        raise SavedPolicyError(f"{folder / CONFIG}: is damaged: it is no table.")
    return config


def _engine(config: Mapping[str, Any], record: Mapping[str, Any], folder: Path) -> str | None:
    """Return who trained; folders of earlier versions show it by what their engine wrote."""
    if record:
        return _text(record.get("engine"))
    if "stable_baselines3" in config:
        return "sb3"
    if "name" in table_in(config, "algorithm"):
        return "rllib"
    return None


def _status(folder: Path) -> str:
    """Return the status of a run without a record."""
    if is_held(folder):
        return "running"
    return "finished" if (folder / POLICY).is_dir() else "unfinished"


def _started(record: Mapping[str, Any], folder: Path) -> float:
    with suppress(TypeError, ValueError, OverflowError):
        return _year_known(datetime.fromisoformat(record.get("started")).timestamp())  # type: ignore[arg-type]
    for name in _RUN:
        with suppress(OSError, ValueError, OverflowError):
            return _year_known((folder / name).lstat().st_mtime)
    return 0.0


def _year_known(seconds: float) -> float:
    """Return seconds since 1970 if they can be written as a date."""
    datetime.fromtimestamp(seconds, UTC)
    return seconds


def table_in(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the table of a name in a config, or an empty one."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
