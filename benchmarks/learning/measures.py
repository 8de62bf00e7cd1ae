"""Measures of a comparison: paired differences, probability of improvement, and seeds that would
decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_1samp

from rlcatalog_runs.comparison import ENDS, REPEATS, interquartile_mean, interval

Array = np.ndarray[Any, Any]

#: The claim: the lower end of the difference, in percent of the task's range.
MARK = -10.0
#: Fewer seeds make no claim.
FEWEST = 3


class Estimate(NamedTuple):
    """A point and the ends of its 95% interval."""

    point: float
    low: float
    high: float


def summary(returns: Array, low: float, high: float) -> dict[str, Estimate]:
    """Return interquartile means with 95% bootstrap intervals (Agarwal et al. 2021), and those of
    the difference.

    Args:
        returns: Returns of seeds that both sides were trained with, `[seeds, 2]`: base and catalog.
        low: Return of acting at random.
        high: Best return; the difference is in percent of the range.
    """
    columns = {
        "base": returns[:, :1],
        "catalog": returns[:, 1:],
        "difference": 100 * (returns[:, 1:] - returns[:, :1]) / (high - low),
    }
    return {
        name: Estimate(float(interquartile_mean(column)[0]), *map(float, interval(column)[:, 0]))
        for name, column in columns.items()
    }


def probability_of_improvement(pairs: Sequence[Array]) -> Estimate:
    """Return how probable it is that a run of the catalog returns more than one of the base
    (Agarwal et al. 2021).

    It is the mean over tasks of the Mann-Whitney U statistic divided by the number of pairs of
    runs; a tie counts half. The interval is that of a bootstrap which draws the runs of each task
    and side by themselves.

    Args:
        pairs: For each task, returns `[seeds, 2]`: base and catalog.
    """
    wins = [_wins(returns) for returns in pairs]
    rng = np.random.default_rng(0)
    drawn = np.zeros((len(wins), REPEATS))
    for task, won in enumerate(wins):
        columns, rows = (rng.integers(len(won), size=(REPEATS, len(won))) for _ in range(2))
        drawn[task] = [
            won[row][:, column].mean() for row, column in zip(rows, columns, strict=True)
        ]
    low, high = np.percentile(drawn.mean(0), ENDS)
    return Estimate(float(np.mean([won.mean() for won in wins])), float(low), float(high))


def _wins(returns: Array) -> Array:
    """Return for each run of the catalog (rows) and of the base (columns): 1 won, 0.5 equal, 0
    lost.
    """
    base, catalog = returns[None, :, 0], returns[:, None, 1]
    return np.asarray((catalog > base) + 0.5 * (catalog == base))


def pooled_difference(differences: Sequence[Array]) -> Estimate:
    """Return the mean over tasks of the interquartile mean difference, with its 95% bootstrap
    interval.

    Args:
        differences: For each task, the differences of its seeds, `[seeds]`.
    """
    rng = np.random.default_rng(0)
    point = np.mean([interquartile_mean(task[:, None])[0] for task in differences])
    drawn = np.zeros((len(differences), REPEATS))
    for index, task in enumerate(differences):
        seeds = rng.integers(len(task), size=(len(task), REPEATS))
        drawn[index] = interquartile_mean(task[seeds])
    low, high = np.percentile(drawn.mean(0), ENDS)
    return Estimate(float(point), float(low), float(high))


def probability_below_zero(returns: Array) -> float:
    """Return the p-value of a paired t-test against the hypothesis that ours returns as much or
    more, `[seeds, 2]`: base and catalog.
    """
    difference = returns[:, 1] - returns[:, 0]
    if not difference.any():
        return 1.0
    return float(ttest_1samp(difference, 0.0, alternative="less").pvalue)


def holm(p_values: Sequence[float], level: float = 0.05) -> list[bool]:
    """Return which hypotheses are rejected after Holm's correction (Holm 1979).

    The k-th smallest of n p-values is compared with `level / (n - k + 1)`, up to the first that is
    not below it.
    """
    rejected = [False] * len(p_values)
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def seeds_needed(difference: Estimate, seeds: int) -> int:
    """Return about how many more seeds decide whether a difference keeps the mark, if its estimate
    stays.

    The width of an interval falls with the root of the number of seeds. A difference above the mark
    is decided when its interval ends above it, and one below when its interval leaves 0.
    """
    point, low, high = difference
    reach, gap = (point - low, point - MARK) if point > MARK else (high - point, -point)
    return max(1, math.ceil(seeds * (reach / max(gap, 1e-9)) ** 2) - seeds)


def verdict(difference: Estimate, seeds: int) -> str:
    """Return what is concluded: an empty text where the claim holds."""
    if difference.high < 0:
        return "below 0"
    if difference.low >= MARK:
        return ""
    more = seeds_needed(difference, seeds)
    return f"undecided, about {more} more {'seed' if more == 1 else 'seeds'}"
