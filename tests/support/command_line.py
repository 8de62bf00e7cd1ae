"""The command line in this process: how a line ends and what it prints, without the start of a
process of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import warnings
from subprocess import CompletedProcess
from unittest import mock

from gymnasium.envs.registration import registry
from typer.testing import CliRunner

from rlcatalog_cli import main
from rlcatalog_cli.app import make_app

#: What Python ignores in a program that asks for nothing else.
IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def rlcatalog(
    *line: str, cwd: str | os.PathLike[str] = ".", **environ: str
) -> CompletedProcess[str]:
    """Run `rlcatalog LINE` and return its exit status and what it printed; an error it does not
    report goes through.

    What a line imports and registers stays; see `forget`.

    Args:
        line: The arguments.
        cwd: The folder in which they are typed.
        environ: Environment variables to be added.
    """
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code = None
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "200", **environ}),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        for category in IGNORED:
            warnings.simplefilter("ignore", category)
        try:
            main(line)
        except SystemExit as end:
            code = end.code
    printed, reported = (stream.buffer.getvalue().decode() for stream in (out, err))
    return CompletedProcess(line, code or 0, printed, reported)


def run_command(line: str):
    """Run `rlcatalog LINE`, and return its exit code and output; errors are raised."""
    arguments = shlex.split(line)
    return CliRunner().invoke(make_app(arguments), arguments, catch_exceptions=False)


def forget(module: str) -> None:
    """Forget a module and the environments it registered, as a new process would know nothing of
    them.
    """
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{module}.")]:
        del sys.modules[name]
    for name in [
        name for name, spec in registry.items() if str(spec.entry_point).startswith(f"{module}.")
    ]:
        del registry[name]
