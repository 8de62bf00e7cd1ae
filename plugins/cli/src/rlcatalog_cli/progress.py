"""Progress display for a long command: a bar in a terminal, ten lines elsewhere."""

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
    console, bar = Console(file=stream), None
    if not quiet and stream.isatty() and not console.is_dumb_terminal:
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
