"""Sheets of facts, tables and notes, shown as text or HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rlcatalog.errors import one_line

#: A table row: one text per column.
Row = tuple[str, ...]

#: Maximum number of rows of a table.
ROWS = 24
#: Maximum number of characters of a cell that is not the last one in its row.
_CELL = 120
#: Maximum number of characters of a line outside the tables, and of a last cell.
_LINE = 600
#: Least number of characters beside the other cells of a row for its last cell; with less room, the
#: last cell gets lines of its own below them.
_LEAST_ROOM = 30
#: Indentation of these lines, which is more than that of any first cell.
_BELOW = " " * 6

#: CSS of cells; a cell of an explanation can begin with spaces.
_LEFT = "style='text-align:left;white-space:pre-wrap'"


@dataclass(frozen=True)
class Sheet:
    """Title, facts, tables and notes about an object.

    Attributes:
        title: The title.
        facts: Label and text of each line above the tables.
        tables: Title → rows. The first row names the columns; it is empty for a table without
            column names. A table without other rows is omitted.
        notes: Label and text of each line below the tables.
        most: Maximum number of rows shown per table.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    notes: Sequence[tuple[str, str]] = ()
    most: int = ROWS

    def text(self, width: int | None = None) -> str:
        """Return the sheet as plain text.

        Args:
            width: Longest line in characters; long texts are wrapped, but names are never cut. If
                None, each row is one line.
        """
        return "\n".join(line.text for line in self.lines(width))

    def lines(self, width: int | None = None) -> Iterator[SheetLine]:
        """Yield the lines of the sheet as text, each with its role.

        Args:
            width: As for `text`.
        """
        yield SheetLine(Role.TITLE, self.title)
        yield from _lines_of_pairs(self.facts, width)
        for number, table in enumerate(self._shown_tables()):
            indent = ""
            if table.title:
                indent = "  "
                yield SheetLine(Role.ROW, "")
                yield SheetLine(Role.HEADING, f"{table.title}:")
            elif number > 0:
                yield SheetLine(Role.ROW, "")
            yield from _lines_of_table(table, indent, width)
        yield from _lines_of_pairs(self.notes, width)

    def html(self) -> str:
        """Return the sheet as HTML, with all texts escaped."""
        tables = [_html_table(table) for table in self._shown_tables()]
        title = f"<p><b>{_escape(self.title)}</b></p>"
        facts = _html_list(self.facts)
        return f"<div>{title}{facts}{''.join(tables)}{_html_list(self.notes)}</div>"

    def _shown_tables(self) -> Iterator[_Table]:
        """Yield each table that has rows, with cells as single lines, cut to a readable number of
        rows.
        """
        for title, (header, *rows) in self.tables.items():
            shown = [_one_line_each(row) for row in rows[: self.most]]
            if len(rows) > self.most:
                blanks = ["" for _ in rows[0][1:]]
                shown.append((f"... {len(rows) - self.most} more", *blanks))
            if shown:
                yield _Table(title, header, shown)


class Role(Enum):
    """What a line of a sheet is, by which a terminal chooses its colour."""

    TITLE = "title"
    #: The title of a table.
    HEADING = "heading"
    #: The names of a table's columns.
    HEADER = "header"
    #: A row of a table, a line above or below the tables, or an empty line.
    ROW = "row"


class SheetLine(NamedTuple):
    """A line of a sheet as text.

    Attributes:
        role: What the line is.
        text: The line.
        name: What the line begins with: the first cell of a row, or the label of a line outside the
            tables. Empty for a line that belongs to or continues one above.
    """

    role: Role
    text: str
    name: str = ""


class _Table(NamedTuple):
    """A table of a sheet, as it is shown; a table without column names has an empty header."""

    title: str
    header: Row
    rows: list[Row]


