"""Writes the code in `docs/plugins.md`: each titled block is a file that the page's `rlcatalog new`
commands make.

Run it after a template was changed: `python tools/plugins_page.py`, or with `--check` to only say
whether it is up to date.
"""

from __future__ import annotations

import re
import sys

from generated import ROOT, write

from rlcatalog_testing.scaffold import import_name, package_files

TARGET = ROOT / "docs/plugins.md"
_COMMAND = re.compile(
    r"rlcatalog new (\S+) ([a-z][\w-]*)(?: --with ([\w,-]+))?(?: --frameworks ([\w,]+))?"
)
_BLOCK = re.compile(r"^`(src/(\w+)/[\w./]+)`\n\n```python\n.*?^```$", re.S | re.M)


def packages(text: str) -> dict[str, dict[str, str]]:
    """Return import name → files of each package that the page begins."""
    files = {}
    for kind, name, contents, frameworks in _COMMAND.findall(text):
        files[import_name(name)] = package_files(
            kind,
            name,
            frameworks.split(",") if frameworks else None,
            contents.split(",") if contents else [],
        )
    return files


def filled(text: str) -> str:
    """Return the page with its blocks written anew."""
    made = packages(text)
    return _BLOCK.sub(lambda m: f"`{m[1]}`\n\n```python\n{made[m[2]][m[1]]}```", text)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write({TARGET: filled(TARGET.read_text(encoding="utf-8"))}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
