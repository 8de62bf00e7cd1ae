"""Writes the tables of `docs/environments.md` from `docs/environments.json`, the results of the
last `make environments`.

Run `python tools/environments_page.py` after the results have changed, or with `--check` to only
say whether the page is up to date.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from generated import ROOT, fill, table, write

DATA = ROOT / "docs/environments.json"
TARGET = ROOT / "docs/environments.md"
#: The results of an environment, with the words that the summary counts them by.
COUNTED = {
    "works": "work",
    "fails": "fail",
    "unplayed": "do not run without rlcatalog either",
    "uninstalled": "cannot be installed",
}
#: Longest error that the table shows.
LONGEST = 160


def result(row: dict[str, Any]) -> str:
    """Return an environment's result, a key of `COUNTED`.

    Args:
        row: What `make environments` recorded about it: `failed` is the step that failed, or None.
    """
    if row["failed"] is None:
        return "works"
    if row["failed"] == "install":
        return "uninstalled"
    if row["failed"] == "play":
        return "unplayed"
    return "fails"


def words(row: dict[str, Any]) -> str:
    """Return an environment's result in words."""
    outcome = result(row)
    if outcome == "works":
        return "works"
    error = cell(row["error"])
    if outcome == "uninstalled":
        return f"cannot be installed: {error}"
    if outcome == "unplayed":
        return f"does not run without rlcatalog either: {error}"
    return f"fails at {row['failed']}: {error}"


def cell(text: str) -> str:
    """Return a text that a table's cell can show as it is: short, and without Markdown."""
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    quoted = text.replace("`", "'")
    return f"`{quoted}`"


def summary(rows: list[dict[str, Any]]) -> str:
    """Return a sentence that counts the results."""
    outcomes = [result(row) for row in rows]
    counts = [
        f"{outcomes.count(outcome)} {phrase}"
        for outcome, phrase in COUNTED.items()
        if outcome in outcomes
    ]
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    packages = len({row["package"] for row in rows})
    return (
        f"{len(rows)} environments of {packages} packages, tried {when} with Python"
        f" {', '.join(sorted({row['python'] for row in rows}))}: {', '.join(counts)}."
    )


def result_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of environments."""
    lines = []
    for row in rows:
        parts = [row[name] for name in ("model", "distribution") if name in row]
        name = f"`{row['name']}`" if row["name"] == row.get("id") else row["name"]
        lines.append(
            (f"{row['package']} {row['version']}", name, row["group"], ", ".join(parts), words(row))
        )
    head = ("package", "environment", "group", "model, distribution", "result")
    return table(head, *sorted(lines, key=lambda line: line[0].lower()))


def version_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of what each group that could be installed has."""
    shown = ("gymnasium", "numpy", "torch")
    groups = {row["group"]: row for row in rows if "torch" in row}
    lines = [(group, *(row[name] for name in shown)) for group, row in sorted(groups.items())]
    return table(("group", *shown), *lines)


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    rows = json.loads(DATA.read_text(encoding="utf-8"))
    tables = {
        "results": f"{summary(rows)}\n\n{result_table(rows)}",
        "versions": version_table(rows),
    }
    return fill(TARGET, text, tables)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
