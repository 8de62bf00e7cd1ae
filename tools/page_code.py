"""Formats the Python of pages: `python tools/page_code.py`; `--check` only names the pages.

ruff formats Markdown only in its preview style, which differs from the style of the code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Columns of code on a page; `examples/ruff.toml` has the same number.
WIDTH = 88
#: Written by other tools.
GENERATED = ("docs/_build", "docs/reference", "docs/examples")
_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Return the pages written by hand."""
    tracked = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True)
    return [ROOT / name for name in tracked.split() if not name.startswith(GENERATED)]


def format_code(code: str) -> str:
    """Return code in ruff's format; code that is not a whole program stays as it is."""
    ruff = Path(sys.executable).with_name("ruff")
    run = subprocess.run(
        [ruff, "format", "--line-length", str(WIDTH), "--stdin-filename", "page.py", "-"],
        input=code,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return code if run.returncode else run.stdout


def format_page(text: str) -> str:
    """Return a page with its Python blocks formatted."""

    def replace(match: re.Match[str]) -> str:
        indent, code = match.groups()
        if indent:  # inside a list, where ruff does not know the indentation
            return match.group()
        return f"```python\n{format_code(code)}```"

    return _BLOCK.sub(replace, text)


def main(arguments: list[str]) -> int:
    """Format the pages, or with `--check` name those that would change."""
    changed = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        formatted = format_page(text)
        if formatted == text:
            continue
        changed.append(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.write_text(formatted, encoding="utf-8")
    for path in changed:
        print(f"{path}: the Python code is not in ruff's format with {WIDTH} columns.")
    if changed and "--check" in arguments:
        print("Run `make fix`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
