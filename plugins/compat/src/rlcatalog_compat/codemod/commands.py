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
    """Rewrite code written for RLlib: its imports, gym's imports and environments, and lines that
    TensorFlow 2, Keras 3 and NumPy 2 forbid.

    The report at the end lists what runs now, what a person must change or look at, with file and
    line, and the next command. If code could not be ported, the exit status is 1.
    """
    from libcst import ParserSyntaxError

    from rlcatalog_compat.codemod import porter
    from rlcatalog_compat.codemod.report import FileReport, report

    reports = []
    for path in with_progress(files(paths)):
        content = path.read_bytes()
        try:
            result = porter.port(content)
        except (ParserSyntaxError, SyntaxError, UnicodeError, ValueError) as error:
            reports.append(FileReport(path, syntax_error=one_line(str(error))))
            continue
        is_changed = result.content != content
        if is_changed and write:
            with output_errors(path):
                path.write_bytes(result.content)
        elif is_changed:
            print(difference(path, content, result.content))
        reports.append(
            FileReport(
                path,
                is_changed,
                parts=result.parts,
                notes=result.notes,
                checks=result.checks,
                environments=result.environments,
            )
        )
    for line in report(reports, paths, written=write):
        print(line)
    if any(file.needs_hand for file in reports):
        raise typer.Exit(1)


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
