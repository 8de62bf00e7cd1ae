"""How much of an action's bounds a distribution reaches before training."""

from __future__ import annotations

import math

import numpy as np

from rlcatalog.actions.codec import ActionCodec
from rlcatalog.frameworks.ops import Array

#: An initial distribution must cover this share of a range, and this share of it must lie inside.
LEAST_SHARE = 0.1
#: Nearly all normal values (99.7 %) are within so many standard deviations.
_DEVIATIONS = 3.0


def covered_shares(codec: ActionCodec, std: float) -> Array:
    """Return the share of each range that raw actions reach before training: `[width]`.

    They are normal values with mean 0, and reach three standard deviations to each side. A value
    whose bounds are not both finite has no range, so its share is 1.

    Args:
        codec: The codec of a Box of floats.
        std: The standard deviation of the raw actions.
    """
    low, high = codec.limits
    shares = np.ones(codec.width)
    has_range = np.isfinite(low) & np.isfinite(high) & (low < high)
    low = low[has_range]
    high = high[has_range]
    farthest = _DEVIATIONS * std
    reach = np.minimum(high, farthest) - np.maximum(low, -farthest)
    shares[has_range] = np.maximum(reach, 0.0) / (high - low)
    return shares


def inside_shares(codec: ActionCodec, std: float) -> Array:
    """Return the share of raw actions that lie inside the bounds before training: `[width]`.

    The others act at a bound. A value with a single possible action has the share 1.

    Args:
        codec: See `covered_shares`.
        std: See `covered_shares`.
    """
    low, high = codec.limits
    shares = _normal_cdf(high / std) - _normal_cdf(low / std)
    return np.where(low < high, shares, 1.0)


def _normal_cdf(x: Array) -> Array:
    erf = np.array([math.erf(value / math.sqrt(2)) for value in x.tolist()])
    return 0.5 * (1.0 + erf)
