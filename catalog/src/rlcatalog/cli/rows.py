"""Rows that a run has written: taken back where the run goes on from before them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from rlcatalog.errors import SavedPolicyError, reason
from rlcatalog.policy import write_file


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
    if not path.exists():
        return
    lines = path.read_bytes().decode("utf-8", errors="surrogateescape").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    steps = _csv_steps if path.suffix == ".csv" else _json_steps
    try:
        kept = [line for line, found in zip(whole, steps(whole, column), strict=True) if found <= after]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise SavedPolicyError(
            f"{path}: a line of it is damaged ({reason(error)}), so the run cannot go on with it. Move the file away to"
            " go on with a new one."
        ) from error
    if kept != lines:
        write_file(path.parent, path.name, "".join(kept).encode("utf-8", errors="surrogateescape"))


def _json_steps(lines: list[str], column: str) -> list[float]:
    return [float(json.loads(line)[column]) for line in lines]


def _csv_steps(lines: list[str], column: str) -> list[float]:
    """Return the steps of each line; the first line, the columns' names, belongs to none and stays."""
    columns, *rows = list(csv.reader(lines)) or [[]]
    if any(len(row) != len(columns) for row in rows):
        raise ValueError("it has not as many cells as columns")
    return [float("-inf")][: len(lines)] + [float(row[columns.index(column)]) for row in rows]
