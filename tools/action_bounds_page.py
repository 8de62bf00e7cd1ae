"""Writes the table of `docs/concepts/actions.md`: what raw actions become between bounds.

Run it after `tests/spaces/action_bounds.toml` has changed: `python tools/action_bounds_page.py`, or
with `--check` to only say whether the page is up to date. The same file is the test of the rule.
"""

from __future__ import annotations

import sys
import tomllib

from config_table import table
from generated import ROOT, fill, write

CASES = ROOT / "tests/spaces/action_bounds.toml"
TARGET = ROOT / "docs/concepts/actions.md"
#: Raw actions, in the order of a case's `actions`.
RAW = (-1, 0, 1, 3)


def bounds_table() -> str:
    """Return the table, with a row for each case."""
    head = ("bounds", "`action_bounds`", *(f"raw {raw}" for raw in RAW), "warning")
    rows = []
    for case in tomllib.loads(CASES.read_text(encoding="utf-8"))["case"]:
        bounds = f"[{_number(case['low'])}, {_number(case['high'])}]"
        actions = map(_number, case["actions"])
        rows.append((bounds, f'`"{case["action_bounds"]}"`', *actions, case["warning"] or "—"))
    return table(head, *rows)


def _number(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    text = TARGET.read_text(encoding="utf-8")
    return write({TARGET: fill(TARGET, text, {"action bounds": bounds_table()})}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
