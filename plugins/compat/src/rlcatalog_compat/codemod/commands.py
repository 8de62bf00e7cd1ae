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

    from rlcatalog_compat.codemod.porter import port as ported

    left = changed = 0
    for path in with_progress(files(paths)):
        old = path.read_bytes()
        try:
            found = ported(old)
        except (ParserSyntaxError, SyntaxError, UnicodeError, ValueError) as error:
            left += 1
            print(f"{path}: cannot be read as Python 3: {one_line(str(error))}")
            continue
        if found.content != old:
            changed += 1
            if write:
                with output_errors(path):
                    path.write_bytes(found.content)
            else:
                print(difference(path, old, found.content), end="")
        for note in found.notes:
            left += 1
            print(f"{path}:{note.line}: {note.what}: {note.why}")
    done = "changed" if write else "to change; pass --write to change"
    print(
        f"{changed} file{'s' * (changed != 1)} {done}; {left} place{'s' * (left != 1)} could not"
        " be ported"
    )
    if left:
        raise typer.Exit(1)


def files(paths: list[Path]) -> list[Path]:
    """Return the Python files among the paths and in their subfolders, skipping hidden folders and
    build folders.

    Raises:
        ConfigError: A path does not exist.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"PATH: expected a file or folder, found nothing at {str(path)!r}.")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            folders = file.relative_to(path).parts[:-1]
            if not any(folder in _SKIPPED or folder.startswith(".") for folder in folders):
                found.append(file)
    return list(dict.fromkeys(found))


def with_progress(paths: list[Path]) -> Iterator[Path]:
    """Yield the files, and report progress on standard error every two seconds."""
    start = time.monotonic()
    for count, path in enumerate(paths):
        if time.monotonic() - start >= SECONDS:
            start = time.monotonic()
            print(f"read {count} of {len(paths)} files", file=sys.stderr)
        yield path


def difference(path: Path, old: bytes, new: bytes) -> str:
    """Return the unified diff between two versions of a file."""
    before, after = (
        text.decode("utf-8", "replace").splitlines(keepends=True) for text in (old, new)
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    )
