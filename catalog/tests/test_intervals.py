"""Bounds of actions, and the numbers derived from them, compared with exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import assume, given, settings, strategies as st

from rlcatalog.actions import hashable_bound, interval, read_bounds
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.spaces import SpaceInfo

#: The smallest float32 number that is not subnormal.
TINY = np.finfo(np.float32).tiny


def make_interval(low, high, dtype="float32"):
    low = np.atleast_1d(np.float32(low))
    high = np.atleast_1d(np.float32(high))
    return interval(hashable_bound(low), hashable_bound(high), len(low), dtype)


def draw_bounds():
    """Return 400 random float32 bounds of all magnitudes, low below high."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(2, 400)) * 10.0 ** random.integers(-6, 7, size=(2, 400))
    low, high = np.sort(numbers.astype(np.float32), axis=0)
    return low, high


# --- width ----------------------------------------------------------------------------------------


def draw_bounds_whose_width_is_rounded_up():
    """Return 200 random bounds for which the float32 number low + (high - low) exceeds high."""
    numbers = np.random.default_rng(0).uniform(-50, 50, (2, 100_000)).astype(np.float32)
    low, high = np.sort(numbers, axis=0)
    exceeds = low + (high - low) > high
    return low[exceeds][:200], high[exceeds][:200]


def test_width_is_the_largest_that_stays_within_the_bounds():
    low, high = draw_bounds_whose_width_is_rounded_up()
    assert len(low) == 200

    width = make_interval(low, high).width

    next_wider = np.nextafter(width, np.float32(np.inf))
    assert (low + width <= high).all()
    assert (low + next_wider > high).all()
    np.testing.assert_allclose(width, high.astype(float) - low, rtol=3e-7)


def test_width_is_one_step_narrower_only_where_needed():
    # In float32, 0.7 + (1.9 - 0.7) is above 1.9, but 0.5 + (1.5 - 0.5) is 1.5.
    low = np.array([0.7, 0.5], np.float32)
    high = np.array([1.9, 1.5], np.float32)
    assert (low + (high - low) > high).tolist() == [True, False]

    width = make_interval(low, high).width

    assert width[0] == np.nextafter(high[0] - low[0], np.float32(0))
    assert width[1] == 1


def test_interval_keeps_its_bounds():
    low, high = draw_bounds()

    bounds = make_interval(low, high)

    np.testing.assert_array_equal(bounds.low, low)
    np.testing.assert_array_equal(bounds.high, high)


float32_numbers = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(float32_numbers, float32_numbers)
def test_interval_of_any_size_stays_within_its_bounds(first, second):
    low = np.float32(min(first, second))
    high = np.float32(max(first, second))
    # Several float32 numbers lie in between.
    spacing = max(np.spacing(abs(low)), np.spacing(abs(high)), TINY)
    assume(float(high) - float(low) > 4 * spacing)

    bounds = make_interval(low, high)

    assert low < bounds.lowest[0] <= bounds.highest[0] < high
    for share in (0, 0.25, 0.5, 0.75, 1):
        number = low + np.float32(share) * bounds.width[0]
        assert low <= number <= high


# --- the numbers next to the bounds ---------------------------------------------------------------


def next_to(number, towards):
    """Return the next float32 number in a direction."""
    return np.nextafter(np.float32(number), np.float32(towards))


def exact_distance(first, second):
    return abs(Fraction(float(first)) - Fraction(float(second)))


def test_lowest_numbers_are_next_to_the_lower_bounds():
    low, high = draw_bounds()

    lowest = make_interval(low, high).lowest

    assert (lowest > low).all()
    for bound, number in zip(low, lowest, strict=True):
        gap = exact_distance(bound, next_to(bound, np.inf))
        assert exact_distance(bound, number) == max(gap, Fraction(float(TINY)))


def test_highest_numbers_are_next_to_the_upper_bounds():
    low, high = draw_bounds()

    highest = make_interval(low, high).highest

    assert (highest < high).all()
    for bound, number in zip(high, highest, strict=True):
        gap = exact_distance(bound, next_to(bound, -np.inf))
        assert exact_distance(bound, number) == max(gap, Fraction(float(TINY)))


def test_numbers_next_to_zero_are_not_subnormal():
    assert make_interval(0, 1).lowest == [TINY]
    assert make_interval(-1, 0).highest == [-TINY]


