"""Checks of commands: what `rlcatalog NAME --help` does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

from rlcatalog_testing.contract import Part, check, require
from rlcatalog_testing.passes import framework_modules

#: Prints what became of asking a command for help: its exit status, its text, and which modules were imported.
_ASK = """
import contextlib, importlib, io, json, sys, traceback
import typer

said = io.StringIO()
try:
    module, _, attribute = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    app = typer.Typer(add_completion=False)
    app.command(sys.argv[2])(function)
    with contextlib.redirect_stdout(said):
        app(["--help"])
    status = 0
except SystemExit as error:
    status = error.code or 0
except BaseException:
    status = traceback.format_exc()
print(json.dumps({"status": status, "said": said.getvalue(), "modules": sorted(set(sys.modules) & set(sys.argv[3:]))}))
"""


@cache
def _ask_for_help(target: str, name: str) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "200"}
    ran = subprocess.run(
        [sys.executable, "-c", _ASK, target, name, *framework_modules()],
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
    )
    require(ran.returncode == 0 and bool(ran.stdout), f"asked for --help, the process ended: {ran.stderr[-500:]}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@check("command", hint="annotate parameters as typer takes them, and give the function a docstring")
def help_is_shown(part: Part) -> None:
    """`--help` ends well and says something."""
    found = _ask_for_help(part.component.declaration.targets["cli"], part.component.name)
    require(found["status"] == 0, f"--help ended with {found['status']}")
    require("Usage" in found["said"], f"--help printed no usage: {found['said'][:200]!r}")


@check("command", hint="import frameworks inside the function: `rlcatalog NAME --help` should answer at once")
def help_imports_no_framework(part: Part) -> None:
    """Whoever asks for help does not wait for a framework."""
    found = _ask_for_help(part.component.declaration.targets["cli"], part.component.name)
    require(not found["modules"], f"--help imports {', '.join(found['modules'])}")
