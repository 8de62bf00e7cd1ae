"""The check that the values of an observation are within the bounds of its space."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.errors import OutOfBoundsError
from rlcatalog.frameworks.ops import Array

if TYPE_CHECKING:
    from rlcatalog.observations.preprocessor import Preprocessor

#: Rounding that is allowed beyond a bound, in units in the last place: some environments compute
#: their observations with a few operations, and end one or two units beyond the bound.
_ROUNDING = 4


def check_values(codec: Preprocessor, array: Array, expected: str, low: Array, high: Array) -> None:
    """Check that the values of an observation are within bounds, except for rounding.

    Args:
        codec: The codec of the observation's space.
        array: The observation, with the space's shape and dtype.
        expected: Description of the space, for the error.
        low: The lowest values, of the same shape and dtype.
        high: The highest values.

    Raises:
        ObservationError: A value outside is not finite, or too large for the space's dtype.
        OutOfBoundsError: A value is outside; the message gives its place.
    """
    # A fast check of the usual case; count_nonzero is faster than all().
    is_inside = (array >= low) & (array <= high)  # false for NaN
    if np.count_nonzero(is_inside) == is_inside.size:
        return
    lowest, highest = widen(low, high)  # allow for rounding
    is_inside = (array >= lowest) & (array <= highest)
    places_outside = np.argwhere(~is_inside)
    if not len(places_outside):
        return
    index = tuple(int(i) for i in places_outside[0])
    at = ""
    if index:
        at = f" at [{', '.join(map(str, index))}]"
    expected_values = f"{expected}: values within [{low[index]}, {high[index]}]{at}"
    # Both calls raise: an ObservationError, or an OutOfBoundsError if the values can be encoded.
    if not _can_encode(array[~is_inside], low.dtype):
        codec.refuse(expected_values, array[index])
    codec.refuse_value(expected_values, array[index])


def _can_encode(values: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether the space's dtype holds the values, and whether a net can read them."""
    if dtype.kind == "f":
        return bool(np.isfinite(values).all())
    if dtype.kind not in "iu":
        return True
    limits = np.iinfo(dtype)
    return int(values.min()) >= limits.min and int(values.max()) <= limits.max


def widen(low: Array, high: Array) -> tuple[Array, Array]:
    """Return bounds that allow for rounding: a few units in the last place of the larger bound.

    Args:
        low: The lowest values.
        high: The highest values, with the same shape and dtype. Bounds of integers stay.
    """
    if low.dtype.kind != "f":
        return low, high
    # Observations are encoded as float32, so no finer difference matters.
    unit = max(np.finfo(low.dtype).eps, np.finfo(np.float32).eps)
    size_of_low = np.where(np.isfinite(low), np.abs(low), 0)
    size_of_high = np.where(np.isfinite(high), np.abs(high), 0)
    slack = (_ROUNDING * unit * np.maximum(size_of_low, size_of_high)).astype(low.dtype)
    with np.errstate(over="ignore"):  # a bound may be the largest number
        return low - slack, high + slack


def check_parts(checks: Iterable[Callable[[], None]]) -> None:
    """Check the parts of an observation; a value outside its bounds is reported only if every part
    can be encoded.

    Args:
        checks: A function for each part that raises an ObservationError.

    Raises:
        ObservationError: The first error that is not about bounds; otherwise the first error.
    """
    first_error: OutOfBoundsError | None = None
    for check in checks:
        try:
            check()
        except OutOfBoundsError as error:
            if first_error is None:
                first_error = error
    if first_error is not None:
        raise first_error
