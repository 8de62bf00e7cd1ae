"""Writes the table of `docs/howto/mask_actions.md` that says where an action mask is found, from
the cases in `docs/mask_places.toml`.

Run it after a case has changed: `python tools/mask_table.py`, or with `--check` to only say whether
the page is up to date. The tests run the same cases.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from typing import Any

from config_table import table
from generated import ROOT, fill, write

TARGET = ROOT / "docs/howto/mask_actions.md"
DATA = ROOT / "docs/mask_places.toml"
HEAD = (
    "`action_mask_key`",
    "observation",
    '`info["action_mask"]`',
    "`action_masks()`",
    "allowed actions",
    "why",
)


def cases() -> list[dict[str, Any]]:
    """Return the cases."""
    found: list[dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))["cases"]
    return found


def row(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a case's row of the table."""
    key = case.get("key", "action_mask")
    written = "`None`" if key == "None" else f'`"{key}"`'
    masks = [cell(case.get(place)) for place in ("observation", "info", "method", "used")]
    return written, *masks, case["why"]


def cell(mask: list[int] | None) -> str:
    """Return a mask as it stands in a cell; a dash where there is none."""
    return "—" if mask is None else f"`{mask}`"


def filled(text: str) -> str:
    """Return the page with its table written anew."""
    return fill(TARGET, text, {"mask places": table(HEAD, *map(row, cases()))})


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
