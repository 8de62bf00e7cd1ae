"""Profiles of cases over their budget: which share of the time rlcatalog's functions take, and
which ones.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import Case, Figure, Result

HEADER = "| over budget | rlcatalog's functions | the largest |\n|---|---:|---|"
#: Seconds that a case runs under the profiler, how many functions are named, and the smallest share
#: of these.
SECONDS, NAMED, LEAST = 0.5, 5, 0.005


def report(found: Iterable[Figure | Result]) -> None:
    """Print a table with the profile of each case over its budget, if there is one."""
    missed = [one.case for one in found if isinstance(one, Result) and one.met is False]
    if missed:
        print(f"\n{HEADER}")
    for case in missed:
        print(_row(case), flush=True)


def _row(case: Case) -> str:
    profile = cProfile.Profile()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        profile.runcall(case.ours)
    stats: Any = pstats.Stats(profile)
    shares: Counter[str] = Counter()
    for (file, _, name), (_, _, seconds, _, _) in stats.stats.items():
        if "/src/rlcatalog" in file:  # several files and classes may share a name
            shares[f"{Path(file).stem}.{name}"] += seconds / stats.total_tt
    named = ", ".join(
        f"`{name}` {share:.0%}" for name, share in shares.most_common(NAMED) if share >= LEAST
    )
    return f"| {case.title} | {sum(shares.values()):.0%} | {named} |"
