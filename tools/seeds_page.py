"""Writes the tables of `docs/howto/reproduce_a_run.md`, which seed goes where, from
`docs/seed_streams.toml`.

Run it after the data has changed: `python tools/seeds_page.py`, or with `--check` to only say
whether the page is up to date. That each row is true, `plugins/runs/tests/test_seeds.py` and
`tests/engines/test_seed_streams.py` say.
"""

from __future__ import annotations

import sys
import tomllib
from typing import Any

from config_table import table
from generated import ROOT, fill, write

DATA = ROOT / "docs/seed_streams.toml"
TARGET = ROOT / "docs/howto/reproduce_a_run.md"


def read_data() -> dict[str, Any]:
    """Return the streams and their uses."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def stream_table(data: dict[str, Any]) -> str:
    """Return the table of streams, in their order."""
    rows = []
    for number, stream in enumerate(data["streams"]):
        values = [f"`{value}`" for value in stream["values"]]
        rows.append((str(number), stream["name"], stream["seeds"], stream["child"], *values))
    head = ("stream", "name", "what it seeds", "child", "child 0, seed 0", "child 0, seed 1")
    return table(head, *rows)


def use_table(data: dict[str, Any]) -> str:
    """Return the table of what draws from which stream."""
    rows = [(use["call"], use["seed"], use["stream"]) for use in data["uses"]]
    return table(("call", "seed", "stream"), *rows)


def filled(text: str) -> str:
    """Return the page with its tables written anew, each between its two markers."""
    data = read_data()
    return fill(TARGET, text, {"streams": stream_table(data), "uses": use_table(data)})


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
