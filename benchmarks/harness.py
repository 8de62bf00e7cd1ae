"""Measuring: each case interleaved with its floor, medians and spreads of the ratio, a Markdown
table.

What is kept of a case is a `Figure`, a ratio that depends little on the machine. A case without a
floor is kept as its ratio to a yardstick, plain Python measured in turns with it.
"""

from __future__ import annotations

import gc
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
        budget: Largest ratio to the floor; without a floor, the largest time in microseconds; None:
            for scale only.
        batch: Observations or rows that one call handles, for the reader.
        peer: Another library is measured, for scale; nothing is kept of it.
    """

    name: str
    ours: Callable[[], Any]
    floor: Callable[[], Any] | None
    budget: float | None
    batch: str = ""
    peer: bool = False

    @property
    def title(self) -> str:
        """The name with the batch."""
        return f"{self.name}{f', batch {self.batch}' if self.batch else ''}"


@dataclass(frozen=True)
class Figure:
    """What is kept of a case.

    Attributes:
        name: The case's title, unique in its part.
        ratios: To the floor or to the yardstick, round by round.
        better: `"lower"`, or `"higher"` for ratios of speeds.
    """

    name: str
    ratios: list[float]
    better: str = "lower"

    @property
    def entry(self) -> dict[str, Any]:
        """What the stored table says of it: the median and the spread."""
        low, middle, high = min(self.ratios), statistics.median(self.ratios), max(self.ratios)
        rounded = [float(f"{ratio:.4g}") for ratio in (low, middle, high)]
        return {"ratio": rounded[1], "spread": [rounded[0], rounded[2]], "better": self.better}


@dataclass(frozen=True)
class Result:
    """Times in microseconds per call, ratios per round; `yardstick` is measured where there is no
    floor.
    """

    case: Case
    ours: list[float]
    floor: list[float]
    yardstick: list[float]

    @property
    def figure(self) -> float:
        """The median ratio to the floor, or the median time."""
        return statistics.median(self.ratios) if self.floor else statistics.median(self.ours)

    @property
    def ratios(self) -> list[float]:
        """Ours over floor, round by round."""
        return [a / b for a, b in zip(self.ours, self.floor, strict=True)]

    @property
    def kept(self) -> Figure:
        """The ratios to the floor, or to the yardstick."""
        pairs = zip(self.ours, self.floor or self.yardstick, strict=True)
        return Figure(self.case.title, [a / b for a, b in pairs])

    @property
    def met(self) -> bool | None:
        """Whether the budget holds; None without one."""
        return None if self.case.budget is None else self.figure <= self.case.budget


#: Slices of a round. A processor's clock changes within a second; slices that alternate see the
#: same changes.
SLICES = 10


def measure(case: Case, rounds: int = 9, seconds: float = 0.15) -> Result:
    """Time a case and its floor in turns.

    Args:
        case: The case.
        rounds: Number of ratios, at least 5.
        seconds: About how long one side of a round takes, in slices that alternate with the other
            side's.
    """
    gc.collect()
    gc.freeze()  # so that collections do not visit the objects of other cases
    sides = [case.ours, case.floor or yardstick]
    once = [_once(side) for side in sides]
    slices = min(max(1, round(seconds / max(once))), SLICES)
    counts = [max(1, round(seconds / slices / call)) for call in once]
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        spent = [0.0, 0.0]
        for part in range(slices):
            order = range(len(sides)) if (turn + part) % 2 else reversed(range(len(sides)))
            for i in order:
                spent[i] += _time(sides[i], counts[i])
        for i, of_side in enumerate(times):
            of_side.append(spent[i] / slices)
    ours, beside = times
    return (
        Result(case, ours, beside, []) if case.floor is not None else Result(case, ours, [], beside)
    )


def yardstick() -> float:
    """Plain Python that takes some ten microseconds: the measure of times that have no floor."""
    return sum(i * 0.5 for i in range(200))


def _once(call: Callable[[], Any]) -> float:
    for _ in range(5):
        call()
    return max(_time(call, 5) / 1e6, 1e-7)


def _time(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


HEADER = (
    "| case | ours | floor | ratio (lowest to highest) | budget | |\n|---|---:|---:|---:|---:|---|"
)


def row(result: Result) -> str:
    """Return one line of the table."""
    case = result.case
    ours = _duration(statistics.median(result.ours))
    name = case.title
    mark = {True: "met", False: "**missed**", None: "for scale"}[result.met]
    if case.floor is None:
        budget = "" if case.budget is None else _duration(case.budget)
        return f"| {name} | {ours} | | | {budget} | {mark} |"
    ratios = result.ratios
    ratio = f"{result.figure:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    budget = "" if case.budget is None else f"{case.budget:.2f}"
    return (
        f"| {name} | {ours} | {_duration(statistics.median(result.floor))} | {ratio} | {budget}"
        f" | {mark} |"
    )


#: Parts of the names of cases that are wanted; all are when it is empty. A process measures one
#: part and sets it once.
CHOSEN: list[str] = []


def wanted(name: str) -> bool:
    """Whether a case is to be measured."""
    return not CHOSEN or any(text in name for text in CHOSEN)


def report(cases: Iterable[Case]) -> list[Result]:
    """Measure the cases that are wanted and print their lines as they come."""
    results = []
    for case in cases:
        if wanted(case.title):
            results.append(measure(case))
            print(row(results[-1]), flush=True)
    return results


def figures(found: Iterable[Figure | Result]) -> list[Figure]:
    """Return what is kept of a part's results.

    Raises:
        ValueError: Two cases have one name.
    """
    kept = [
        one if isinstance(one, Figure) else one.kept
        for one in found
        if isinstance(one, Figure) or not one.case.peer
    ]
    names = [figure.name for figure in kept]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two cases are called {', '.join(twice)}")
    return kept


def _duration(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2f} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.1f} µs"
