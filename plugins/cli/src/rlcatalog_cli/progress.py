"""Progress display for a long command: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from rlcatalog_cli.isolation import answer_stream


@contextmanager
def show_progress(
    text: str,
    total: int,
    *,
    unit: str = "steps",
    done: int = 0,
    quiet: bool = False,
    stream: TextIO | None = None,
) -> Iterator[Callable[[int, float | None], None]]:
    """Show a command's progress, mean return, speed and remaining time.

    In a terminal, this is a bar that updates in place. In a file or pipe, it is one line for every
    10%, without control characters.

    Args:
        text: Description of the work.
        total: The total number.
        unit: The unit of the numbers.
        done: The number of units already done at the start.
        quiet: Show nothing.
        stream: Stream to write to. If None, standard output.

    Yields:
        `update(done, mean_return)`, which takes the number of units done so far and the mean return
        (None before the first episode ends).
    """
    stream = sys.stdout if stream is None else stream
    begun, before, shown = time.perf_counter(), done, 10 * done // total
    bar = None
    if not quiet and (console := _terminal(stream)) is not None:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            # In narrow terminals, the bar shrinks.
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("left"),
            console=console,
        )
        bar.add_task(text, total=total, completed=before, figures="")

    def update(done: int, mean_return: float | None) -> None:
        nonlocal shown
        speed = (done - before) / max(time.perf_counter() - begun, 1e-9)
        rounded = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
        figures = (
            f"mean return {'-' if mean_return is None else f'{mean_return:.1f}'}, {rounded}"
            f" {unit}/s"
        )
        tenth = 10 * done // total
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, figures=figures)
        elif tenth > shown and not quiet:
            shown = tenth
            left = timedelta(seconds=round(max(total - done, 0) / speed)) if speed else "-"
            way = f"{min(100 * done // total, 100)} %, {done:,} of {total:,} {unit}"
            print(f"{text}: {way}, {figures}, {left} left", file=stream, flush=True)

    with bar or nullcontext():
        yield update


class Items:
    """Items of a command's work, one of which is in progress.

    Args:
        noun: What an item is, such as `"check"`.
        total: The number of items.
        stream: The stream for the lines.
        bar: The bar in a terminal; None elsewhere.
    """

    def __init__(self, noun: str, total: int, stream: TextIO, bar: Progress | None) -> None:
        self._noun = noun
        self._total = total
        self._stream = stream
        self._bar = bar
        self._begun = 0

    def begin(self, name: str) -> None:
        """Show that the next item is in progress."""
        self._begun += 1
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=self._begun - 1,
                description=f"{self._noun} {self._begun} of {self._total}",
                name=name,
                refresh=True,
            )

    def print(self, line: str) -> None:
        """Print a line about a finished item."""
        if self._bar is None:
            print(line, file=self._stream, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def show_items(noun: str, total: int, *, stream: TextIO | None = None) -> Iterator[Items]:
    """Show which of several items a command works on, and print lines about those that are done.

    In a terminal, a bar below the lines shows the item's name and number. In a file or pipe, there
    are only the lines, each of which is written at once.

    Args:
        noun: What an item is, such as `"check"`.
        total: The number of items.
        stream: Stream to write to. If None, the stream for a command's result.

    Example:
        >>> with show_items("check", 2) as items:
        ...     for name in ("width", "dtype"):
        ...         items.begin(name)
        ...         items.print(f"passed {name}")
        passed width
        passed dtype
    """
    stream = answer_stream() if stream is None else stream
    console = _terminal(stream)
    if console is None:
        yield Items(noun, total, stream, None)
        return
    bar = Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=20),
        # In narrow terminals, the name is cut off.
        TextColumn("{task.fields[name]}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        redirect_stdout=False,
        # What plugins write to a terminal appears above the bar.
        redirect_stderr=sys.stderr.isatty(),
    )
    bar.add_task(noun, total=total, name="")
    with bar:
        yield Items(noun, total, stream, bar)


def _terminal(stream: TextIO) -> Console | None:
    """Return a console for a stream if it is a terminal that can redraw lines."""
    console = Console(file=stream)
    if not stream.isatty() or console.is_dumb_terminal:
        return None
    return console
