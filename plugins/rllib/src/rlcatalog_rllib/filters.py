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
    """Return statistics for the observations since the state `begun`: the merge of both is `state`
    (the formula in `merged`, solved for one of the two).
    """
    _check_moments(state)
    count_now = int(state["n"])
    count_before = int(begun["n"])
    count = count_now - count_before
    if count <= 0:
        return {**state, "n": np.array(0, np.int64)}  # `merged` skips a state without observations
    mean = (count_now * state["mean"] - count_before * begun["mean"]) / count
    mean_shift = mean - begun["mean"]
    # The sum of squared deviations from the mean.
    m2 = state["m2"] - begun["m2"] - mean_shift**2 * (count * count_before / count_now)
    # Rounding may give a small negative number.
    m2 = np.maximum(m2, 0.0)
    return {**state, "n": np.array(count, np.int64), "mean": mean, "m2": m2}


def merged(states: Sequence[State]) -> dict[str, Array]:
    """Merge the statistics from several states (Chan et al. 1979)."""
    total = dict(states[0])
    _check_moments(total)
    for state in states[1:]:
        _check_moments(state)
        total_count = int(total["n"])
        state_count = int(state["n"])
        if state_count == 0:
            continue
        count = total_count + state_count
        delta = state["mean"] - total["mean"]
        total["mean"] = total["mean"] + delta * (state_count / count)
        total["m2"] = total["m2"] + state["m2"] + delta**2 * (total_count * state_count / count)
        total["n"] = np.array(count, np.int64)
    return total


def _check_moments(state: State) -> None:
    """Raise an error unless a filter's state has the moments that can be merged.

    Raises:
        NotServedError: A moment is missing.
    """
    missing = [name for name in _MOMENTS if name not in state]
    if missing:
        entries = ", ".join(sorted(state)) or "nothing"
        raise NotServedError(
            "observation_filter: merging the statistics of several environment runners needs"
            f" {', '.join(_MOMENTS)}; this filter's state lacks {', '.join(missing)} (it has"
            f" {entries}). Run with num_env_runners=0, or set it to"
            " 'NoFilter' and use Ray's own connector:"
            " ray.rllib.connectors.env_to_module.MeanStdFilter."
        )
