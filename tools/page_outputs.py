"""Writes what the Python in pages prints into the `output` blocks behind it:
`python tools/page_outputs.py PAGE...`.

`tests/docs/test_docs.py` says when one is stale.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))

import pages  # noqa: E402
import warm  # noqa: E402


def main(paths: list[str]) -> int:
    """Run the pages and write those whose output has changed."""
    for name in paths:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            new = pages.filled(text, pages.printed(text, path.name, Path(folder), warm.run))
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
