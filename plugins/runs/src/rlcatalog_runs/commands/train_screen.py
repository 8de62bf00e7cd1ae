"""What `train` shows of a run, with every engine: what is trained, a row per tenth of the run, its
evaluations, and a bar that moves in between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcatalog import Policy
from rlcatalog_cli import ProgressDisplay, show_progress
from rlcatalog_runs.display import RunDisplay
from rlcatalog_runs.engines import Engine
from rlcatalog_runs.logs import flat

#: Seconds between two movements of the bar; moving it for each step would take as long as a step.
_PAUSE = 0.1
#: Smallest width of a column, so that the rows below a short title fit.
_LEAST_WIDTH = 9
_BLANK = "-"


@contextmanager
def show_run(engine: Engine, folder: Path, *, quiet: bool) -> Iterator[RunDisplay]:
    """Print what is going to be trained, and yield the display of the run.

    Args:
        engine: The engine.
        folder: The run's folder.
        quiet: Show nothing.
    """
    plan = engine.plan
    steps = plan.options.steps
    with show_progress(
        "training", steps, done=plan.steps, quiet=quiet, prints_tenths=False
    ) as progress:
        lines = [
            ("training", f"{plan.algorithm} on {plan.env_id}, engine {plan.options.engine}"),
            ("run", f"{steps:,} steps, seed {plan.seed}"),
            ("folder", str(folder)),
        ]
        for name, text in lines:
            progress.print(_heading_line(name, text))
        yield TrainScreen(engine, progress)


class TrainScreen(RunDisplay):
    """Display of a run in the terminal, or as plain lines in a file.

    Args:
        engine: The engine.
        progress: The bar, above which the lines are printed.
    """

    def __init__(self, engine: Engine, progress: ProgressDisplay) -> None:
        plan = engine.plan
        self._progress = progress
        self._columns = dict(engine.columns)
        self._lr_parts = engine.describe()["algorithm"].get("lr_parts") or {}
        self._total: int = plan.options.steps
        #: Number of steps and time at the last row, for the speed since then.
        self._last_steps = plan.steps
        self._last_time = time.perf_counter()
        self._last_tenth = self._tenth_of(plan.steps)
        self._mean_return: float | None = None
        self._next_movement = 0.0
        self._has_header = False

    def begin(self, policy: Policy, device: str) -> None:
        """Print the net, its weights and its device."""
        resolution = policy.resolution
        parts = " around ".join(reversed(resolution.model_parts))
        distribution = resolution.dists.part.name
        num_weights = policy.summary().weights
        lines = [
            ("net", f"{parts}, {num_weights:,} weights, actions from {distribution}"),
            ("device", f"{device}, with {policy.framework}"),
        ]
        if policy.frozen_parts:
            lines.append(("frozen", f"{', '.join(policy.frozen_parts)} (do not learn)"))
        if self._lr_parts:
            rates = [f"{part} {rate:g}" for part, rate in self._lr_parts.items()]
            lines.append(("rates", f"{', '.join(rates)} (learning rates of parts)"))
        for name, text in lines:
            self._progress.print(_heading_line(name, text))
        # The time until here, such as Ray's start, is not the training's.
        self._last_time = time.perf_counter()

    def advance(self, steps: int) -> None:
        """Move the bar."""
        now = time.perf_counter()
        if now >= self._next_movement:
            self._next_movement = now + _PAUSE
            self._progress.update(steps, self._mean_return)

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Move the bar, and print the evaluation, and a row if another tenth of the run is
        complete.
        """
        steps = row["timesteps_total"]
        self._mean_return = row.get("episode_return_mean")
        self._progress.update(steps, self._mean_return)
        tenth = self._tenth_of(steps)
        if tenth > self._last_tenth:
            self._last_tenth = tenth
            self._print_row(row, steps)
        if "evaluation" in row:
            self._progress.print(evaluation_line(row["evaluation"], steps), style="cyan")

    def _print_row(self, row: Mapping[str, Any], steps: int) -> None:
        if not self._has_header:
            self._has_header = True
            titles = ["steps", "return", "length", *self._columns, "steps/s"]
            self._progress.print("")
            self._progress.print(_aligned(titles, titles), style="dim")
        now = time.perf_counter()
        seconds = max(now - self._last_time, 1e-9)  # a clock may not advance
        steps_per_second = (steps - self._last_steps) / seconds
        self._last_time = now
        self._last_steps = steps
        figures = flat(row)
        cells = {
            "steps": f"{steps:,}",
            "return": _number(figures.get("episode_return_mean"), "{:,.1f}"),
            "length": _number(figures.get("episode_len_mean"), "{:,.1f}"),
        }
        for title, name in self._columns.items():
            cells[title] = _number(figures.get(name), "{:.3g}")
        cells["steps/s"] = _number(steps_per_second, "{:,.0f}")
        self._progress.print(_aligned(list(cells), list(cells.values())))

    def _tenth_of(self, steps: int) -> int:
        return 10 * steps // self._total


def _heading_line(name: str, text: str) -> str:
    return f"{name:10}{text}"


def evaluation_line(evaluation: Mapping[str, Any], steps: int) -> str:
    """Return the line about an evaluation."""
    mean = evaluation["return_mean"]
    std = evaluation["return_std"]
    sampled_mean = evaluation["sampled_return_mean"]
    return (
        f"evaluation at {steps:,} steps: return {mean:,.1f} ± {std:,.1f} in"
        f" {evaluation['episodes']} episodes, {sampled_mean:,.1f} with sampled actions"
    )


def _number(value: Any, template: str) -> str:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return _BLANK
    return template.format(value)


def _aligned(titles: Sequence[str], cells: Sequence[str]) -> str:
    """Return cells as a line, each below its title, on the right."""
    line = ""
    for title, cell in zip(titles, cells, strict=True):
        width = max(len(title), _LEAST_WIDTH)
        line += "  " + cell.rjust(width)
    return line
