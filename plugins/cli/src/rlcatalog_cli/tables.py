"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from rlcatalog.internals import PluginRecord, public_index
from rlcatalog.plugins import Component

_PLUGIN = ("plugin", "distribution", "version", "status")
#: Characters that a column of prose keeps, however narrow the terminal is.
_LEAST = 24
_COLOURS = {"loaded": "green", "disabled": "yellow"}


def escape(text: str) -> str:
    """Return what a plugin wrote, as it is to be printed: no markup, no control characters."""
    kept = (c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    return escape_markup("".join(kept))


def _table(title: str, *columns: str, copied: Sequence[str]) -> Table:
    """Return a table; what stands in the columns `copied` is never cut and never broken."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=column in copied)
    return table


def _print(console: Console, table: Table) -> None:
    """Print a table, wider than the terminal where that has no room for what is not to be cut."""
    wide = console.options.update(max_width=10_000)
    for column in table.columns:
        needed = max(console.measure(cell, options=wide).maximum for cell in (column.header, *column.cells))
        column.min_width = needed if column.no_wrap else min(needed, _LEAST)
    least = console.measure(table, options=wide).minimum
    console = console if console.width >= least else Console(width=least)
    console.print(table)


def print_list(plugins: Sequence[PluginRecord], components: Sequence[Component]) -> None:
    """Print the plugins and their components."""
    console = Console()
    if all(component.kind == "command" for component in components):
        console.print(f"No parts are installed. {public_index.install_hint()}", soft_wrap=True)
    table = _table("Plugins", *_PLUGIN, copied=_PLUGIN)
    for record in plugins:
        colour = _COLOURS.get(record.status, "red")
        cells = map(escape, (record.name, record.distribution, record.version))
        table.add_row(*cells, f"[{colour}]{record.status}[/]")
    _print(console, table)
    for record in plugins:
        if record.error is not None:
            console.print(escape(f"{record.name}: {record.status}: {record.error}"), soft_wrap=True)
    columns = ("kind", "name", "frameworks", "summary", "distribution")
    table = _table("Components", *columns, copied=("kind", "name", "distribution"))
    for part in components:
        shown = part.kind, part.name, ", ".join(part.frameworks), part.declaration.summary, part.distribution
        table.add_row(*map(escape, shown))
    _print(console, table)


def print_summary(env_id: str, found: Any) -> None:
    """Print the layers of a model.

    Args:
        env_id: The environment, as it was typed.
        found: The summary, of rlcatalog-policy.
    """
    console = Console()
    console.print(f"[bold]{escape(env_id)}[/]  model: {escape(found.title)}  framework: {found.framework}")
    header, *rows = found.rows()
    table = _table("Layers", *header, copied=("layer", "output", "weights"))
    table.columns[-1].justify = "right"
    for row in rows:
        table.add_row(*map(escape, row))
    _print(console, table)
    console.print(f"weights: {found.amount}")
