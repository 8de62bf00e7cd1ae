"""Progress display for a long command: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from rlcatalog_cli.isolation import answer_stream


class ProgressDisplay(Protocol):
    """Display of a command's progress; see `show_progress`."""

    def update(self, done: int, mean_return: float | None) -> None:
        """Show how far the command is.

        Args:
            done: The number of units done so far.
            mean_return: The mean return; None before the first episode ends.
        """

    def print(self, line: str, style: str = "") -> None:
        """Print a line above the bar.

        Args:
            line: The line.
            style: Its style in a terminal, in rich's words, such as `"dim"`.
        """


@contextmanager
def show_progress(
    text: str,
    total: int,
    *,
    unit: str = "steps",
    done: int = 0,
    quiet: bool = False,
    prints_tenths: bool = True,
    stream: TextIO | None = None,
) -> Iterator[ProgressDisplay]:
    """Show a command's progress, mean return, speed and remaining time.

    In a terminal, this is a bar that moves until it disappears at the end. In a file or pipe, it is
    one line for every 10%, without control characters.

    Args:
        text: Description of the work.
        total: The total number.
        unit: The unit of the numbers.
        done: The number of units already done at the start.
        quiet: Show nothing.
        prints_tenths: Whether a file gets the line for every 10%; False if the command prints lines
            of its own.
        stream: Stream to write to. If None, standard output.
    """
    if stream is None:
        stream = sys.stdout
    console = None
    if not quiet:
        console = _terminal(stream)
    if console is None:
        stream_for_lines = None if quiet else stream
        yield _ProgressLines(text, total, unit, done, stream_for_lines, prints_tenths)
        return
    with _progress_bar(console) as bar:
        task = bar.add_task(text, total=total, completed=done, figures="")
        yield _ProgressBar(bar, task, _Speed(unit, done))


def _progress_bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),  # moves even while the number of units stays the same
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
        # In narrow terminals, the bar shrinks.
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        console=console,
        transient=True,
    )


class _Speed:
    """Speed of a command's work since it began.

    Args:
        unit: The unit of the numbers.
        done: The number of units already done at the start.
    """

    def __init__(self, unit: str, done: int) -> None:
        self._unit = unit
        self._done_before = done
        self._start_time = time.perf_counter()

    def per_second(self, done: int) -> float:
        """Return the number of units per second."""
        seconds = time.perf_counter() - self._start_time
        return (done - self._done_before) / max(seconds, 1e-9)  # a clock may stand still

    def text(self, done: int) -> str:
        """Return the speed as text."""
        return self.text_of(self.per_second(done))

    def text_of(self, per_second: float) -> str:
        """Return a number of units per second as text."""
        if per_second >= 10:
            return f"{per_second:,.0f} {self._unit}/s"
        return f"{per_second:.2g} {self._unit}/s"


class _ProgressBar:
    """Progress as a bar in a terminal.

    Args:
        bar: The bar.
        task: Its only task.
        speed: The speed since the bar was shown.
    """

    def __init__(self, bar: Progress, task: TaskID, speed: _Speed) -> None:
        self._bar = bar
        self._task = task
        self._speed = speed

    def update(self, done: int, mean_return: float | None) -> None:
        """Move the bar."""
        figures = f"{_return_text(mean_return)}, {self._speed.text(done)}"
        self._bar.update(self._task, completed=done, figures=figures)

    def print(self, line: str, style: str = "") -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


class _ProgressLines:
    """Progress as lines of text, one for every 10%.

    Args:
        text: Description of the work.
        total: The total number.
        unit: The unit of the numbers.
        done: The number of units already done at the start.
        stream: Stream to write to; None to show nothing.
        prints_tenths: Whether to print these lines; otherwise, only those of `print`.
    """

    def __init__(
        self,
        text: str,
        total: int,
        unit: str,
        done: int,
        stream: TextIO | None,
        prints_tenths: bool,
    ) -> None:
        self._text = text
        self._total = total
        self._unit = unit
        self._stream = stream
        self._prints_tenths = prints_tenths
        self._last_tenth = self._tenth_of(done)
        self._speed = _Speed(unit, done)

    def _tenth_of(self, done: int) -> int:
        return 10 * done // self._total

    def print(self, line: str, style: str = "") -> None:
        """Print a line."""
        if self._stream is not None:
            print(line, file=self._stream, flush=True)

    def update(self, done: int, mean_return: float | None) -> None:
        """Print a line if another tenth is done."""
        tenth = self._tenth_of(done)
        if tenth <= self._last_tenth or not self._prints_tenths:
            return
        self._last_tenth = tenth
        per_second = self._speed.per_second(done)
        percent = min(100 * done // self._total, 100)
        amount = f"{percent} %, {done:,} of {self._total:,} {self._unit}"
        figures = f"{_return_text(mean_return)}, {self._speed.text_of(per_second)}"
        time_left = "-"
        if per_second:
            units_left = max(self._total - done, 0)
            time_left = str(timedelta(seconds=round(units_left / per_second)))
        self.print(f"{self._text}: {amount}, {figures}, {time_left} left")


def _return_text(mean_return: float | None) -> str:
    if mean_return is None:
        return "mean return -"
    return f"mean return {mean_return:.1f}"


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
        self._count = 0

    def begin(self, name: str) -> None:
        """Show that the next item is in progress."""
        self._count += 1
        if self._bar is not None:
            only_task = self._bar.task_ids[0]
            self._bar.update(
                only_task,
                completed=self._count - 1,
                description=f"{self._noun} {self._count} of {self._total}",
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
    if stream is None:
        stream = answer_stream()
    console = _terminal(stream)
    if console is None:
        yield Items(noun, total, stream, bar=None)
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
