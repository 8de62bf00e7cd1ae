"""The interquartile mean over runs and its interval, as Agarwal et al. (2021) have returns of few seeds reported."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Share of runs left out at either end, resamplings, and the ends of the interval in percent.
CUT, REPEATS, ENDS = 0.25, 2000, (2.5, 97.5)
#: Numbers resampled at once.
_AT_ONCE = 2_000_000


def interquartile_mean(returns: Array, axis: int = 0) -> Array:
    """Return the mean of the middle half; of fewer than four runs, where no whole run falls outside of it, the mean.

    Args:
        returns: Returns, the runs along `axis`.
        axis: The axis of the runs, which the result has not.
    """
    ordered = np.sort(np.moveaxis(returns, axis, 0), axis=0)
    cut = int(CUT * len(ordered))
    found: Array = ordered[cut : len(ordered) - cut].mean(0)
    return found


def interval(returns: Array) -> Array:
    """Return the 95 % interval of the interquartile mean: percentiles over a bootstrap of the runs, `[2, points]`.

    The draws are the same each time: a picture drawn again is the same picture.

    Args:
        returns: `[runs, points]`.
    """
    runs, points = returns.shape
    draws = np.random.default_rng(0).integers(runs, size=(REPEATS, runs))
    parts = np.array_split(draws, max(1, -(-REPEATS * runs * points // _AT_ONCE)))
    means = np.concatenate([interquartile_mean(returns[part], axis=1) for part in parts if len(part)])
    found: Array = np.percentile(means, ENDS, axis=0)
    return found
