"""Sheets of facts, tables and notes, shown as text or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

    def text(self) -> str:
        """Return the sheet as plain text."""
        lines = [self.title, *_lines(self.facts)]
        for table in self._shown_tables():
            text = _aligned(table)
            if table.title:
                lines += ["", f"{table.title}:"]
                lines += [f"  {line}" for line in text]
            else:
                lines += text
        lines += _lines(self.notes)
        return "\n".join(lines)

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


class _Table(NamedTuple):
    """A table of a sheet, as it is shown; a table without column names has an empty header."""

    title: str
    header: Row
    rows: list[Row]


def _one_line_each(row: Row) -> Row:
    """Return a row with each cell as one line; the last may be long, because nothing follows it."""
    *cells, last = row
    return (*(one_line(cell, _CELL) for cell in cells), one_line(last, _LINE))


def _aligned(table: _Table) -> list[str]:
    """Return the rows of a table as lines, with the cells of a column below one another."""
    rows = table.rows
    if table.header:
        rows = [table.header, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {one_line(text, _LINE)}" for name, text in pairs]


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
    items = [f"<li>{_escape(line)}</li>" for line in _lines(pairs)]
    return f"<ul>{''.join(items)}</ul>"
