"""The bounds of actions as distributions need them: no sum leaves them, against float64 and float32
numbers by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rlcatalog.actions import hashable_bound, interval
from rlcatalog.errors import ConfigError

F = np.float32
bound = st.floats(-(2.0**100), 2.0**100, width=32)


def of(low, high):
    low, high = np.atleast_1d(F(low)), np.atleast_1d(F(high))
    return interval(hashable_bound(low), hashable_bound(high), low.size, "float32")


def rounded_up(count=200):
    """Return bounds whose distance, as float32, is so rounded that it leads from the lower one
    beyond the upper.
    """
    low, high = np.sort(np.random.default_rng(0).uniform(-50, 50, (2, 100_000)).astype(F), axis=0)
    beyond = low + (high - low) > high
    return low[beyond][:count], high[beyond][:count]


def test_low_plus_width_reaches_high_and_never_exceeds_it():
    low, high = rounded_up()
    assert len(low) == 200
    found = of(low, high)
    assert (found.low + found.width <= high).all()
    np.testing.assert_allclose(found.width, high.astype(float) - low, rtol=3e-7)
    # No more is taken off than it needs: the next wider one goes beyond.
    assert (low + np.nextafter(found.width, F(np.inf)) > high).all()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(bound, bound)
def test_interval_of_any_size_stays_within_its_bounds(one, two):
    low, high = F(min(one, two)), F(max(one, two))
    try:
        found = of(low, high)
    except ConfigError:  # no number in between that is told apart from both
        assert float(high) - float(low) <= 4 * max(
            np.spacing(np.abs([low, high])).max(), np.finfo(F).tiny
        )
        return
    assert low < found.lowest[0] <= found.highest[0] < high
    assert low + found.width[0] <= high
    shares = np.linspace(0, 1, 33, dtype=F)
    assert (low + shares * found.width <= high).all()
    assert (low + shares * found.width >= low).all()
    assert found.log_volume == pytest.approx(np.log(float(high) - float(low)), rel=1e-6, abs=1e-6)
