"""Functions that merge statistics from filters that learn in several processes.

A filter's state can be merged if it has the moments `n`, `mean` and `m2` (the sum of squared
deviations), as in `rlcatalog-filters`. The state's other entries must be equal in all processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import Array

State = Mapping[str, Array]

_MOMENTS = ("n", "mean", "m2")


def since(begun: State, state: State) -> dict[str, Array]:
    """Return statistics for the observations since the state `begun`."""
    _check(state)
    all_of_them, before = int(state["n"]), int(begun["n"])
    n = all_of_them - before
    if n <= 0:
        return {**state, "n": np.array(0, np.int64)}  # skipped by `merged`
    mean = (all_of_them * state["mean"] - before * begun["mean"]) / n
    m2 = state["m2"] - begun["m2"] - (mean - begun["mean"]) ** 2 * (n * before / all_of_them)
    return {**state, "n": np.array(n, np.int64), "mean": mean, "m2": np.maximum(m2, 0.0)}


def merged(states: Sequence[State]) -> dict[str, Array]:
    """Merge the statistics from several states (Chan et al. 1979)."""
    total = dict(states[0])
    _check(total)
    for state in states[1:]:
        _check(state)
        a, b = int(total["n"]), int(state["n"])
        if not b:
            continue
        n, delta = a + b, state["mean"] - total["mean"]
        total["mean"] = total["mean"] + delta * (b / n)
        total["m2"] = total["m2"] + state["m2"] + delta**2 * (a * b / n)
        total["n"] = np.array(n, np.int64)
    return total


def _check(state: State) -> None:
    if missing := [name for name in _MOMENTS if name not in state]:
        raise NotServedError(
            "observation_filter: merging the statistics of several environment runners needs"
            f" {', '.join(_MOMENTS)}; this filter's state lacks {', '.join(missing)} (it has"
            f" {', '.join(sorted(state)) or 'nothing'}). Run with num_env_runners=0, or set it to"
            " 'NoFilter' and use Ray's own connector:"
            " ray.rllib.connectors.env_to_module.MeanStdFilter."
        )
