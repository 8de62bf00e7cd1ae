"""The command `port`."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rlcatalog.errors import ConfigError, one_line, output_errors

#: Seconds between two progress lines.
SECONDS = 2.0
_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


def port(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Python files, or folders of Python files."),
    ],
    write: Annotated[
        bool, typer.Option("--write", help="Change the files instead of printing the difference.")
    ] = False,
) -> None:
    """Rewrite code written for RLlib: its imports, gym's, and lines that TensorFlow 2, Keras 3 and
    NumPy 2 forbid.

    If code cannot be ported, it is listed with its line and the reason, and the exit status is 1.
    """
    from libcst import ParserSyntaxError

    from rlcatalog_compat.codemod import porter

    num_changed = 0
    num_failures = 0
    for path in with_progress(files(paths)):
        content = path.read_bytes()
        try:
            result = porter.port(content)
        except (ParserSyntaxError, SyntaxError, UnicodeError, ValueError) as error:
            num_failures += 1
            print(f"{path}: cannot be read as Python 3: {one_line(str(error))}")
            continue
        if result.content != content:
            num_changed += 1
            if write:
                with output_errors(path):
                    path.write_bytes(result.content)
            else:
                print(difference(path, content, result.content), end="")
        for note in result.notes:
            num_failures += 1
            print(f"{path}:{note.line}: {note.what}: {note.why}")
    action = "changed" if write else "to change; pass --write to change"
    print(
        f"{_count(num_changed, 'file')} {action}; {_count(num_failures, 'place')} could not be"
        " ported"
    )
    if num_failures:
        raise typer.Exit(1)


def _count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def files(paths: list[Path]) -> list[Path]:
    """Return the Python files among the paths and in their subfolders, skipping hidden folders and
    build folders.

    Raises:
        ConfigError: A path does not exist.
    """
    # A dict, because a file may be among the paths and in a folder among them.
    python_files: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise ConfigError(f"PATH: expected a file or folder, found nothing at {str(path)!r}.")
        if not path.is_dir():
            python_files[path] = None
            continue
        for file in sorted(path.rglob("*.py")):
            folders = file.relative_to(path).parts[:-1]
            if not any(_is_skipped(folder) for folder in folders):
                python_files[file] = None
    return list(python_files)


def _is_skipped(folder: str) -> bool:
    return folder in _SKIPPED or folder.startswith(".")


def with_progress(paths: list[Path]) -> Iterator[Path]:
    """Yield the files, and report progress on standard error every two seconds."""
    last_report = time.monotonic()
    for count, path in enumerate(paths):
        if time.monotonic() - last_report >= SECONDS:
            last_report = time.monotonic()
            print(f"read {count} of {len(paths)} files", file=sys.stderr)
        yield path


def difference(path: Path, old: bytes, new: bytes) -> str:
    """Return the unified diff between two versions of a file."""
    old_lines = _lines(old)
    new_lines = _lines(new)
    diff = ""
    for line in difflib.unified_diff(old_lines, new_lines, f"a/{path}", f"b/{path}"):
        diff += line
        if not line.endswith("\n"):
            diff += "\n\\ No newline at end of file\n"
    return diff


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines(keepends=True)
