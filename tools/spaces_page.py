"""Writes into `docs/spaces.md` what rlcatalog chooses for the spaces there: a table and a picture
for each section, from the explanation of the policy that the code of the section builds.

Run it after the code of the page, a part or the reason for a choice has changed: `python
tools/spaces_page.py`, or with `--check` to only say whether the page is up to date.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from generated import ROOT, fill, table, write
from svg import with_dark_colours

sys.path.insert(0, str(ROOT / "tests/support"))

import pages

if TYPE_CHECKING:
    from rlcatalog import Explanation

TARGET = ROOT / "docs/spaces.md"
PICTURES = ROOT / "docs/pictures/spaces"
#: A section: its title, and the text up to the next one.
_SECTION = re.compile(r"^## (?P<title>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.S | re.M)
#: Slot of an explanation → what the table calls it.
_SLOTS = {
    "preprocessor": "preprocessor",
    "filter": "filter",
    "model": "model",
    "memory": "memory",
    "head": "head",
    "action_dist": "distribution",
}


def sections(page: str) -> dict[str, str]:
    """Return the sections of the page that have code: anchor → text."""
    texts = {}
    for match in _SECTION.finditer(page):
        if pages.blocks(match["text"]):
            texts[match["title"].lower().replace(" ", "-")] = match["text"]
    return texts


def explain(section: str, anchor: str) -> Explanation:
    """Run the code of a section, and return the explanation of the policy that it builds."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for _line, code, _output in pages.blocks(section):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, f"{TARGET.name}#{anchor}", "exec"), namespace)
    explanation: Explanation = namespace["policy"].explain()
    return explanation


def choices(explanation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a table calls each slot that has a part, and the choice in this slot."""
    critic = explanation.get("critic", {})
    for slot, name in _SLOTS.items():
        choice = explanation[slot]
        if slot == "action_dist" and critic:
            yield "critic's model", critic["model"]
        if choice["chosen"] is not None:
            yield name, choice
    for part in explanation["action_parts"]:
        yield f"`{part['path']}`", part


def table_of_choices(explanation: dict[str, Any]) -> str:
    """Return a table with the part in each slot, and the reason for it."""
    rows = []
    for name, choice in choices(explanation):
        rows.append((name, f"`{choice['chosen']}`", choice["reason"]))
    return table(("slot", "part", "why"), *rows)


def main(arguments: list[str]) -> int:
    """Write the page and its pictures, or with `--check` say whether they are up to date."""
    page = TARGET.read_text(encoding="utf-8")
    tables = {}
    files = {}
    for anchor, section in sections(page).items():
        explanation = explain(section, anchor)
        tables[anchor] = table_of_choices(explanation.as_dict())
        # MiniGrid's space of missions contains a function, which is shown with its address.
        picture = with_dark_colours(explanation.svg())
        files[PICTURES / f"{anchor}.svg"] = picture + "\n"
    files[TARGET] = fill(TARGET, page, tables)
    return write(files, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
