"""What a long command shows of itself: a bar in a terminal, elsewhere a line every tenth of the way."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column


class Display:
    """Shows how far a command is, the mean return, the speed and the time left; used with `with`.

    In a terminal it is a bar that is drawn over and over. Elsewhere, in a file or a pipe, it is a line for each tenth
    of the way, without control characters.

    Args:
        text: What is done.
        total: Of how many.
        unit: Of what.
        done: How many were done before.
        quiet: Show nothing.
        stream: Where to; standard output when missing.
    """

    def __init__(
        self,
        text: str,
        total: int,
        *,
        unit: str = "steps",
        done: int = 0,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self._text, self._total, self._unit, self._before, self._quiet = text, total, unit, done, quiet
        self._stream = sys.stdout if stream is None else stream
        self._tenth = 10 * done // total
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        console = Console(file=self._stream)
        if not self._quiet and self._stream.isatty() and not console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(table_column=Column(no_wrap=True)),  # the bar gives way in narrow ones
                TextColumn("left"),
                console=console,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._text, total=self._total, completed=self._before, figures="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, mean_return: float | None) -> None:
        """Show that `done` are done in all, and the mean return; None where there is none yet."""
        if self._quiet:
            return
        speed = (done - self._before) / max(time.perf_counter() - self._start, 1e-9)
        rounded = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
        figures = f"mean return {'-' if mean_return is None else f'{mean_return:.1f}'}, {rounded} {self._unit}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=figures)
            return
        tenth = 10 * done // self._total
        if tenth > self._tenth:
            self._tenth = tenth
            left = timedelta(seconds=round(max(self._total - done, 0) / speed)) if speed else "-"
            print(
                f"{self._text}: {min(10 * tenth, 100)} %, {done:,} of {self._total:,} {self._unit}, {figures},"
                f" {left} left",
                file=self._stream,
                flush=True,
            )
