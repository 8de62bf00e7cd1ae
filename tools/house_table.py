"""Rows of the table that `tools/house.py` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Figure of the table, with its goal.

    Attributes:
        measure: What is counted.
        figure: The count, as it is printed.
        goal: What the figure should be; empty if there is no goal.
        places: What was counted, one text for each: a function, an import or a name.
    """

    measure: str
    figure: str
    goal: str = ""
    places: Sequence[str] = ()


def format_table(rows: Iterable[Row], peers: Mapping[str, Mapping[str, str]]) -> str:
    """Return the rows with aligned columns, then the places of each row that has some.

    Args:
        rows: The rows, from top to bottom.
        peers: Heading of a column → measure → figure. A measure without a figure leaves its cell
            empty.
    """
    rows = list(rows)
    lines = [["measure", "rlcatalog", "goal", *peers]]
    for row in rows:
        peer_figures = [figures.get(row.measure, "") for figures in peers.values()]
        lines.append([row.measure, row.figure, row.goal, *peer_figures])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join(_format_line(line, widths) for line in lines)
    for row in rows:
        if row.places:
            text += "\n\n" + "\n  ".join([f"{row.measure}:", *row.places])
    return text


def _format_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of one line: words to the left of their column, figures to the right."""
    measure, figure, goal, *peer_figures = cells
    aligned = [measure.ljust(widths[0]), figure.rjust(widths[1]), goal.ljust(widths[2])]
    for peer_figure, width in zip(peer_figures, widths[3:], strict=True):
        aligned.append(peer_figure.rjust(width))
    return "  ".join(aligned).rstrip()
