"""Measuring: each case interleaved with its floor, medians and spreads of the ratio, a Markdown table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: What is measured.
        ours: The call that is measured.
        floor: The same work by hand, or None where the budget is a time.
        budget: Largest ratio to the floor; without a floor, the largest time in microseconds; None: for scale only.
        batch: Observations or rows that one call handles, for the reader.
    """

    name: str
    ours: Callable[[], Any]
    floor: Callable[[], Any] | None
    budget: float | None
    batch: str = ""


@dataclass(frozen=True)
class Result:
    """Times in microseconds per call, ratios per round."""

    case: Case
    ours: list[float]
    floor: list[float]

    @property
    def figure(self) -> float:
        """The median ratio to the floor, or the median time."""
        return statistics.median(self.ratios) if self.floor else statistics.median(self.ours)

    @property
    def ratios(self) -> list[float]:
        """Ours over floor, round by round."""
        return [a / b for a, b in zip(self.ours, self.floor, strict=True)]

    @property
    def met(self) -> bool | None:
        """Whether the budget holds; None without one."""
        return None if self.case.budget is None else self.figure <= self.case.budget


def measure(case: Case, rounds: int = 9, seconds: float = 0.15) -> Result:
    """Time a case and its floor in turns.

    Args:
        case: The case.
        rounds: Number of turns, at least 5.
        seconds: About how long one side of a turn takes.
    """
    sides = [case.ours] if case.floor is None else [case.ours, case.floor]
    counts = [max(1, round(seconds / _once(side))) for side in sides]
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        order = range(len(sides)) if turn % 2 else reversed(range(len(sides)))
        for i in order:
            times[i].append(_time(sides[i], counts[i]))
    return Result(case, times[0], times[1] if case.floor is not None else [])


def _once(call: Callable[[], Any]) -> float:
    for _ in range(5):
        call()
    return max(_time(call, 5) / 1e6, 1e-7)


def _time(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


HEADER = "| case | ours | floor | ratio (lowest to highest) | budget | |\n|---|---:|---:|---:|---:|---|"


def row(result: Result) -> str:
    """Return one line of the table."""
    case = result.case
    ours = _duration(statistics.median(result.ours))
    name = f"{case.name}{f', batch {case.batch}' if case.batch else ''}"
    mark = {True: "met", False: "**missed**", None: "for scale"}[result.met]
    if case.floor is None:
        budget = "" if case.budget is None else _duration(case.budget)
        return f"| {name} | {ours} | | | {budget} | {mark} |"
    ratios = result.ratios
    ratio = f"{result.figure:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    budget = "" if case.budget is None else f"{case.budget:.2f}"
    return f"| {name} | {ours} | {_duration(statistics.median(result.floor))} | {ratio} | {budget} | {mark} |"


def report(cases: Iterable[Case]) -> list[Result]:
    """Measure cases and print their lines as they come."""
    results = []
    for case in cases:
        results.append(measure(case))
        print(row(results[-1]), flush=True)
    return results


def _duration(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2f} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.1f} µs"
