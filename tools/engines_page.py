"""Writes the tables of `docs/engines.md`, what works under which engine, from `docs/engines.toml`.

Run it after the data has changed: `python tools/engines_page.py`, or with `--check` to only say
whether the page is up to date. That each word has its test, `tests/engines/test_engines.py` says.
"""

from __future__ import annotations

import sys
import tomllib
from typing import Any

from generated import ROOT, fill, write

DATA = ROOT / "docs/engines.toml"
TARGET = ROOT / "docs/engines.md"
#: The table's halves: one of nine columns is too wide for any page.
HALVES = {
    "own": ("ppo", "single_file", "rllib", "rllib_dqn"),
    "sb3": ("sb3", "sb3_maskable", "sb3_recurrent", "sb3_off_policy"),
}


def cells(data: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return every cell that says something: what, engine, word, and the file and name of the test
    behind it.
    """
    found = []
    for row in data["rows"]:
        for engine in data["engines"]:
            for word, test in row.get(engine, {}).items():
                path, _, name = test.partition("::")
                found.append((row["what"], engine, word, path, name))
    return found


def table(data: dict[str, Any], engines: tuple[str, ...]) -> str:
    """Return the table of some engines."""
    said = {
        (what, engine): f'[{word}](../{path} "{name}")'
        for what, engine, word, path, name in cells(data)
    }
    rows = [
        ["", *(data["engines"][engine] for engine in engines)],
        ["---"] * (len(engines) + 1),
        *(
            [row["what"], *(said.get((row["what"], engine), "") for engine in engines)]
            for row in data["rows"]
        ),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return fill(TARGET, text, {name: table(data, engines) for name, engines in HALVES.items()})


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
