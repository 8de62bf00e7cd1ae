"""Generated files: the tools that generate them write them, or with `--check` say
which are stale.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def fill(page: Path, text: str, tables: Mapping[str, str]) -> str:
    """Return a page's text with new tables, each between the markers `<!-- name -->` and
    `<!-- /name -->`.

    Args:
        page: The page.
        text: Its text.
        tables: Name of the markers → lines between them.
    """
    for name, lines in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        text, found = pattern.subn(
            lambda match, lines=lines: f"{match[1]}\n{lines}\n\n{match[2]}", text
        )
        if found != 1:
            raise SystemExit(
                f"{page.name}: expected the markers <!-- {name} --> and <!-- /{name} --> once each."
            )
    return text


def table(*rows: tuple[str, ...]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *body])


def write(files: Mapping[Path, str], arguments: list[str]) -> int:
    """Write the files that differ from what is on disk, or with `--check` name them.

    Args:
        files: File → text.
        arguments: The command line's arguments.

    Returns:
        The exit status: 1 if a check found stale files.
    """
    stale = [
        path
        for path, new in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != new
    ]
    for path in stale:
        name = os.path.relpath(path, ROOT)
        if arguments == ["--check"]:
            print(f"{name} is stale: run `make generate`.", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
            print(f"wrote {name}")
    return int(arguments == ["--check"] and bool(stale))
