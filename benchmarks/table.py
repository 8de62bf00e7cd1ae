"""The stored ratios, and what became of them: worse, better, as before, new or gone.

The file holds for each part when, on which processor and with which versions it was measured, and
for each case the median ratio with its spread, lowest to highest. Ratios depend less on the machine
than times. Still, the same code had other ratios on an Intel Xeon than on an AMD EPYC in 65 of 223
cases, so a comparison with a table of another processor says which one it was. Measure both
versions of the code on one processor then.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.page import processor

STORED = Path(__file__).parent / "ratios.json"
#: Smaller changes of a median are those of two processes, not of the code.
LEAST = 0.05

_LIBRARIES = ("rlcatalog", "numpy", "gymnasium", "torch", "tensorflow", "stable-baselines3", "ray")

#: Part → its date, versions and cases.
Table = dict[str, dict[str, Any]]


@dataclass
class Verdicts:
    """Lines for the reader by verdict; the keys of `worse` are (part, case)."""

    worse: dict[tuple[str, str], str] = field(default_factory=dict)
    better: list[str] = field(default_factory=list)
    same: int = 0
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return what there is to say."""
        lists = {
            "worse": list(self.worse.values()),
            "better": self.better,
            "new": self.new,
            "gone": self.gone,
        }
        lines = [f"{verdict}: {line}" for verdict, said in lists.items() for line in said]
        counts = f"{len(self.worse)} worse, {len(self.better)} better, {self.same} as before"
        return "\n".join([*lines, f"{counts}, {len(self.new)} new, {len(self.gone)} gone"])


def section(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a part's entry of the table, of today and of this environment."""
    versions = {"processor": processor(), "python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {"date": datetime.date.today().isoformat(), "versions": versions, "cases": dict(cases)}


def read(path: Path) -> Table:
    """Read a table.

    Raises:
        SystemExit: There is none; the message says how one is made.
    """
    try:
        table: Table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(
            f"There is no {path}: `make bench BENCH_ARGS=--save` on an idle machine writes one."
        ) from None
    return table


def write(path: Path, table: Table) -> None:
    """Write a table."""
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def verdict(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return "worse", "better" or "same".

    A ratio has changed when each median lies outside the other's spread, by at least `LEAST`.
    """
    inside = before["spread"][0] <= now["ratio"] <= before["spread"][1]
    inside |= now["spread"][0] <= before["ratio"] <= now["spread"][1]
    if inside or abs(now["ratio"] - before["ratio"]) < LEAST * abs(before["ratio"]):
        return "same"
    return (
        "better" if (now["ratio"] < before["ratio"]) == (before["better"] == "lower") else "worse"
    )


def compare(stored: Table, measured: Table, names: Iterable[str] = ()) -> Verdicts:
    """Compare the measured parts with the stored ones.

    Args:
        stored: The table.
        measured: What was measured now.
        names: Parts of names that cases were chosen by; other cases are not missed.
    """
    names, found = list(names), Verdicts()
    for part, entry in measured.items():
        before, now = stored.get(part, {}).get("cases", {}), entry["cases"]
        for name, figure in now.items():
            if name not in before:
                found.new.append(f"{part}: {name}: {_shown(figure)}")
                continue
            line = f"{part}: {name}: {_shown(figure)}, was {_shown(before[name])}"
            said = verdict(before[name], figure)
            if said == "worse":
                found.worse[part, name] = line
            elif said == "better":
                found.better.append(line)
            else:
                found.same += 1
        chosen = [name for name in before if not names or any(text in name for text in names)]
        found.gone += [f"{part}: {name}" for name in chosen if name not in now]
    return found


def other_versions(stored: Table, measured: Table) -> list[str]:
    """Return a line for each part whose stored ratios are of other versions."""
    lines = []
    for part, entry in measured.items():
        before = stored.get(part, {}).get("versions", {})
        differ = [
            f"{name} {before[name]}"
            for name, here in entry["versions"].items()
            if before.get(name, here) != here
        ]
        if differ:
            lines.append(f"{part}: the table was made with {', '.join(differ)}")
    return lines


def _shown(figure: Mapping[str, Any]) -> str:
    low, high = figure["spread"]
    return f"{figure['ratio']:.3g} ({low:.3g} to {high:.3g})"
