"""Writes the tables of `docs/engines.md`: what works under which engine, from `docs/engines.toml`,
and what other libraries have, from `docs/other_libraries.toml`.

Run it after the data has changed: `python tools/engines_page.py`, or with `--check` to only say
whether the page is up to date. That each word has its test, `tests/engines/test_engines.py` says.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import generated
from generated import ROOT, fill, write

DATA = ROOT / "docs/engines.toml"
LIBRARIES = ROOT / "docs/other_libraries.toml"
TARGET = ROOT / "docs/engines.md"
#: The table's parts: one of all columns is too wide for any page.
PARTS = {
    "own": ("ppo", "single_file", "rllib", "rllib_dqn", "rllib_sac"),
    "simulators": ("rsl_rl", "skrl"),
    "sb3": ("sb3", "sb3_maskable", "sb3_recurrent", "sb3_dqn", "sb3_off_policy", "sb3_critics"),
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


def comparison(libraries: Sequence[Mapping[str, Any]], capability: str) -> str:
    """Return the table of what each library has for a capability, with the place of each fact."""
    rows = [("library", "what it has", "where to read it")]
    for library in libraries:
        fact = library[capability]
        name = f"{library['name']} {library['version']}".strip()
        rows.append((name, fact["text"], place_link(library["source"], fact["place"])))
    return generated.table(*rows)


def place_link(source: str, place: str) -> str:
    """Return a link to the place of a fact, whose text is the name of the file.

    Args:
        source: What the library's paths begin with; empty for pages of these docs.
        place: A path, or a complete link.
    """
    is_complete = place.startswith("https:")
    link = place if is_complete else source + place
    path, _, _line = place.partition("#")
    return f"[{path.rpartition('/')[2]}]({link})"


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    tables = {name: table(data, engines) for name, engines in PARTS.items()}
    others = tomllib.loads(LIBRARIES.read_text(encoding="utf-8"))
    for capability in others["capabilities"]:
        tables[capability] = comparison(others["libraries"], capability)
    return fill(TARGET, text, tables)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