def _one_line_each(row: Row) -> Row:
    """Return a row with each cell as one line; the last may be long, because nothing follows it."""
    *cells, last = row
    return (*(one_line(cell, _CELL) for cell in cells), one_line(last, _LINE))


def _lines_of_table(table: _Table, indent: str, width: int | None) -> Iterator[SheetLine]:
    """Yield the rows of a table, with the cells of a column below one another."""
    rows = table.rows
    if table.header:
        rows = [table.header, *rows]
    widths = _column_widths(rows, width)
    for index, (*cells, last_cell) in enumerate(rows):
        role = Role.ROW
        if table.header and index == 0:
            role = Role.HEADER
        beginning = indent
        for cell, column_width in zip(cells, widths, strict=True):
            beginning += cell.ljust(column_width) + "  "
        first_cell = [*cells, last_cell][0]
        name = first_cell
        if first_cell.startswith(" "):  # it belongs to a row above
            name = ""
        first_line, *further_lines = _append_last_cell(beginning, last_cell, width)
        yield SheetLine(role, first_line, name)
        for line in further_lines:
            yield SheetLine(role, line)


def _column_widths(rows: Sequence[Row], width: int | None) -> list[int]:
    """Return the width of each column but the last.

    Args:
        rows: The rows.
        width: The longest line. A cell that is longer than two fifths of it does not widen its
            column: the cells after it in its row are pushed to the right.
    """
    widths = []
    for column in list(zip(*rows, strict=True))[:-1]:
        lengths = [len(cell) for cell in column]
        if width is not None:
            lengths = [length for length in lengths if length <= 2 * width // 5]
        widths.append(max(lengths, default=0))
    return widths


def _append_last_cell(beginning: str, last_cell: str, width: int | None) -> list[str]:
    """Return the lines of a row: its other cells, followed by the last one, which is wrapped."""
    line = (beginning + last_cell).rstrip()
    if width is None or not last_cell or len(line) <= width:
        return [line]
    room = width - len(beginning)
    if room < _LEAST_ROOM:
        return [beginning.rstrip(), *_wrap(last_cell, width, indent=_BELOW)]
    indent = " " * len(beginning)
    first_line, *further_lines = _wrap(last_cell, width, indent=indent)
    return [beginning + first_line.lstrip(), *further_lines]


def _lines_of_pairs(pairs: Iterable[tuple[str, str]], width: int | None) -> Iterator[SheetLine]:
    """Yield the lines above or below the tables."""
    for name, text in pairs:
        line = f"{name}: {one_line(text, _LINE)}"
        if width is None or len(line) <= width:
            yield SheetLine(Role.ROW, line, name)
            continue
        first_line, *further_lines = _wrap(line, width, indent="  ")
        yield SheetLine(Role.ROW, first_line.lstrip(), name)
        for further_line in further_lines:
            yield SheetLine(Role.ROW, further_line)


def _wrap(text: str, width: int, *, indent: str) -> list[str]:
    """Return a text as lines that begin with an indentation; words are never cut."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escape(text: str) -> str:
    import html  # loading its table of entities takes long, and few explanations become HTML

    return html.escape(text)


def _html_table(table: _Table) -> str:
    caption = ""
    if table.title:
        caption = f"<caption {_LEFT}>{_escape(table.title)}</caption>"
    head = ""
    if table.header:
        head = f"<thead>{_html_row('th', table.header)}</thead>"
    rows = [_html_row("td", row) for row in table.rows]
    return f"<table>{caption}{head}<tbody>{''.join(rows)}</tbody></table>"


def _html_row(tag: str, row: Row) -> str:
    cells = [f"<{tag} {_LEFT}>{_escape(cell)}</{tag}>" for cell in row]
    return f"<tr>{''.join(cells)}</tr>"


def _html_list(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    lines = [line.text for line in _lines_of_pairs(pairs, width=None)]
    items = [f"<li>{_escape(line)}</li>" for line in lines]
    return f"<ul>{''.join(items)}</ul>"
