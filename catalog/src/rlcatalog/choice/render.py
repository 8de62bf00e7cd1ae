"""Tables for people, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from rlcatalog.errors import one_line

#: Most rows of a table, and most characters of a cell and of a line beside the tables.
ROWS, _CELL, _LINE = 24, 120, 600

#: Of cells, in HTML; a cell of an explanation may begin with spaces.
_LEFT = "style='text-align:left;white-space:pre-wrap'"


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: What it shows; empty where the sheet's title says it.
        header: Names of its columns, or none.
        rows: Its rows, a text for each column.
        most: The most rows that are shown.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    most: int = ROWS

    def short(self) -> list[tuple[str, ...]]:
        """Return the rows as they are shown: on one line each, and so many that they can be read."""
        kept = [
            (*(one_line(cell, _CELL) for cell in cells), one_line(last, _LINE))
            for *cells, last in self.rows[: self.most]
        ]
        if len(self.rows) > self.most:
            more = f"... {len(self.rows) - self.most} more"
            kept.append((more, *("" for _ in self.header[1:])))
        return kept

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        rows = [*([self.header] if self.header else []), *self.short()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        return ["", f"{self.title}:", *(f"  {line}" for line in shown)] if self.title else shown

    def html(self) -> str:
        """Return it as HTML."""
        caption = f"<caption {_LEFT}>{escape(self.title)}</caption>" if self.title else ""
        head = "".join(f"<th {_LEFT}>{escape(cell)}</th>" for cell in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.short()
        )
        return f"<table>{caption}{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Sheet:
    """What is shown of an object.

    Attributes:
        title: What it is.
        facts: Name and text of each line above the tables.
        tables: The tables; those without rows are left out.
        notes: Name and text of each line below them.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    notes: Sequence[tuple[str, str]] = ()

    def text(self) -> str:
        """Return it as plain text."""
        tables = [line for table in self.tables if table.rows for line in table.lines()]
        return "\n".join([self.title, *_lines(self.facts), *tables, *_lines(self.notes)])

    def html(self) -> str:
        """Return it as HTML; what plugins wrote is escaped."""
        tables = "".join(table.html() for table in self.tables if table.rows)
        return f"<div><p><b>{escape(self.title)}</b></p>{_list(self.facts)}{tables}{_list(self.notes)}</div>"


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {one_line(text, _LINE)}" for name, text in pairs]


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    items = (f"<li>{escape(name)}: {escape(one_line(text, _LINE))}</li>" for name, text in pairs)
    return f"<ul>{''.join(items)}</ul>"
