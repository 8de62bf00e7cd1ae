"""The command line in a process of its own, beside plugins that stand in folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_beside_plugins(
    folders: Sequence[Path], *arguments: str, python_flags: Sequence[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m rlcatalog_cli ARGUMENTS` beside the plugins of some folders and the installed
    ones.

    Args:
        folders: The folders.
        arguments: The command line.
        python_flags: Options of the interpreter.
        environ: Environment variables. Others that begin with `RLCATALOG_` or `PYTHON` are not
            passed on.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RLCATALOG_", "PYTHON"))
    }
    clean |= {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, *python_flags, "-m", "rlcatalog_cli", *arguments],
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
