"""A run's record, `run.json`, with its settings, times and status; and metrics rows as JSON.

The record is written when the run begins, and completed when it ends. A process that is killed
cannot complete its record, which then still says "running". Its folder tells: the operating system
has released the lock on it.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rlcatalog.errors import SavedPolicyError, one_line
from rlcatalog_policy import read_json, write_file
from rlcatalog_runs.locks import FolderLock
from rlcatalog_runs.surroundings import hardware, revision, versions

RECORD = "run.json"
# Status of a run that has not ended, and statuses of runs that have ended.
RUNNING = "running"
FINISHED = "finished"
INTERRUPTED = "interrupted"
FAILED = "failed"
DIED = "died"
#: Maximum size of a run's metrics that is read, in bytes.
MAX_BYTES_OF_ROWS = 1 << 29


class _Record(msgspec.Struct):
    """Fields that are read from a record."""

    status: str
    started: str | None = None
    seconds: float | None = None
    error: str | None = None
    engine: str | None = None
    resumed: list[dict[str, Any]] = []


@contextmanager
def record_run(
    folder: Path, *, engine: str | None = None, packages: Sequence[str] = (), resumed: bool = False
) -> Iterator[None]:
    """Write a run's record, `run.json`, at the beginning and at the end; use it inside
    `run_folder`.

    Args:
        folder: The run's folder.
        engine: The engine, such as `"sb3"`; None for rlcatalog's own.
        packages: Additional modules whose versions are recorded if they are imported.
        resumed: Whether the run is resumed; if so, the existing record is kept, and this session is
            added to it.

    Raises:
        OSError: The record cannot be written.
    """
    start = time.monotonic()
    record_before: dict[str, Any] = {}
    if resumed:
        with suppress(SavedPolicyError):  # the record is damaged
            record_before = read_record(folder) or {}
    now = _now()
    record: dict[str, Any] = {
        "status": RUNNING,
        "started": record_before.get("started", now),
        "ended": None,
        "seconds": None,
        "error": None,
        "engine": engine,
        "command": list(sys.argv),
        "versions": versions(packages),
        "git": revision(),
        "hardware": hardware(),
    }
    if resumed:
        record["resumed"] = [
            *record_before.get("resumed", []),
            {"started": now, "command": list(sys.argv)},
        ]
    _write(folder, record)

    def end(status: str, error: BaseException | None = None) -> None:
        seconds_before = record_before.get("seconds") or 0.0
        record["status"] = status
        record["ended"] = _now()
        record["seconds"] = round(seconds_before + time.monotonic() - start, 3)
        record["error"] = None if error is None else _first_line(error)
        record["versions"] |= versions(packages)  # includes modules imported in the meantime
        # Accelerators that a framework has started in the meantime.
        record["hardware"]["gpus"] = hardware()["gpus"]
        _write(folder, record)

    try:
        yield
    except Exception as error:
        with suppress(OSError):  # such as a full disk; the run's error is more important
            end(FAILED, error)
        raise
    except BaseException as error:
        with suppress(OSError):
            end(INTERRUPTED, error)
        raise
    end(FINISHED)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return a run's record, or None if there is none.

    `status` is `"died"` if the record says `"running"` and no process has locked the folder.

    Raises:
        SavedPolicyError: The record is damaged.
    """
    try:
        record: dict[str, Any] = read_json(folder / RECORD)
        msgspec.convert(record, _Record)  # only checks the record
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SavedPolicyError(
            f"{folder / RECORD}: not a record of a run: {one_line(str(error))}"
        ) from error
    if record["status"] == RUNNING and not FolderLock(folder).is_held():
        record["status"] = DIED
    return record


def _write(folder: Path, record: dict[str, Any]) -> None:
    text = json.dumps(_finite(record), allow_nan=False, indent=2) + "\n"
    write_file(folder, RECORD, text.encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_line(error: BaseException) -> str:
    """Return an error's class and the first line of its message."""
    name = type(error).__name__
    lines = str(error).splitlines()
    return one_line(f"{name}: {lines[0]}") if lines else name


def json_line(result: Mapping[str, Any]) -> str:
    """Return a metrics row as a line of valid JSON with a newline; NaN and infinity become null."""
    return json.dumps(_finite(result), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Return a structure in which NaN and infinity are replaced by None."""
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
