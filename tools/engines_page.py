"""Writes the tables of `docs/engines.md`, what works under which engine, from `docs/engines.toml`.

Run it after the data has changed: `python tools/engines_page.py`, or with `--check` to only say whether the page is up
to date. That each word has its test, `tests/engines/test_engines.py` says.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/engines.toml"
TARGET = ROOT / "docs/engines.md"
#: The table's halves: one of nine columns is too wide for any page.
HALVES = {
    "own": ("ppo", "single_file", "rllib", "rllib_dqn"),
    "sb3": ("sb3", "sb3_maskable", "sb3_recurrent", "sb3_off_policy"),
}


def cells(data: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return every cell that says something: what, engine, word, and the file and name of the test behind it."""
    found = []
    for row in data["rows"]:
        for engine in data["engines"]:
            for word, test in row.get(engine, {}).items():
                path, _, name = test.partition("::")
                found.append((row["what"], engine, word, path, name))
    return found


def table(data: dict[str, Any], engines: tuple[str, ...]) -> str:
    """Return the table of some engines."""
    said = {(what, engine): f'[{word}](../{path} "{name}")' for what, engine, word, path, name in cells(data)}
    rows = [
        ["", *(data["engines"][engine] for engine in engines)],
        ["---"] * (len(engines) + 1),
        *([row["what"], *(said.get((row["what"], engine), "") for engine in engines)] for row in data["rows"]),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    for name, engines in HALVES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        lines = table(data, engines)
        text, found = pattern.subn(lambda m, lines=lines: f"{m[1]}\n{lines}\n\n{m[2]}", text)
        if found != 1:
            raise SystemExit(f"{TARGET.name}: expected the markers <!-- {name} --> and <!-- /{name} --> once each.")
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    old = TARGET.read_text(encoding="utf-8")
    new = filled(old)
    if arguments == ["--check"]:
        if new != old:
            print("docs/engines.md is stale: run `make generate`.", file=sys.stderr)
        return int(new != old)
    TARGET.write_text(new, encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
