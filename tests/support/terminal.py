"""A terminal in memory: commands print to it in colour, and it holds what a user would see."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import warnings
from unittest import mock

from command_line import IGNORED

from rlcatalog_cli import main

#: What moves the cursor or erases text, among what rich writes; colours are ignored.
_CONTROL = re.compile(r"\x1b\[(?P<number>\d*)(?P<command>[A-Za-z])|\x1b\[\?\d+[hl]|\r|\n")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def has_colours(self) -> bool:
        """Whether something was written in colour."""
        return re.search(r"\x1b\[[\d;]+m", self.getvalue()) is not None

    def screen(self) -> str:
        """Return what the terminal shows, without colours and without what was erased."""
        text = re.sub(r"\x1b\[[\d;]*m", "", self.getvalue())
        lines = [""]
        row = 0
        column = 0
        position = 0
        for control in _CONTROL.finditer(text):
            written = text[position : control.start()]
            line = lines[row].ljust(column)
            lines[row] = line[:column] + written + line[column + len(written) :]
            column += len(written)
            position = control.end()
            if control[0] == "\r":
                column = 0
            elif control[0] == "\n":
                row += 1
                column = 0
                if row == len(lines):
                    lines.append("")
            elif control["command"] == "A":
                row -= int(control["number"] or 1)
            elif control["command"] == "K":
                lines[row] = ""
        assert text[position:] == "", "the last line has no end"
        return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def show(*line: str, cwd: str | os.PathLike[str] = ".", columns: int = 100) -> Terminal:
    """Run `rlcatalog LINE` in a terminal, and return the terminal.

    Args:
        line: The arguments.
        cwd: The folder in which they are typed.
        columns: The terminal's width.
    """
    terminal = Terminal()
    environ = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "60"}
    with (
        mock.patch.dict(os.environ, environ),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(terminal),
        contextlib.redirect_stderr(terminal),
        warnings.catch_warnings(),
    ):
        os.environ.pop("NO_COLOR", None)
        warnings.resetwarnings()
        for category in IGNORED:
            warnings.simplefilter("ignore", category)
        with contextlib.suppress(SystemExit):
            main(line)
    return terminal
