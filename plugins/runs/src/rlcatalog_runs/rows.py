"""Rows of metrics: written as valid JSON, and taken back where a run goes on from before them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rlcatalog.errors import SavedPolicyError, reason
from rlcatalog_policy import read_file, write_file

#: The most bytes of a run's rows that are read.
MOST_ROWS = 1 << 29

_ROWS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def json_line(result: Mapping[str, Any]) -> str:
    """Return what an iteration reported as a line of valid JSON, its end included; NaN and infinities are null."""
    return json.dumps(_finite(result), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cut_rows(path: Path, column: str, after: int) -> None:
    """Take rows of later steps out of a file, and a last line that was not written to its end.

    Args:
        path: The file, `.jsonl` with a row of JSON on each line or `.csv` with the columns' names first; it may be
            missing.
        column: Which column holds a row's environment steps.
        after: The last steps that stay.

    Raises:
        SavedPolicyError: A line is damaged.
    """
    try:
        data = read_file(path, MOST_ROWS)
    except FileNotFoundError:
        return
    try:
        whole = data[: data.rfind(b"\n") + 1].decode().splitlines(keepends=True)  # a killed run may end within a line
        if path.suffix == ".csv":
            steps = _csv_steps(whole, column)
        else:
            steps = [msgspec.json.decode(_ROWS.decode(line)[column], type=float) for line in whole]
        kept = [line for line, done in zip(whole, steps, strict=True) if done <= after]
    except (ValueError, KeyError, RecursionError, csv.Error) as error:
        raise SavedPolicyError(
            f"{path}: a line of it is damaged ({reason(error)}), so the run cannot go on with it. Move the file away to"
            " go on with a new one."
        ) from error
    # A new file also where all rows stay: the former one may have a second name elsewhere.
    write_file(path.parent, path.name, "".join(kept).encode())


def _csv_steps(lines: list[str], column: str) -> list[float]:
    """Return the steps of each line; the first line, the columns' names, belongs to none and stays."""
    columns, *rows = list(csv.reader(lines)) or [[]]
    if any(len(row) != len(columns) for row in rows):
        raise ValueError("it has not as many cells as columns")
    return [float("-inf")][: len(lines)] + [float(row[columns.index(column)]) for row in rows]
