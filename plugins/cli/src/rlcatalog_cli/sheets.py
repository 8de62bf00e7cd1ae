"""Sheets in the terminal: as wide as the terminal, and in colour."""

from __future__ import annotations

import shutil
import sys

from rich.console import Console
from rich.text import Text

from rlcatalog.internals import Role, Sheet, SheetLine

#: The width of what is written to a file or a pipe, in characters.
DEFAULT_WIDTH = 100

_STYLES = {Role.TITLE: "bold", Role.HEADING: "bold cyan", Role.HEADER: "dim", Role.ROW: ""}
#: The style of what a row begins with.
_NAME_STYLE = "bold"
#: The style of a plugin's status, with which its row ends.
_STATUS_STYLES = {
    "loaded": "green",
    "disabled": "yellow",
    "incompatible": "red",
    "failed": "red",
}


def output_width() -> int:
    """Return the width of the terminal, or of the environment variable `COLUMNS`; otherwise 100."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def print_sheet(sheet: Sheet) -> None:
    """Print a sheet to standard output: in colour if it is a terminal, and as plain text
    otherwise.
    """
    console = terminal_console()
    if console is None:
        print(sheet.text(output_width()))
        return
    for line in sheet.lines(output_width()):
        # Do not wrap: the lines have the right width already.
        console.print(_colour(line), soft_wrap=True)


def terminal_console() -> Console | None:
    """Return a console for standard output if it is a terminal that shows colours, otherwise
    None.
    """
    console = Console(highlight=False)
    # Not `console.is_terminal`, which the variable FORCE_COLOR sets for files, too.
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        return None
    return console


def _colour(line: SheetLine) -> Text:
    text = Text(line.text, style=_STYLES[line.role])
    if line.role is not Role.ROW or not line.name:
        return text
    begin = len(line.text) - len(line.text.lstrip())
    text.stylize(_NAME_STYLE, begin, begin + len(line.name))
    last_word = line.text.split()[-1]
    style_of_status = _STATUS_STYLES.get(last_word)
    if style_of_status is not None:
        text.stylize(style_of_status, len(line.text) - len(last_word))
    return text
