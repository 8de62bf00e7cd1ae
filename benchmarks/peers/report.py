"""The table as it is stored and as the pages show it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.peers import work

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "peers.json"
BEGIN = "<!-- written by `make peers PEERS_ARGS=--save`: begin -->"
#: The rows that the start page shows.
SHORT = ("act 1", "train", "ppo 8", "memory")
#: Below this ratio a library is faster, or smaller.
EQUAL = 0.995
#: No such work in this library.
NONE = "–"

#: Library → what was measured of one piece of work, round by round; None where the library has no
#: such thing.
Rounds = Mapping[str, Sequence[float] | None]


def entry(rounds: Rounds) -> dict[str, Any]:
    """Return what is kept of a row: lowest, median and highest of the rounds, and of the ratios
    within a round.

    Args:
        rounds: Seconds or bytes; `"ours"` is what the others are compared with.
    """
    ours, kept = rounds["ours"], {}
    assert ours is not None
    for library, values in rounds.items():
        if values is not None:
            kept[library] = {"value": _spread(values)}
            if library != "ours":
                kept[library]["ratio"] = _spread([a / b for a, b in zip(values, ours, strict=True)])
    return kept


def _spread(values: Sequence[float]) -> list[float]:
    return [
        float(f"{value:.4g}") for value in (min(values), statistics.median(values), max(values))
    ]


def table(stored: Mapping[str, Any], names: Iterable[str] = work.WORK) -> str:
    """Return the rows as Markdown: our figure, and the median ratio of each other library."""
    libraries = [library for library in work.LIBRARIES if library in stored["libraries"]]
    lines = [
        "| | " + " | ".join(work.LIBRARIES[library] for library in libraries) + " |",
        "|---|" + "---:|" * len(libraries),
    ]
    for name in names:
        if row := stored["rows"].get(name):
            cells = (_cell(name, library, row.get(library)) for library in libraries)
            lines.append(f"| {work.ALL_WORK[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, library: str, kept: Mapping[str, Any] | None) -> str:
    if kept is None:
        return NONE
    return _figure(name, kept["value"][1]) if library == "ours" else times(kept["ratio"][1])


def _figure(name: str, value: float) -> str:
    if name == "memory":
        return f"{value / 2**20:.0f} MiB"
    if name.startswith(("ppo", "envpool")):
        return f"{1 / value:,.0f} steps/s"
    return f"{value * 1e6:.0f} µs" if value < 1e-3 else f"{value * 1e3:.1f} ms"


def times(ratio: float) -> str:
    """Return a ratio for the reader; a library that is faster has one below 1."""
    return (
        f"{ratio:.2f} ×"
        if ratio < EQUAL
        else f"{ratio:.1f} ×"
        if ratio < 9.95
        else f"{ratio:.0f} ×"
    )


def faster(stored: Mapping[str, Any], names: Iterable[str] = work.WORK) -> str:
    """Return a sentence that names where other libraries are ahead."""
    names, ahead = list(names), []
    for library in work.LIBRARIES:
        ratios = {
            name: stored["rows"].get(name, {}).get(library, {}).get("ratio", (0, 9, 0))[1]
            for name in names
        }
        if rows := [
            f"{work.ALL_WORK[name]}, {times(ratio)}"
            for name, ratio in ratios.items()
            if ratio < EQUAL
        ]:
            ahead.append(f"{work.LIBRARIES[library]} ({'; '.join(rows)})")
    if not ahead:
        return "No library is ahead of rlcatalog in these rows."
    return f"Ahead of rlcatalog: {', '.join(ahead)}."


def texts(stored: Mapping[str, Any]) -> dict[Path, str]:
    """Return page → what its marked region holds."""
    versions = ", ".join(f"{name} {version}" for name, version in stored["versions"].items())
    where = f"{stored['date']}; {stored['machine']}; rounds: {stored['rounds']}; {versions}."
    return {
        ROOT / "docs" / "speed.md": f"{where}\n\n{table(stored)}\n\n{faster(stored)}",
        ROOT / "README.md": f"{table(stored, SHORT)}\n\n{faster(stored, SHORT)}",
    }


def write(stored: Mapping[str, Any]) -> None:
    """Write the table into the pages."""
    for path, text in texts(stored).items():
        path.write_text(
            page.replaced(path.read_text(encoding="utf-8"), BEGIN, text), encoding="utf-8"
        )