# --- logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-9)])
def test_logs_are_those_of_the_exact_widths(dtype, rtol):
    low, high = draw_bounds()
    widths = [exact_distance(*pair) for pair in zip(low, high, strict=True)]
    exact_logs = [math.log(width) for width in widths]

    bounds = make_interval(low, high, dtype)

    np.testing.assert_allclose(bounds.log_width, exact_logs, rtol=rtol, atol=1e-12)
    assert bounds.log_volume == pytest.approx(math.fsum(exact_logs), abs=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_interval_has_the_given_dtype(dtype):
    bounds = make_interval(-1, 2, dtype)

    assert bounds.log_width.dtype == dtype
    assert bounds.width.dtype == dtype
    assert bounds.lowest.dtype == dtype


# --- single numbers -------------------------------------------------------------------------------


def test_single_bound_applies_to_all_dimensions():
    from_numbers = interval(-1.0, 2.0, 3, "float32")
    from_arrays = make_interval([-1, -1, -1], [2, 2, 2])

    for field, expected in zip(from_numbers, from_arrays, strict=True):
        np.testing.assert_array_equal(field, expected)
    assert from_numbers.low.shape == (3,)
    assert from_numbers.log_volume == pytest.approx(3 * math.log(3))


def test_single_bound_goes_with_an_array():
    low = hashable_bound([0.5, 0.5])

    assert interval(low, 1.0, 2, "float32").low.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("number", [-1, 0.5])
def test_single_bound_is_hashable_as_it_is(number):
    assert hashable_bound(number) == number


# --- bounds that are rejected ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [
        pytest.param(hashable_bound([0, 0]), 1.0, id="low"),
        pytest.param(-1.0, hashable_bound([1, 1]), id="high"),
    ],
)
def test_bounds_of_another_size_are_rejected(low, high):
    with pytest.raises(ConfigError, match=r"numbers or have 3 values; found \["):
        interval(low, high, 3, "float32")


ONE_STEP_ABOVE_1 = next_to(1, 2)
TWO_STEPS_ABOVE_1 = next_to(ONE_STEP_ABOVE_1, 2)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        pytest.param(1, TWO_STEPS_ABOVE_1, id="one-number-in-between"),
        pytest.param(0, 2 * TINY, id="tiny"),
        pytest.param(-1e38, 1e38, id="huge"),
    ],
)
def test_bounds_with_a_number_in_between_are_accepted(low, high):
    bounds = make_interval(low, high)

    assert low < bounds.lowest[0] <= bounds.highest[0] < high


@pytest.mark.parametrize(
    ("low", "high"),
    [
        pytest.param(1, ONE_STEP_ABOVE_1, id="nothing-in-between"),
        pytest.param(0, TINY, id="nothing-but-subnormals-in-between"),
        pytest.param(1, 1, id="equal"),
        pytest.param(1, 0, id="wrong-order"),
        pytest.param(-3e38, 3e38, id="width-is-no-float32"),
        pytest.param(0, np.inf, id="no-upper-bound"),
        pytest.param(-np.inf, 0, id="no-lower-bound"),
        pytest.param(np.nan, 1, id="nan"),
        pytest.param([0, 1], [1, 1], id="second-dimension-equal"),
        pytest.param([1, 0], [1, 1], id="first-dimension-equal"),
        pytest.param([0, 0], [np.inf, 1], id="first-dimension-infinite"),
    ],
)
def test_bounds_without_a_number_in_between_are_rejected(low, high):
    with pytest.raises(ConfigError, match="low must be below high and both finite"):
        make_interval(low, high)


# --- bounds of a space ----------------------------------------------------------------------------


def test_bounds_of_a_space_are_read_row_by_row():
    low = np.array([[0, 1, 2], [3, 4, 5]], np.float64)
    space = Box(low, low + 1, dtype=np.float64)

    read_low, read_high = read_bounds(SpaceInfo.read(space), "Beta")

    np.testing.assert_array_equal(read_low, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(read_high, [1, 2, 3, 4, 5, 6])
    assert read_low.dtype == np.float32
    assert read_high.dtype == np.float32


def test_invalid_bounds_of_a_space_error_names_the_place():
    high = np.array([[1, 2, 3], [4, np.inf, 6]], np.float32)
    space = SpaceInfo.read(Box(np.zeros((2, 3), np.float32), high))

    with pytest.raises(UnsupportedSpaceError, match="Beta needs finite bounds") as caught:
        read_bounds(space, "Beta")

    assert "found [0.0, inf] at [1, 1]" in str(caught.value)


def test_bounds_that_overflow_float32_are_rejected():
    space = SpaceInfo.read(Box(-1e300, 1e300, (), np.float64))

    with pytest.raises(UnsupportedSpaceError, match=r"found \[-inf, inf\] at \[0\]"):
        read_bounds(space, "Beta")


@pytest.mark.parametrize("space", [Box(0, 5, (2,), np.int32), Discrete(3)], ids=["int", "discrete"])
def test_bounds_of_space_without_floats_are_rejected(space):
    with pytest.raises(UnsupportedSpaceError, match="Beta needs a Box of floats, found "):
        read_bounds(SpaceInfo.read(space), "Beta")
