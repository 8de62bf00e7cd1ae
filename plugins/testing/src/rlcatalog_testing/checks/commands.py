"""Checks for commands, which run `rlcatalog NAME --help` in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial

from rlcatalog_testing.contract import Subject, check, require
from rlcatalog_testing.passes import framework_modules, run_apart

#: Program that prints a command's help, and then which modules were imported.
_ASK = """
import importlib, sys
import typer

try:
    module, _, attribute = sys.argv[1].partition(":")
    app = typer.Typer(add_completion=False)
    app.command(sys.argv[2])(getattr(importlib.import_module(module), attribute))
    app(["--help"])
finally:
    print("imported:", *(name for name in sys.argv[3:] if name in sys.modules))
"""


def _ask_for_help(subject: Subject) -> Iterator[subprocess.CompletedProcess[str]]:
    yield run_apart(
        _ASK,
        subject.part.declaration.targets["cli"],
        subject.part.name,
        *framework_modules(),
    )


#: Checks for commands, with the process that printed the help.
check_help = partial(check, "command", each=_ask_for_help)


@check_help(hint="annotate parameters as typer expects, and give the function a docstring")
def help_is_shown(process: subprocess.CompletedProcess[str]) -> None:
    """`--help` prints the usage and exits with status 0."""
    reason = process.stderr[-2000:] or process.returncode
    require(process.returncode == 0, f"--help failed with {reason}")
    require("Usage" in process.stdout, f"--help printed no usage: {process.stdout[:200]!r}")


@check_help(
    hint="import frameworks inside the function: `rlcatalog NAME --help` should respond at once"
)
def help_imports_no_framework(process: subprocess.CompletedProcess[str]) -> None:
    """`--help` does not import a framework."""
    _, _, names = process.stdout.rpartition("imported:")
    imported = names.split()
    require(not imported, f"--help imports {', '.join(imported)}")
