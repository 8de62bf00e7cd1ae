"""Writes the tables of `docs/concepts/observations.md`: what a net reads of integers and images.

Run it after the cases in `tests/support` have changed: `python tools/observation_page.py`, or with
`--check` to only say whether the page is up to date. That each row is true,
`catalog/tests/test_integer_scaling.py` and `catalog/tests/test_image_layout.py` say.
"""

from __future__ import annotations

import sys

from config_table import table
from generated import ROOT, fill, write

sys.path.insert(0, str(ROOT / "tests/support"))

import layout_cases
import scaling_cases

TARGET = ROOT / "docs/concepts/observations.md"


def scaling_table() -> str:
    """Return the table of integers: their bounds, and what a net reads for them."""
    rows = []
    for case in scaling_cases.CASES:
        space = case.space
        bounds = f"{space.low.min():,} to {space.high.max():,}"
        net = f"{case.lowest:,} to {case.highest:,}"
        rows.append((case.data, f"`{space.dtype} {space.shape}`", bounds, net))
    return table(("observation", "Box", "its bounds", "what a net reads"), *rows)


def layout_table() -> str:
    """Return the table of images: their shapes, and the meaning of their axes."""
    rows = []
    for case in layout_cases.CASES:
        warns = "" if case.is_certain else "yes"
        rows.append((case.data, f"`{case.shape}`", case.axes, warns))
    return table(("image", "shape", "read as", "warning"), *rows)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    text = TARGET.read_text(encoding="utf-8")
    tables = {"scaling": scaling_table(), "layout": layout_table()}
    return write({TARGET: fill(TARGET, text, tables)}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
