"""Sheets of facts, tables and notes, shown as text or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlcatalog.errors import one_line

#: A table row: one text per column.
Row = tuple[str, ...]

#: Maximum rows of a table, and maximum characters of a cell and of a line outside the tables.
ROWS, _CELL, _LINE = 24, 120, 600

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
        for title, header, rows in self._shown():
            aligned = [header, *rows] if header else rows
            widths = [max(map(len, column)) for column in zip(*aligned, strict=True)]
            table = [
                "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip()
                for row in aligned
            ]
            lines += ["", f"{title}:", *(f"  {line}" for line in table)] if title else table
        return "\n".join([*lines, *_lines(self.notes)])

    def html(self) -> str:
        """Return the sheet as HTML, with all texts escaped."""
        tables = ""
        for name, header, rows in self._shown():
            caption = f"<caption {_LEFT}>{_escape(name)}</caption>" if name else ""
            head = f"<thead>{_html_row('th', header)}</thead>" if header else ""
            body = "".join(_html_row("td", row) for row in rows)
            tables += f"<table>{caption}{head}<tbody>{body}</tbody></table>"
        title = f"<p><b>{_escape(self.title)}</b></p>"
        return f"<div>{title}{_html_list(self.facts)}{tables}{_html_list(self.notes)}</div>"

    def _shown(self) -> Iterator[tuple[str, Row, list[Row]]]:
        """Yield each table's title, header and rows, as single lines, cut to a readable number of
        rows.
        """
        for title, (header, *rows) in self.tables.items():
            shown = [
                (*(one_line(cell, _CELL) for cell in cells), one_line(last, _LINE))
                for *cells, last in rows[: self.most]
            ]
            if len(rows) > self.most:
                shown.append((f"... {len(rows) - self.most} more", *("" for _ in rows[0][1:])))
            if shown:
                yield title, header, shown


def _lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {one_line(text, _LINE)}" for name, text in pairs]


def _escape(text: str) -> str:
    import html  # loading its table of entities takes long, and few explanations become HTML

    return html.escape(text)


def _html_row(tag: str, cells: Row) -> str:
    return f"<tr>{''.join(f'<{tag} {_LEFT}>{_escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _html_list(pairs: Sequence[tuple[str, str]]) -> str:
    return (
        f"<ul>{''.join(f'<li>{_escape(line)}</li>' for line in _lines(pairs))}</ul>"
        if pairs
        else ""
    )
