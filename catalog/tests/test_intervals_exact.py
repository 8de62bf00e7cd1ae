"""Bounds of actions: what follows from them, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from gymnasium import spaces

from rlcatalog.actions import hashable_bound, interval, read_bounds
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo

TINY = np.finfo(np.float32).tiny
RANDOM = np.random.default_rng(0)


def next_to(x, towards):
    return np.nextafter(np.float32(x), np.float32(towards))


def bounds(count=400):
    """Random float32 bounds of all magnitudes, low below high with numbers in between."""
    numbers = RANDOM.normal(size=(2, count)) * 10.0 ** RANDOM.integers(-6, 7, size=(2, count))
    low, high = np.sort(numbers.astype(np.float32), axis=0)
    return low, high


LOW, HIGH = bounds()


def of(low, high, dtype="float32"):
    low, high = (np.atleast_1d(np.float32(bound)) for bound in (low, high))
    return interval(hashable_bound(low), hashable_bound(high), len(low), dtype)


def test_width_is_the_largest_that_stays_below_high():
    found = of(LOW, HIGH)
    plain = HIGH - LOW
    assert (LOW + plain > HIGH).sum() > 10, "the control: without care some do"
    assert (LOW + found.width <= HIGH).all()
    over = LOW + plain > HIGH
    np.testing.assert_array_equal(found.width[~over], plain[~over])
    np.testing.assert_array_equal(found.width[over], np.nextafter(plain, np.float32(0))[over])
    np.testing.assert_array_equal(found.low, LOW)
    np.testing.assert_array_equal(found.high, HIGH)


def test_outermost_numbers_are_next_to_the_bounds():
    found = of(LOW, HIGH)
    for low, high, lowest, highest in zip(LOW, HIGH, found.lowest, found.highest, strict=True):
        for bound, inner, gap in (
            (low, lowest, Fraction(float(next_to(low, np.inf))) - Fraction(float(low))),
            (high, highest, Fraction(float(high)) - Fraction(float(next_to(high, -np.inf)))),
        ):
            distance = max(gap, Fraction(float(TINY)))
            assert abs(Fraction(float(inner)) - Fraction(float(bound))) == distance
    assert (found.lowest > LOW).all()
    assert (found.highest < HIGH).all()
    at_zero = of([0, -1], [1, 0])
    assert at_zero.lowest[0] == TINY
    assert at_zero.highest[1] == -TINY


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logs_are_those_of_the_exact_widths(dtype):
    found = of(LOW, HIGH, dtype)
    exact = [
        math.log(Fraction(float(b)) - Fraction(float(a))) for a, b in zip(LOW, HIGH, strict=True)
    ]
    np.testing.assert_allclose(
        found.log_width, exact, rtol=1e-6 if dtype == "float32" else 1e-9, atol=1e-12
    )
    assert found.log_width.dtype == found.width.dtype == found.lowest.dtype == dtype
    assert found.log_volume == pytest.approx(math.fsum(exact), abs=1e-9)


def test_single_bound_applies_to_all_dimensions():
    one, all_of_them = interval(-1.0, 2.0, 3, "float32"), of([-1] * 3, [2] * 3)
    for a, b in zip(one, all_of_them, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.low.shape == (3,)
    assert one.log_volume == pytest.approx(3 * math.log(3))
    assert hashable_bound(-1) == -1
    assert hashable_bound(0.5) == 0.5
    assert interval(hashable_bound([0.5] * 2), 1.0, 2, "float32").low.tolist() == [0.5, 0.5]


def test_bounds_of_another_size_are_rejected():
    for low, high in ((hashable_bound([0, 0]), 1.0), (-1.0, hashable_bound([1, 1]))):
        with pytest.raises(
            ConfigError, match=r"low and high must be numbers or have 3 values; found \["
        ):
            interval(low, high, 3, "float32")


UP = next_to(1, 2)
NARROW = [
    (1, UP, False),  # nothing lies in between
    (1, next_to(UP, 2), True),  # one number does
    (1, 1, False),
    (1, 0, False),
    (0, TINY, False),
    (0, 2 * TINY, True),
    (-3e38, 3e38, False),  # the width is no float32
    (-1e38, 1e38, True),
    (0, np.inf, False),
    (-np.inf, 0, False),
    (np.nan, 1, False),
]


@pytest.mark.parametrize(("low", "high", "fine"), NARROW)
def test_bounds_need_a_number_in_between(low, high, fine):
    if fine:
        found = of(low, high)
        assert low < found.lowest[0] <= found.highest[0] < high
    else:
        with pytest.raises(ConfigError, match="low must be below high and both finite; found low="):
            of(low, high)


def test_bounds_are_rejected_for_one_invalid_dimension():
    for low, high in (([0, 1], [1, 1]), ([1, 0], [1, 1]), ([0, 0], [np.inf, 1])):
        with pytest.raises(ConfigError, match="low must be below high and both finite; found low="):
            of(low, high)


def test_bounds_of_a_space_are_read_row_by_row():
    low, high = (
        np.array([[0, 1, 2], [3, 4, 5]], np.float64),
        np.array([[1, 2, 3], [4, 5, 6]], np.float64),
    )
    found = read_bounds(SpaceInfo.read(spaces.Box(low, high, dtype=np.float64)), "Beta")
    np.testing.assert_array_equal(found[0], low.reshape(-1).astype(np.float32))
    np.testing.assert_array_equal(found[1], high.reshape(-1).astype(np.float32))
    assert found[0].dtype == found[1].dtype == np.float32


def test_invalid_bounds_of_a_space_error_names_the_place():
    high = np.array([[1, 2, 3], [4, np.inf, 6]], np.float32)
    space = SpaceInfo.read(spaces.Box(np.zeros((2, 3), np.float32), high))
    with pytest.raises(
        UnsupportedSpaceError, match=r"Beta needs finite bounds.*found \[0\.0, inf\] at \[1, 1\]"
    ):
        read_bounds(space, "Beta")
    wide = SpaceInfo.read(spaces.Box(-1e300, 1e300, (), np.float64))  # finite, but not as float32
    with pytest.raises(UnsupportedSpaceError, match=r"found \[-inf, inf\] at \[0\]"):
        read_bounds(wide, "Beta")
    for space in (spaces.Box(0, 5, (2,), np.int32), spaces.Discrete(3)):
        with pytest.raises(UnsupportedSpaceError, match="Beta needs a Box of floats, found "):
            read_bounds(SpaceInfo.read(space), "Beta")
