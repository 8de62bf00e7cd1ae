"""Combinations of options in which every two values that may meet do meet."""

from __future__ import annotations

import itertools
import random


def pairwise(factors, valid, seed=0, candidates=60):
    """Return few combinations that cover every pair of values occurring in a valid one.

    Args:
        factors: Name → its values.
        valid: Says whether a combination, a dict, may be built.
        seed: Of the search.
        candidates: How many combinations are tried for each one kept.
    """
    rng = random.Random(seed)
    names = list(factors)
    combinations = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*factors.values())
    ]
    combinations = [c for c in combinations if valid(c)]
    rng.shuffle(combinations)

    def pairs(combination):
        return set(itertools.combinations([(name, str(combination[name])) for name in names], 2))

    missing = set().union(*map(pairs, combinations))
    found = []
    while missing:
        tried = rng.sample(combinations, min(candidates, len(combinations)))
        best = max(tried, key=lambda c: len(pairs(c) & missing))
        if not pairs(best) & missing:  # the rare pairs that are left
            best = next(c for c in combinations if pairs(c) & missing)
        missing -= pairs(best)
        found.append(best)
    return found
